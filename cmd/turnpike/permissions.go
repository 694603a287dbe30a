package main

import (
	"os"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/permission"
)

type natsCmd struct {
	Permissions natsPermissionsCmd `cmd:"" help:"Print the permissions of a NATS user, for the server's configuration."`
	Account     natsAccountCmd     `cmd:"" help:"Print the NATS account of a tenant's clients, to paste into the NATS server's configuration."`
}

type natsAccountCmd struct {
	Name       string `arg:"" help:"Account of the clients."`
	Deployment string `required:"" help:"Account that gateways and workers are in."`
	Prefix     string `env:"TURNPIKE_PREFIX" default:"turnpike" help:"Prefix of the deployment's subjects."`
}

func (c *natsAccountCmd) Run(e *env) error {
	a, err := permission.ForAccount(permission.Scope{Prefix: c.Prefix, Tenant: e.tenant}, c.Name, c.Deployment)
	if err != nil {
		return err
	}
	return e.print(a, strings.TrimSuffix(a.String(), "\n"))
}

// untrustedClient says what the permissions of a client do not prevent.
const untrustedClient = "If you do not trust this client, put it into an account of its own (turnpike nats account): else it can fill the streams of other tenants, see docs/reference/nats.md#permissions."

type natsPermissionsCmd struct {
	Role   string   `required:"" enum:"gateway,worker,client,tool,observer" help:"Role of the user: ${enum}."`
	Prefix string   `env:"TURNPIKE_PREFIX" default:"turnpike" help:"Prefix of the deployment's subjects."`
	Domain string   `name:"nats-domain" env:"TURNPIKE_NATS_DOMAIN" help:"JetStream domain that has the streams."`
	Tool   []string `help:"Tools that a service serves, separated by commas; default all of the tenant's."`
	Also   []string `help:"Subjects outside the prefix that a gateway or worker publishes to, such as those of hooks and replies, separated by commas."`
}

func (c *natsPermissionsCmd) Run(e *env) error {
	n, err := permission.ForNATS(permission.Role(c.Role), permission.Scope{Prefix: c.Prefix, Domain: c.Domain, Tenant: e.tenant, Tools: c.Tool, Also: c.Also})
	if err != nil {
		return err
	}
	text := strings.TrimSuffix(n.String(), "\n")
	if n.Inbox != "" && n.Inbox != "_INBOX" {
		text = "# Subjects of answers begin with " + n.Inbox + ": set it as the inbox prefix of the connection.\n" + text
	}
	if permission.Role(c.Role) == permission.Client {
		text = "# " + untrustedClient + "\n" + text
	}
	return e.print(n, text)
}

type redisCmd struct {
	Permissions redisPermissionsCmd `cmd:"" help:"Print the permissions of a Redis user, as a line of an ACL file."`
}

type redisPermissionsCmd struct {
	Role         string `required:"" enum:"gateway,worker,observer" help:"Role of the user: ${enum}."`
	Prefix       string `env:"TURNPIKE_PREFIX" default:"turnpike" help:"Prefix of the deployment's keys."`
	User         string `help:"Name of the user; default the role."`
	PasswordFile string `type:"path" help:"File with the user's password; the output has its hash."`
}

func (c *redisPermissionsCmd) Run(e *env) error {
	if c.User == "" {
		c.User = c.Role
	}
	password := ""
	if c.PasswordFile != "" {
		data, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return named(err)
		}
		password = strings.TrimRight(string(data), " \t\r\n")
	}
	line, err := permission.ForRedis(permission.Role(c.Role), c.Prefix, c.User, password)
	if err != nil {
		return err
	}
	return e.print(map[string]string{"acl": strings.TrimSuffix(line, "\n")}, strings.TrimSuffix(line, "\n"))
}
