package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/turnpike-dev/turnpike/internal/permission"
)

type secretsCmd struct {
	Dir    string   `arg:"" type:"path" help:"Directory that gets a folder for each user, and nats/users.conf and redis/users.acl for the servers."`
	User   []string `help:"Users to create, as NAME=ROLE or NAME=ROLE:TENANT, separated by commas. Roles are those of turnpike nats permissions. Default without --remove: gateway=gateway,worker=worker,observer=observer. Other users of an earlier call stay unchanged."`
	Remove []string `help:"Users of an earlier call to remove from the servers, separated by commas. Their folders stay."`
	Owner  []string `help:"Owners of the files of a folder, as FOLDER=UID, separated by commas."`
	Prefix string   `env:"TURNPIKE_PREFIX" default:"turnpike" help:"Prefix of the deployment's subjects and keys."`
	Domain string   `name:"nats-domain" env:"TURNPIKE_NATS_DOMAIN" help:"JetStream domain that has the streams."`
	Also   []string `help:"Subjects outside the prefix that gateways and workers publish to, such as those of hooks and replies, separated by commas."`
}

func (c *secretsCmd) Run(e *env) error {
	s := permission.Secrets{Dir: c.Dir, Scope: permission.Scope{Prefix: c.Prefix, Domain: c.Domain, Also: c.Also}, Remove: c.Remove, Owners: map[string]int{}}
	if len(c.User) == 0 && len(c.Remove) == 0 {
		c.User = []string{"gateway=gateway", "worker=worker", "observer=observer"}
	}
	for _, text := range c.User {
		name, role, ok := strings.Cut(text, "=")
		if !ok {
			return usagef("--user is %q: write NAME=ROLE or NAME=ROLE:TENANT", text)
		}
		role, tenant, _ := strings.Cut(role, ":")
		s.Users = append(s.Users, permission.User{Name: name, Role: permission.Role(role), Tenant: tenant})
	}
	for _, text := range c.Owner {
		folder, number, _ := strings.Cut(text, "=")
		uid, err := strconv.Atoi(number)
		if err != nil || uid < 0 {
			return usagef("--owner is %q: write FOLDER=UID", text)
		}
		s.Owners[folder] = uid
	}
	if err := s.Make(); err != nil {
		return err
	}
	for _, u := range s.Users {
		if u.Role == permission.Client {
			fmt.Fprintf(e.errs, "%s is a client. %s\n", u.Name, untrustedClient)
		}
	}
	return e.print(map[string]string{"dir": c.Dir}, "secrets in "+c.Dir)
}

// giveToOwnerOf makes the owner of a directory the owner of a file, if this process runs as root.
func giveToOwnerOf(dir, file string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Chown(file, int(of.Uid), int(of.Gid))
	}
	return nil
}
