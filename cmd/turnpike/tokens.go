package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

type tokensCmd struct {
	Create tokensCreateCmd `cmd:"" help:"Issue a short-lived token for an end user and print it, once. Your API key needs the role issuer."`
	Rotate tokensRotateCmd `cmd:"" help:"Add a key that signs the tokens of the tenant. Tokens of the key before stay valid; run it twice to end all tokens."`
}

type tokensCreateCmd struct {
	User    string    `arg:"" help:"Name of the user in your own system, without spaces."`
	Role    []string  `help:"Roles, separated by commas: viewer, submitter, approver."`
	Agent   []string  `help:"Agents whose runs the token may start and read, separated by commas; default all."`
	Of      string    `name:"run" help:"The only run that the token may read."`
	Expires *lifetime `help:"Lifetime, such as 30m or 12h, at most 24h; default 15m."`
	File    string    `type:"path" help:"Write the token into this file, which only its owner can read, rather than print it."`
}

func (c *tokensCreateCmd) Run(e *env) error {
	if len(c.Role) == 0 {
		return usagef("--role is missing: give one or more of viewer, submitter, approver, separated by commas")
	}
	token, err := e.client.CreateToken(e.ctx, api.TokenRequest{User: c.User, Roles: c.Role, Agents: c.Agent, Run: c.Of, ExpiresIn: (*model.Duration)(c.Expires)})
	if err != nil {
		return err
	}
	if c.File != "" {
		if err := writeSecret(c.File, token.Text+"\n"); err != nil {
			return err
		}
		return e.print(token.Token, "token of "+token.User+" in "+c.File)
	}
	if !e.json {
		fmt.Fprintf(e.errs, "created a token for %s with the roles %s in tenant %s, valid until %s. The token is shown only once: store it.\n", token.User, strings.Join(token.Roles, ", "), token.Tenant, token.ExpiresAt.Format(time.RFC3339))
	}
	return e.print(token, token.Text)
}

type tokensRotateCmd struct{}

func (*tokensRotateCmd) Run(e *env) error {
	keys, err := e.client.RotateTokens(e.ctx)
	if err != nil {
		return err
	}
	return e.print(keys, table("ID\tCREATED", keys.Keys, func(k api.TokenKey) string {
		return k.ID + "\t" + k.CreatedAt.Format(time.RFC3339)
	}))
}
