package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/equipped"
	"github.com/turnpike-dev/turnpike/internal/app/programs"
	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/demo"
	"github.com/turnpike-dev/turnpike/internal/devaddr"
	"github.com/turnpike-dev/turnpike/internal/doctor"
	"github.com/turnpike-dev/turnpike/internal/measure"
	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/standard"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type devCmd struct {
	app.GatewayConfig
	app.WorkerConfig
	app.Log
	app.Feed
	app.Keeping
	app.Results

	DataDir    string `env:"TURNPIKE_DATA_DIR" default:".turnpike" help:"Directory of the data."`
	NATSListen string `name:"nats-listen" env:"TURNPIKE_NATS_LISTEN" default:"127.0.0.1:0" help:"Address of the embedded NATS for services; its URL is in DATA-DIR/nats.url."`
	Agents     string `env:"TURNPIKE_AGENTS" help:"Directory of agent files: read at the start, and again when one is saved."`

	AllowCommands bool `help:"Let MCP tools of agents start any program. Every client that reaches the API may define agents; --mcp-commands allows some programs only."`
}

func (c *devCmd) Run(e *env) error {
	if _, err := net.ResolveTCPAddr("tcp", c.NATSListen); err != nil && c.NATSListen != "" {
		return usagef("--nats-listen %q is not an address: write one such as 127.0.0.1:4222", c.NATSListen)
	}
	settings, err := c.Worker()
	if err != nil {
		return err
	}
	secrets, err := app.HookSecrets(c.SecretsDir)
	if err != nil {
		return err
	}
	password, err := devPassword(c.DataDir)
	if err != nil {
		return err
	}
	server, lost, err := c.startNATS(password)
	if err != nil {
		return err
	}
	defer server.Close()
	certificate, err := c.Certificate(e.ctx, c.Log.Logger())
	if err != nil {
		return err
	}
	// Listen first, so that a second process fails before it has changed anything.
	listener, err := app.Listen(c.Addr)
	if err != nil {
		return err
	}
	if err := c.Guard(listener.Addr(), c.Log.Logger()); err != nil {
		return err
	}
	if err := writeSecret(filepath.Join(c.DataDir, "nats.url"), server.URL()+"\n"); err != nil {
		return err
	}
	defer os.Remove(filepath.Join(c.DataDir, "nats.url")) //nolint:errcheck // a stale file is harmless
	address := certificate.Scheme() + "://" + listener.Addr().String()
	if err := writeSecret(filepath.Join(c.DataDir, addressFile), address+"\n"); err != nil {
		return err
	}
	defer os.Remove(filepath.Join(c.DataDir, addressFile)) //nolint:errcheck // a stale file is harmless
	nc, err := server.Conn("turnpike dev")
	if err != nil {
		return err
	}
	defer nc.Close()
	registry := prometheus.NewRegistry()
	d, err := app.Open(e.ctx, app.Config{Log: c.Log, Feed: c.Feed, Keeping: c.Keeping, Results: c.Results}, nc, "turnpike", registry)
	if err != nil {
		return err
	}
	defer d.Close()
	finder := doctor.Finder(nc, "turnpike", d.Store, c.SecretsDir)
	agents := folder{dir: c.Agents, tenant: e.tenantOr(state.DefaultTenant), store: d.Store, out: e.errs, finder: finder}
	if err := agents.define(e.ctx); err != nil {
		return err
	}
	if c.AllowCommands {
		c.MCPCommands = append(c.MCPCommands, "*")
	}
	if c.ModelAllow == nil {
		c.ModelAllow = []string{"127.0.0.0/8", "::1/128"} // Ollama, vLLM, mock-model
	}
	w, err := equipped.Worker(d, settings, standard.Config{HTTPAllow: c.HTTPAllow, ModelAllow: c.ModelAllow, MCPCommands: c.MCPCommands, Confinement: programs.Dev(c.Programs, c.DataDir, c.SecretsDir)}, c.MockResponses)
	if err != nil {
		return err
	}
	api, err := c.Gateway(d, e.tenantOr(state.DefaultTenant))
	if err != nil {
		return err
	}
	if c.MockResponses != "" {
		finder.Key = nil // no provider is called
	}
	api.HookSecret, api.Services, api.Key, api.Secret = secrets, finder.Services, finder.Key, finder.Secret
	g, err := d.NewGateway(api)
	if err != nil {
		return err
	}
	if err := c.welcome(e, d.Store, address, server.Address(), moved(lost)); err != nil {
		return err
	}
	defer context.AfterFunc(e.ctx, func() {
		fmt.Fprintf(e.errs, "\nstopping: turns in flight have %s to finish, and the next turnpike dev continues the others. Press Ctrl-C again to stop at once.\n", c.ShutdownGrace)
	})()
	admin := app.Admin{Addr: c.MetricsAddr, Hosts: c.Hosts, Certificate: certificate, Registry: registry, Ready: w.Ready, Log: d.Config().Logger}
	group, ctx := errgroup.WithContext(e.ctx)
	group.Go(func() error { return w.Run(ctx) })
	group.Go(func() error { return g.Serve(ctx, certificate.Wrap(listener)) })
	group.Go(func() error { return admin.Serve(ctx) })
	group.Go(func() error { return agents.watch(ctx) })
	err = group.Wait()
	if err == nil {
		fmt.Fprintf(e.errs, "stopped. The data is in %s; turnpike dev continues with it.\n", c.DataDir)
	}
	return err
}

// devPassword returns the password of the NATS server of a data directory. It stays the same, so that services can
// reconnect after a restart.
func devPassword(dir string) (string, error) {
	path := filepath.Join(dir, "nats.password")
	data, err := os.ReadFile(path)
	if password := strings.TrimSpace(string(data)); password != "" {
		return password, os.Chmod(path, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create data directory: %w: set --data-dir to a directory that this user may write to", err)
	}
	password := rand.Text()
	return password, writeSecret(path, password+"\n")
}

// addressFile is the file in the data directory to which dev writes the address of its API.
const addressFile = "api.url"

// runningDev returns the address of the `turnpike dev` that was started in this directory, or "" if none is running.
func runningDev() string {
	text, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("TURNPIKE_DATA_DIR"), ".turnpike"), addressFile))
	if err != nil {
		return ""
	}
	address := strings.TrimSpace(string(text))
	// Another user may have planted the file. Accept only a loopback address, because requests
	// carry tokens.
	_, hostPort, _ := strings.Cut(address, "://")
	host, err := netip.ParseAddrPort(hostPort)
	if err != nil || !host.Addr().IsLoopback() {
		return ""
	}
	// A dev that was killed leaves its address behind.
	conn, err := net.DialTimeout("tcp", hostPort, time.Second)
	if err != nil {
		return ""
	}
	_ = conn.Close()
	return address
}

// welcome prints the addresses of the parts of the deployment.
func (c *devCmd) welcome(e *env, store state.Agents, url, nats, moved string) error {
	names, err := store.AgentNames(e.ctx, e.tenantOr(state.DefaultTenant))
	if err != nil {
		return err
	}
	agents := "none yet: create one with turnpike init, or with turnpike agents put FILE"
	if len(names) > 0 {
		const most = 8
		agents = strings.Join(names[:min(most, len(names))], ", ")
		if more := len(names) - most; more > 0 {
			agents += fmt.Sprintf(" and %d more", more)
		}
	}
	if c.Agents != "" {
		agents += fmt.Sprintf("  (%s is read again when a file is saved)", c.Agents)
	}
	_, err = fmt.Fprintf(e.errs, "turnpike dev: %[1]s\n  page    %[1]s/ui/\n  API     %[1]s/v1/\n  NATS    %[2]s (%[3]s/nats.url has the password)\n%[5]s  data    %[3]s\n  agents  %[4]s\n", url, nats, c.DataDir, agents, moved)
	return err
}

type demoCmd struct{}

func (*demoCmd) Run(e *env) error {
	return demo.Run(e.ctx, &watch.Printer{Out: e.out, Terminal: e.terminal})
}

type demoWorkerCmd struct {
	URL    string `arg:""`
	ID     string `arg:""`
	Ledger string `arg:""`
}

func (c *demoWorkerCmd) Run(e *env) error { return demo.Worker(e.ctx, c.URL, c.ID, c.Ledger) }

type doctorCmd struct {
	app.Config

	SecretsDir string `env:"TURNPIKE_SECRETS_DIR" help:"Directory with one file per secret, as workers have it: doctor warns of secrets that agents name and that are not declared."`

	Programs app.Programs `embed:""`
}

// devNATS returns what devaddr.Dev returns: the URL of the NATS server of a running `turnpike dev`, or "". It also
// returns "" if the configuration names a NATS server.
func devNATS(c app.Config) string {
	if os.Getenv("TURNPIKE_NATS_URL") != "" || c.NATSURL != nats.DefaultURL {
		return ""
	}
	return devaddr.Dev()
}

func (c *doctorCmd) Run(e *env) error {
	var findings []state.Finding
	settings := c.Deployment()
	app.QuietRedis(settings.Logger)
	confinement := programs.Config(c.Programs)
	if dev := devNATS(c.Config); dev != "" {
		confinement = programs.Dev(c.Programs, "")
		settings.NATSURL, settings.RedisURL, settings.RedisConfirm, settings.RedisLogin, settings.Prefix = dev, "", "", app.RedisLogin{}.Login(), "turnpike"
		findings = append(findings, state.Finding{
			Name: "turnpike dev", OK: true, Detail: "runs in this directory, with its own NATS and store; to check another deployment, set TURNPIKE_NATS_URL",
		})
	}
	findings = append(findings, app.VariableFindings(os.Environ())...)
	findings = append(findings, doctor.Findings(e.ctx, settings, c.SecretsDir)...)
	findings = append(findings, programs.Finding(confinement))
	findings = append(findings, e.gatewayFinding())
	text := table("CHECK\tFOUND", findings, func(f state.Finding) string {
		mark := "ok  "
		if !f.OK && (f.Fatal || f.Broken) {
			mark = "FAIL"
		} else if !f.OK {
			mark = "warn"
		}
		row := fmt.Sprintf("%s %s\t%s", mark, f.Name, f.Detail)
		if f.Remedy != "" {
			row += "\n     \t  " + f.Remedy
		}
		return row
	})
	if err := e.print(findings, text+"\n\n"+summary(findings)); err != nil {
		return err
	}
	if check.Failed(findings) {
		return exitError(1)
	}
	return nil
}

// readyPatience is the time within which doctor expects the gateway's answer. The gateway itself needs at most 3 s.
const readyPatience = 10 * time.Second

// gatewayFinding reports whether a gateway responds.
func (e *env) gatewayFinding() state.Finding {
	patience := cmp.Or(e.readyPatience, readyPatience)
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	f := state.Finding{Name: "gateway: " + e.server, OK: true, Broken: true, Detail: "ready"}
	ready, err := e.client.Readiness(ctx)
	switch {
	case err != nil && e.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		f.OK, f.Detail = false, fmt.Sprintf("no answer to GET /readyz within %s", patience)
		f.Remedy = "look at the gateway's process and log, and restart it: it may be stopped or overloaded, or the network may drop the packets"
	case err != nil:
		f.OK, f.Detail, f.Remedy = false, explain(err, e.server), "check that a gateway runs at this URL, or give its URL with --server"
	case ready.Status != "ok":
		f.OK = false
		f.Detail, f.Remedy = unready(ready)
	}
	return f
}

// unready says what a gateway lacks, and what to do about it.
func unready(ready api.Readiness) (detail, remedy string) {
	fatal := slices.DeleteFunc(slices.Clone(ready.Findings), func(f state.Finding) bool { return f.OK || !f.Fatal })
	detail = fmt.Sprintf("%s: bus %s, store %s", ready.Status, ready.Bus, ready.Store)
	switch {
	case ready.Bus != "ok" || ready.Store != "ok":
		remedy = "repair the dependency named here; the gateway's log has the error"
	case restoring(ready):
		detail = fmt.Sprintf("%s: waits for the decision about an older copy of the store: %s", ready.Status, ready.Restore)
		remedy = "run `turnpike restore status`, then accept or abandon: docs/how-to/restore-the-store.md"
	case len(fatal) > 0:
		detail = fmt.Sprintf("%s: %s: %s", ready.Status, fatal[0].Name, fatal[0].Detail)
		remedy = "repair what this check names: " + cmp.Or(fatal[0].Remedy, "the gateway's log has the error")
	case ready.Status == "draining":
		remedy = "the gateway stops: start another one if none replaces it"
	default:
		remedy = "the gateway's log has the error"
	}
	return detail, remedy
}

// restoring reports whether the deployment of a gateway waits for the decision about an older copy of its store.
func restoring(ready api.Readiness) bool { return ready.Restore != "ok" && ready.Restore != "" }

// summary returns a text with the number of findings, which names those that need attention.
func summary(findings []state.Finding) string {
	var ok int
	var warnings, failures []string
	for _, f := range findings {
		switch {
		case f.OK:
			ok++
		case f.Fatal || f.Broken:
			failures = append(failures, f.Name)
		default:
			warnings = append(warnings, f.Name)
		}
	}
	text := fmt.Sprintf("%d ok", ok)
	for _, group := range []struct {
		word  string
		names []string
	}{{"failure", failures}, {"warning", warnings}} {
		if n := len(group.names); n > 0 {
			word := group.word
			if n > 1 {
				word += "s"
			}
			text += fmt.Sprintf(", %d %s: %s", n, word, strings.Join(group.names, ", "))
		}
	}
	return text
}

type mockModelCmd struct {
	Addr          string `default:"127.0.0.1:7080" help:"Address to listen at."`
	Script        string `help:"Script file, YAML or JSON; see docs/reference/mock-model.md."`
	Conversations string `help:"Recorded conversations, one JSON object per line, served to models named …/ID."`
	Play          string `help:"Recorded answer, or a folder of them, sent byte for byte; see docs/reference/mock-model.md." placeholder:"FILE"`

	CacheMinute time.Duration `help:"Length of a minute of the prompt cache: with 1s, entries of five minutes last five seconds. Default: a minute." placeholder:"DURATION"`
}

func (c *mockModelCmd) Run(e *env) error {
	var cfg mockmodel.Config
	var err error
	if c.Script != "" {
		if cfg, err = mockmodel.Load(c.Script); err != nil {
			return named(err)
		}
	}
	if c.Conversations != "" {
		list, err := mockmodel.LoadConversations(c.Conversations)
		if err != nil {
			return named(err)
		}
		cfg.Conversations = append(cfg.Conversations, list...)
	}
	if c.Play != "" {
		cfg.Play = c.Play
	}
	if c.CacheMinute != 0 {
		cfg.CacheMinute = model.Duration(c.CacheMinute)
	}
	handler, err := mockmodel.New(cfg)
	if err != nil {
		return named(err)
	}
	listener, err := app.Listen(c.Addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { <-e.ctx.Done(); _ = server.Close() }()
	fmt.Fprintf(os.Stderr, "mock-model at http://%s/v1\n", listener.Addr())
	if len(cfg.Scripts)+len(cfg.Conversations) == 0 && cfg.Play == "" {
		fmt.Fprintln(os.Stderr, "mock-model has no responses, so each request to it fails: start it with --script, --conversations or --play.")
	}
	if err := server.Serve(listener); e.ctx.Err() == nil {
		return err
	}
	return nil
}

type benchCmd struct{ measure.Config }

func (c *benchCmd) Run(e *env) error {
	if err := c.Check(); err != nil {
		return usagef("--only: %w", err)
	}
	report, err := measure.Run(e.ctx, c.Config, os.Stderr)
	if err := errors.Join(e.print(report, report.String()), err); err != nil {
		return err
	}
	if report.Failed() {
		return exitError(1)
	}
	return nil
}
