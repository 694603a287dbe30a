package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type tenantsCmd struct {
	Ls  tenantsLsCmd  `cmd:"" help:"List tenants and their settings."`
	Put tenantsPutCmd `cmd:"" help:"Change the settings of a tenant; settings without a flag stay unchanged."`
	Rm  tenantsRmCmd  `cmd:"" help:"Remove a tenant: its settings, schedules, hooks, triggers, memories, evaluations and files. Its runs, agents and keys stay; it is suspended until it is put again."`
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
	return table("NAME\tFOUR EYES\tREVIEW\tSUSPENDED\tHOSTS\tMODELS\tPROGRAMS\tPROVIDER TOOLS\tSECRETS\tSTREAMS\tINDEXED\tWEBHOOK", tenants, func(t api.Tenant) string {
		webhook := "-"
		if t.Webhook != nil {
			webhook = t.Webhook.URL
		}
		return fmt.Sprintf("%s\t%t\t%t\t%t\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", t.Name, t.FourEyes, t.Review, t.Suspended, allowed(t.Hosts), allowed(t.Models), allowed(t.MCPCommands), allowed(t.ProviderTools),
			secretsAllowed(t), streamTexts(t.Streams), allowed(append([]string{}, t.IndexedMetadata...)), webhook)
	})
}

type tenantsPutCmd struct {
	Name    string `arg:"" help:"Name of the tenant."`
	Replace bool   `help:"Also reset the settings without a flag to their defaults."`

	FourEyes  *bool `negatable:"" help:"Require that the approver of a call made no request in its run, the run's ancestors or the runs it was forked from, and stored none of the schedules, hooks and triggers that did."`
	Review    *bool `negatable:"" help:"A saved definition is a draft until another person publishes it."`
	Suspended *bool `negatable:"" help:"The tenant may only read and cancel."`

	Host         []string `help:"Hosts that tools and models with a base_url may reach, separated by commas: example.com, *.example.com, example.com:8443, 10.1.0.0/16; none allows no host; any removes the list, so that every host is allowed."`
	Model        []string `help:"Models that agents may use, separated by commas: claude-*, openai/*; none allows no model; any removes the list, so that every model is allowed."`
	MCPCommand   []string `name:"mcp-command" help:"Programs that MCP tools may start, separated by commas; none allows no program; any removes the list, so that every program is allowed."`
	ProviderTool []string `help:"Tools that model providers run, separated by commas: web_search, anthropic/*; none allows no tool; any removes the list, so that every tool is allowed."`
	Secret       []string `help:"Secrets that definitions may name, separated by commas: NAME, or NAME=HOST for some hosts only; none allows no secret; own (or any) removes the list, so that the tenant has those of its directory only, and the tenant default those of the deployment."`

	Stream []string `help:"Streams of NATS that triggers may read, separated by commas: NAME, or NAME=SUBJECT for some subjects only; * in a name is any text; none allows no stream, default removes the list."`

	Webhook       string   `help:"Address that receives events of runs without a webhook of their own; none removes it."`
	WebhookSecret []string `help:"Secret that signs them, as in secret://NAME; two while it is rotated."`
	WebhookEvent  []string `help:"Events, separated by commas: run.finished (default), run.waiting."`

	IndexedMetadata []string `help:"Up to four metadata keys by which lists of runs are fast, separated by commas; none removes them."`
}

// allowed formats a list of permitted resources.
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

// secretsAllowed formats the secrets that a tenant has. Without a list, the tenant default has all secrets of the
// deployment, and any other tenant has those of its directory.
func secretsAllowed(t api.Tenant) string {
	if t.Secrets == nil && t.Name != state.DefaultTenant {
		return "own"
	}
	return allowed(secretTexts(t.Secrets))
}

// listOf parses a list of permitted resources in the format of allowed.
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

// secretsOf parses the format of secretTexts.
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

// streamTexts formats the streams that triggers may read.
func streamTexts(streams []api.TenantStream) string {
	if streams == nil {
		return "default"
	}
	texts := []string{}
	for _, s := range streams {
		if len(s.Subjects) == 0 {
			texts = append(texts, s.Name)
		}
		for _, subject := range s.Subjects {
			texts = append(texts, s.Name+"="+subject)
		}
	}
	return allowed(texts)
}

// streamsOf parses the format of streamTexts.
func streamsOf(texts []string) []api.TenantStream {
	if len(texts) == 1 && texts[0] == "default" {
		return nil
	}
	streams := []api.TenantStream{}
	for _, text := range listOf(texts) {
		name, subject, some := strings.Cut(text, "=")
		i := slices.IndexFunc(streams, func(s api.TenantStream) bool { return s.Name == name && some && len(s.Subjects) > 0 })
		if i < 0 {
			i = len(streams)
			streams = append(streams, api.TenantStream{Name: name})
		}
		if some {
			streams[i].Subjects = append(streams[i].Subjects, subject)
		}
	}
	return streams
}

// Run changes the given settings and keeps the others.
func (c *tenantsPutCmd) Run(e *env) error {
	var settings api.TenantSettings
	if !c.Replace {
		before, err := e.client.Tenant(e.ctx, c.Name)
		if p, ok := errors.AsType[*api.Problem](err); err != nil && !(ok && p.Code == api.CodeTenantNotFound) {
			return err
		}
		settings = before.TenantSettings
	}
	if len(c.WebhookSecret)+len(c.WebhookEvent) > 0 && (c.Webhook == "none" || c.Webhook == "" && settings.Webhook == nil) {
		return usagef("--webhook-secret and --webhook-event need a webhook: give its address with --webhook")
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
	}{{c.Host, &s.Hosts}, {c.Model, &s.Models}, {c.MCPCommand, &s.MCPCommands}, {c.ProviderTool, &s.ProviderTools}} {
		if f.given != nil {
			*f.of = listOf(f.given)
		}
	}
	if c.IndexedMetadata != nil {
		s.IndexedMetadata = listOf(c.IndexedMetadata)
	}
	c.changeWebhook(s)
	if slices.Equal(c.Secret, []string{"own"}) {
		s.Secrets = nil
	} else if c.Secret != nil {
		s.Secrets = secretsOf(listOf(c.Secret))
	}
	if c.Stream != nil {
		s.Streams = streamsOf(c.Stream)
	}
}

// changeWebhook changes the given parts of the webhook.
func (c *tenantsPutCmd) changeWebhook(s *api.TenantSettings) {
	if c.Webhook == "none" {
		s.Webhook = nil
		return
	}
	var w state.Webhook
	if s.Webhook != nil {
		w = *s.Webhook
	}
	w.URL = cmp.Or(c.Webhook, w.URL)
	if c.WebhookSecret != nil {
		w.Secret = nil
	}
	for _, name := range c.WebhookSecret {
		w.Secret = append(w.Secret, "secret://"+strings.TrimPrefix(name, "secret://"))
	}
	if c.WebhookEvent != nil {
		w.Events = nil
	}
	for _, e := range c.WebhookEvent {
		w.Events = append(w.Events, state.EntryType(e))
	}
	if w.URL != "" {
		s.Webhook = &w
	}
}

type tenantsRmCmd struct {
	Name string `arg:"" help:"Name of the tenant."`
}

func (c *tenantsRmCmd) Run(e *env) error {
	if err := e.client.DeleteTenant(e.ctx, c.Name); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": c.Name}, "removed the settings, schedules, hooks, triggers, memories, evaluations and files of "+c.Name+", and suspended it")
}
