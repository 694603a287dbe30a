package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/pkg/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/turnpike"
)

type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Make an API key and print it, once."`
	Ls     keysLsCmd     `cmd:"" help:"List API keys, without their secrets."`
	Revoke keysRevokeCmd `cmd:"" help:"Have every gateway refuse a key, within five seconds."`
}

type keysCreateCmd struct {
	Name      string        `help:"What the key is for."`
	Role      []string      `help:"What it may do: viewer, submitter, approver, author, operator, admin; several by commas."`
	Expires   time.Duration `help:"How long it lasts, such as 720h; it lasts for ever without."`
	File      string        `type:"path" help:"Write the key into this file, which only its owner can read, rather than print it. With --bootstrap a file whose key is good is left as it is."`
	Bootstrap bool          `help:"Write the key into the store, without a gateway: the first key of a deployment, which is an admin's."`

	Config app.Config `embed:"" group:"With --bootstrap"`
}

func (c *keysCreateCmd) Run(e *env) error {
	var expires state.Time
	if c.Expires > 0 {
		expires = state.At(time.Now().Add(c.Expires))
	}
	if c.Bootstrap {
		return c.bootstrap(e, expires)
	}
	if len(c.Role) == 0 {
		return errors.New("--role is missing: viewer, submitter, approver, author, operator, admin; several by commas")
	}
	key, err := e.client.CreateKey(e.ctx, api.KeyRequest{Name: c.Name, Tenant: e.tenant, Roles: c.Role, ExpiresAt: expires})
	if err != nil {
		return err
	}
	return e.handOver(key, c.File)
}

// bootstrap makes the key that makes the others.
func (c *keysCreateCmd) bootstrap(e *env, expires state.Time) error {
	roles := access.Roles()
	if len(c.Role) > 0 {
		var err error
		if roles, err = access.ParseRoles(c.Role); err != nil {
			return err
		}
	}
	settings := c.Config.Deployment()
	if dev := devNATS(c.Config); dev != "" {
		settings.NATSURL, settings.RedisURL = dev, ""
	}
	d, err := turnpike.Open(e.ctx, settings)
	if err != nil {
		return err
	}
	defer d.Close()
	keys := access.NewKeys(d.Store)
	if text, err := os.ReadFile(c.File); c.File != "" && err == nil {
		if _, err := keys.Authenticate(e.ctx, strings.TrimSpace(string(text))); !errors.Is(err, access.ErrUnauthenticated) {
			return err
		}
	}
	text, key, err := keys.Create(e.ctx, access.KeySpec{
		Name: cmp.Or(c.Name, "bootstrap"), Tenant: cmp.Or(e.tenant, access.AnyTenant), Roles: roles, CreatedBy: "bootstrap", ExpiresAt: expires,
	})
	if err != nil {
		return err
	}
	return e.handOver(api.NewKey{Key: text, APIKey: key}, c.File)
}

// handOver prints a key, or writes it into a file.
func (e *env) handOver(key api.NewKey, file string) error {
	if file == "" {
		return e.printKey(key)
	}
	if err := writeSecret(file, key.Key+"\n"); err != nil {
		return err
	}
	return e.print(key.APIKey, "key "+key.ID+" in "+file)
}

// writeSecret puts a file into the place of one of before, readable by its owner only: the owner
// of the folder where root writes into that of somebody else.
func writeSecret(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is there no more if all went well
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := giveToOwnerOf(filepath.Dir(path), f.Name()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (e *env) printKey(key api.NewKey) error {
	if !e.json {
		fmt.Fprintf(e.errs, "key %s: %s in tenant %s. Nobody can read it again; TURNPIKE_TOKEN takes it, or `turnpike login`.\n", key.ID, strings.Join(key.Roles, ", "), key.Tenant)
	}
	return e.print(key, key.Key)
}

type keysLsCmd struct{}

func (*keysLsCmd) Run(e *env) error {
	keys, err := e.client.Keys(e.ctx)
	if err != nil {
		return err
	}
	return e.print(keys, table("ID\tTENANT\tROLES\tEXPIRES\tNAME", keys, func(k api.APIKey) string {
		expires := "never"
		if !k.ExpiresAt.IsZero() {
			expires = k.ExpiresAt.Format(time.RFC3339)
		}
		return strings.Join([]string{k.ID, k.Tenant, strings.Join(k.Roles, ","), expires, k.Name}, "\t")
	}))
}

type keysRevokeCmd struct {
	ID string `arg:"" help:"Id of the key: what stands between tp_ and the next _."`
}

func (c *keysRevokeCmd) Run(e *env) error { return e.client.RevokeKey(e.ctx, c.ID) }

type tenantsCmd struct {
	Ls  tenantsLsCmd  `cmd:"" help:"List tenants and their settings."`
	Put tenantsPutCmd `cmd:"" help:"Set what a tenant may do."`
	Rm  tenantsRmCmd  `cmd:"" help:"Remove the settings of a tenant; its runs and agents stay."`
}

type tenantsLsCmd struct{}

func (*tenantsLsCmd) Run(e *env) error {
	tenants, err := e.client.Tenants(e.ctx)
	if err != nil {
		return err
	}
	return e.print(tenants, table("NAME\tFOUR EYES\tREVIEW\tSUSPENDED\tHOSTS\tMODELS\tPROGRAMS\tSECRETS", tenants, func(t api.Tenant) string {
		return fmt.Sprintf("%s\t%t\t%t\t%t\t%s\t%s\t%s\t%s", t.Name, t.FourEyes, t.Review, t.Suspended, allowed(t.Hosts), allowed(t.Models), allowed(t.MCPCommands), allowed(secretTexts(t.Secrets)))
	}))
}

type tenantsPutCmd struct {
	Name      string `arg:"" help:"Name of the tenant."`
	FourEyes  bool   `help:"Nobody approves calls of runs that they have submitted themselves."`
	Review    bool   `help:"What authors save is a draft until somebody else publishes it."`
	Suspended bool   `help:"The tenant may read and cancel, and nothing else."`

	Host       []string `help:"Only these hosts may be reached by tools and by models with a base_url, by commas: example.com, *.example.com, example.com:8443, 10.1.0.0/16; none is no host."`
	Model      []string `help:"Only these models may be used, by commas: claude-*, openai/*; none is no model."`
	MCPCommand []string `name:"mcp-command" help:"Only these programs may be started for MCP tools, by commas; none is no program."`
	Secret     []string `help:"Only these secrets may be named, by commas: NAME, or NAME=HOST for some hosts alone; none is no secret."`
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

func (c *tenantsPutCmd) Run(e *env) error {
	t, err := e.client.PutTenant(e.ctx, c.Name, api.TenantSettings{
		FourEyes: c.FourEyes, Review: c.Review, Suspended: c.Suspended,
		Hosts: listOf(c.Host), Models: listOf(c.Model), MCPCommands: listOf(c.MCPCommand), Secrets: secretsOf(listOf(c.Secret)),
	})
	if err != nil {
		return err
	}
	return e.print(t, t.Name)
}

type tenantsRmCmd struct {
	Name string `arg:"" help:"Name of the tenant."`
}

func (c *tenantsRmCmd) Run(e *env) error { return e.client.DeleteTenant(e.ctx, c.Name) }

type auditCmd struct {
	Limit int `default:"50" help:"How many entries, the newest first."`
}

func (c *auditCmd) Run(e *env) error {
	page, err := e.client.Audit(e.ctx, "", c.Limit)
	if err != nil {
		return err
	}
	return e.print(page, table("AT\tPRINCIPAL\tACTION\tTARGET", page.Items, func(a api.AuditEntry) string {
		return strings.Join([]string{a.At.Format(time.RFC3339), a.By.Principal, a.Action, a.Target}, "\t")
	}))
}

type loginCmd struct{}

// Run keeps a token for a gateway, which the other commands then send there.
func (*loginCmd) Run(e *env) error {
	if e.terminal {
		fmt.Fprintf(e.errs, "API key or token for %s: ", e.server)
	}
	line, err := bufio.NewReader(e.in).ReadString('\n')
	token := strings.TrimSpace(line)
	if token == "" {
		return fmt.Errorf("no token was given on standard input: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	who, err := e.clientOf(token).WhoAmI(e.ctx)
	if err != nil {
		return err
	}
	if err := changeTokens(func(tokens map[string]string) { tokens[e.server] = token }); err != nil {
		return err
	}
	return e.print(who, fmt.Sprintf("%s: %s in tenant %s", who.Principal, strings.Join(who.Roles, ", "), who.Tenant))
}

type logoutCmd struct{}

func (*logoutCmd) Run(e *env) error {
	return changeTokens(func(tokens map[string]string) { delete(tokens, e.server) })
}

// tokensFile has the tokens of `turnpike login` by the address of the gateway.
func tokensFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "turnpike", "tokens.json"), err
}

func readTokens() (map[string]string, error) {
	tokens := map[string]string{}
	name, err := tokensFile()
	if err != nil {
		return tokens, nil //nolint:nilerr // there is no place for a file, so there is none
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return tokens, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &tokens)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: remove it and log in again", name, err)
	}
	return tokens, nil
}

func changeTokens(change func(map[string]string)) error {
	tokens, err := readTokens()
	if err != nil {
		return err
	}
	change(tokens)
	name, err := tokensFile()
	if err != nil {
		return err
	}
	data, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	// A reader sees the file of before or of after, and nobody else sees either.
	next, err := os.CreateTemp(filepath.Dir(name), "tokens-*")
	if err != nil {
		return err
	}
	_, err = next.Write(append(data, '\n'))
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), name)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}

type whoAmICmd struct{}

func (*whoAmICmd) Run(e *env) error {
	who, err := e.client.WhoAmI(e.ctx)
	if err != nil {
		return err
	}
	return e.print(who, fmt.Sprintf("%s: %s in tenant %s", who.Principal, strings.Join(who.Roles, ", "), who.Tenant))
}
