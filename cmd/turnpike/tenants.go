package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type tenantsCmd struct {
	Ls  tenantsLsCmd  `cmd:"" help:"List tenants and their settings."`
	Put tenantsPutCmd `cmd:"" help:"Set what a tenant may do; what is not given stays as it is."`
	Rm  tenantsRmCmd  `cmd:"" help:"Remove the settings of a tenant; its runs and agents stay."`
}

type tenantsLsCmd struct{}

func (*tenantsLsCmd) Run(e *env) error {
	tenants, err := e.client.Tenants(e.ctx)
	if err != nil {
		return err
	}
	return e.print(tenants, tenantTable(tenants))
}

func tenantTable(tenants []api.Tenant) string {
	return table("NAME\tFOUR EYES\tREVIEW\tSUSPENDED\tHOSTS\tMODELS\tPROGRAMS\tSECRETS", tenants, func(t api.Tenant) string {
		return fmt.Sprintf("%s\t%t\t%t\t%t\t%s\t%s\t%s\t%s", t.Name, t.FourEyes, t.Review, t.Suspended, allowed(t.Hosts), allowed(t.Models), allowed(t.MCPCommands), allowed(secretTexts(t.Secrets)))
	})
}

type tenantsPutCmd struct {
	Name    string `arg:"" help:"Name of the tenant."`
	Replace bool   `help:"Set what is not given, too: to what a tenant without settings has."`

	FourEyes  *bool `negatable:"" help:"Nobody approves calls of runs for which they have asked for anything, in runs above and forks, too."`
	Review    *bool `negatable:"" help:"What authors save is a draft until somebody else publishes it."`
	Suspended *bool `negatable:"" help:"The tenant may read and cancel, and nothing else."`

	Host       []string `help:"Only these hosts may be reached by tools and by models with a base_url, by commas: example.com, *.example.com, example.com:8443, 10.1.0.0/16; none is no host, any takes the list away."`
	Model      []string `help:"Only these models may be used, by commas: claude-*, openai/*; none is no model, any takes the list away."`
	MCPCommand []string `name:"mcp-command" help:"Only these programs may be started for MCP tools, by commas; none is no program, any takes the list away."`
	Secret     []string `help:"Only these secrets may be named, by commas: NAME, or NAME=HOST for some hosts alone; none is no secret, any takes the list away."`
}

// allowed shows a list of what a tenant may use.
func allowed(list []string) string {
	switch {
	case list == nil:
		return "any"
	case len(list) == 0:
		return "none"
	default:
		return strings.Join(list, ",")
	}
}

// listOf reads a list of what a tenant may use, as allowed shows it.
func listOf(flag []string) []string {
	if len(flag) == 1 && flag[0] == "none" {
		return []string{}
	}
	if len(flag) == 1 && flag[0] == "any" {
		return nil
	}
	return flag
}

func secretTexts(secrets []api.TenantSecret) []string {
	if secrets == nil {
		return nil
	}
	texts := []string{}
	for _, s := range secrets {
		if len(s.Hosts) == 0 {
			texts = append(texts, s.Name)
		}
		for _, h := range s.Hosts {
			texts = append(texts, s.Name+"="+h)
		}
	}
	return texts
}

// secretsOf reads what secretTexts shows.
func secretsOf(texts []string) []api.TenantSecret {
	if texts == nil {
		return nil
	}
	secrets := []api.TenantSecret{}
	for _, text := range texts {
		name, host, bound := strings.Cut(text, "=")
		i := slices.IndexFunc(secrets, func(s api.TenantSecret) bool { return s.Name == name })
		if i < 0 {
			i = len(secrets)
			secrets = append(secrets, api.TenantSecret{Name: name})
		}
		if bound {
			secrets[i].Hosts = append(secrets[i].Hosts, host)
		}
	}
	return secrets
}

// Run changes what is given and leaves the rest as it is.
func (c *tenantsPutCmd) Run(e *env) error {
	var settings api.TenantSettings
	if !c.Replace {
		before, err := e.client.Tenant(e.ctx, c.Name)
		if p, ok := errors.AsType[*api.Problem](err); err != nil && !(ok && p.Code == api.CodeTenantNotFound) {
			return err
		}
		settings = before.TenantSettings
	}
	c.change(&settings)
	t, err := e.client.PutTenant(e.ctx, c.Name, settings)
	if err != nil {
		return err
	}
	return e.print(t, tenantTable([]api.Tenant{t}))
}

func (c *tenantsPutCmd) change(s *api.TenantSettings) {
	for _, f := range []struct{ given, of *bool }{{c.FourEyes, &s.FourEyes}, {c.Review, &s.Review}, {c.Suspended, &s.Suspended}} {
		if f.given != nil {
			*f.of = *f.given
		}
	}
	for _, f := range []struct {
		given []string
		of    *[]string
	}{{c.Host, &s.Hosts}, {c.Model, &s.Models}, {c.MCPCommand, &s.MCPCommands}} {
		if f.given != nil {
			*f.of = listOf(f.given)
		}
	}
	if c.Secret != nil {
		s.Secrets = secretsOf(listOf(c.Secret))
	}
}

type tenantsRmCmd struct {
	Name string `arg:"" help:"Name of the tenant."`
}

func (c *tenantsRmCmd) Run(e *env) error {
	if err := e.client.DeleteTenant(e.ctx, c.Name); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": c.Name}, "removed the settings of "+c.Name)
}
