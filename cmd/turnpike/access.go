package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Create an API key and print it, once."`
	Ls     keysLsCmd     `cmd:"" help:"List API keys, without their secrets."`
	Revoke keysRevokeCmd `cmd:"" help:"Have every gateway refuse a key, within five seconds."`
}

type keysCreateCmd struct {
	Name      string   `help:"Purpose of the key."`
	Role      []string `help:"Roles, separated by commas: viewer, submitter, approver, author, operator, admin, issuer."`
	Expires   lifetime `help:"Lifetime of the key, such as 30d or 12h; default no expiry."`
	File      string   `type:"path" help:"Write the key into this file, which only its owner can read, rather than print it. With --bootstrap, a file with a valid key stays unchanged."`
	Bootstrap bool     `help:"Write the key into the store, without a gateway: the first key of a deployment, with the role admin."`

	Config app.Config `embed:"" group:"With --bootstrap"`
}

// lifetime is a positive duration, also in days, as of an API key or a token.
type lifetime time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lifetime) UnmarshalText(text []byte) error {
	d, err := agent.ParseDuration(string(text))
	if err == nil && d <= 0 {
		err = fmt.Errorf("the duration %q is not longer than 0: write a longer one, such as 30d, 72h or 90m", text)
	}
	*l = lifetime(d)
	return err
}

func (c *keysCreateCmd) Run(e *env) error {
	var expires state.Time
	if c.Expires > 0 {
		expires = state.At(time.Now().Add(time.Duration(c.Expires)))
	}
	if c.Bootstrap {
		return c.bootstrap(e, expires)
	}
	if len(c.Role) == 0 {
		return usagef("--role is missing: give one or more of viewer, submitter, approver, author, operator, admin, issuer, separated by commas")
	}
	key, err := e.client.CreateKey(e.ctx, api.KeyRequest{Name: c.Name, Tenant: e.tenant, Roles: c.Role, ExpiresAt: expires})
	if err != nil {
		return err
	}
	return e.handOver(key, c.File)
}

// bootstrap makes an API key in the store, without a gateway: the first key of a deployment. It does nothing if the key
// in c.File is valid.
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
		settings.NATSURL, settings.RedisURL, settings.RedisConfirm, settings.RedisLogin = dev, "", "", app.RedisLogin{}.Login()
	}
	app.QuietRedis(settings.Logger)
	d, err := deploy.Open(e.ctx, settings)
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

// handOver prints a key, or writes the key to a file.
func (e *env) handOver(key api.NewKey, file string) error {
	if file == "" {
		return e.printKey(key)
	}
	if err := writeSecret(file, key.Key+"\n"); err != nil {
		return err
	}
	return e.print(key.APIKey, "key "+key.ID+" in "+file)
}

// writeSecret replaces a file with one that only its owner can read. If this process runs as root, the owner of the
// directory owns the file.
func writeSecret(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it no longer exists after a success
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
		fmt.Fprintf(e.errs, "created API key %s with the roles %s in tenant %s. The key is shown only once: store it, then set TURNPIKE_TOKEN to it, or pass it to `turnpike login`.\n", key.ID, strings.Join(key.Roles, ", "), key.Tenant)
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
	ID string `arg:"" help:"Id of the key: the part between tp_ and the next _."`
}

func (c *keysRevokeCmd) Run(e *env) error {
	if err := e.client.RevokeKey(e.ctx, c.ID); err != nil {
		return err
	}
	return e.print(map[string]string{"revoked": c.ID}, "revoked "+c.ID)
}

type auditCmd struct {
	Limit int `default:"50" help:"Maximum number of entries, the newest first."`
}

func (c *auditCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.AuditEntry], error) {
		return e.client.Audit(e.ctx, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("AT\tPRINCIPAL\tACTION\tTARGET", page.Items, func(a api.AuditEntry) string {
		if a.Outcome != "" {
			a.Target += "  (outcome " + a.Outcome + ")"
		}
		return strings.Join([]string{a.At.Format(time.RFC3339), a.By.Principal, a.Action, a.Target}, "\t")
	}))
}

type loginCmd struct{}

// Run stores a token for a gateway, which the other commands then use for that gateway.
func (*loginCmd) Run(e *env) error {
	token, err := readToken(e)
	if token == "" {
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("standard input cannot be read: %w: paste an API key or a token, or pipe it in", err)
		}
		return errors.New("standard input has no token: paste an API key or a token, or pipe it in")
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

// readToken reads a line from standard input, without echo on a terminal.
func readToken(e *env) (string, error) {
	f, ok := e.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := bufio.NewReader(e.in).ReadString('\n')
		return strings.TrimSpace(line), err
	}
	before, err := term.GetState(int(f.Fd()))
	if err != nil {
		return "", err
	}
	// If the user interrupts the prompt, restore the terminal.
	stop := context.AfterFunc(e.ctx, func() {
		_ = term.Restore(int(f.Fd()), before)
		fmt.Fprintln(e.errs)
		os.Exit(130)
	})
	defer stop()
	fmt.Fprintf(e.errs, "API key or token for %s (your input is not shown): ", e.server)
	line, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(e.errs)
	return strings.TrimSpace(string(line)), err
}

type logoutCmd struct{}

func (*logoutCmd) Run(e *env) error {
	if err := changeTokens(func(tokens map[string]string) { delete(tokens, e.server) }); err != nil {
		return err
	}
	return e.print(map[string]string{"logged_out": e.server}, "logged out of "+e.server)
}

// tokensFile returns the path of the file in which `turnpike login` stores tokens by the address of the gateway.
func tokensFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "turnpike", "tokens.json"), err
}

func readTokens() (map[string]string, error) {
	tokens := map[string]string{}
	name, err := tokensFile()
	if err != nil {
		return tokens, nil //nolint:nilerr // without a directory for the file, there are no tokens
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return tokens, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the tokens of turnpike login cannot be read: %w: make the file readable for this user, or delete it and log in to each gateway again", err)
	}
	if err := json.Unmarshal(data, &tokens); err != nil {
		return nil, fmt.Errorf("%s, the file of turnpike login, is not valid (%w): delete it, and log in to each gateway again", name, err)
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
	// A reader gets either the old or the new file, and only the user can read both.
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
