// Command turnpike runs LLM agents as events on a queue. It is a whole deployment in one process, for development, and
// the client of any other deployment.
package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/build"
	"github.com/turnpike-dev/turnpike/internal/measure"
	"github.com/turnpike-dev/turnpike/internal/notice"
	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// cli is the command line.
type cli struct {
	Print kong.VersionFlag `group:"global" name:"version" help:"Print the version and exit."`

	Server string `group:"global" env:"TURNPIKE_URL" help:"Address of the gateway; default that of the turnpike dev running in this directory, else http://127.0.0.1:7070."`
	Token  string `group:"global" env:"TURNPIKE_TOKEN" help:"API key, or token of the OpenID provider; default that of turnpike login."`
	Tenant string `group:"global" env:"TURNPIKE_TENANT" help:"Tenant of the requests, for callers with a role in several tenants."`
	CAFile string `group:"global" name:"ca-file" env:"TURNPIKE_CA_FILE" type:"path" help:"PEM file with trusted certificate authorities; default the system's." placeholder:"FILE"`
	Output string `group:"global" short:"o" enum:"text,json" default:"text" help:"Output format: ${enum}."`

	Init       initCmd       `cmd:"" group:"start" help:"Write a first agent and a tool into a folder."`
	Dev        devCmd        `cmd:"" group:"start" help:"Run a whole deployment in one process, durable on disk."`
	Open       openCmd       `cmd:"" group:"start" help:"Open the page, at a run if one is named."`
	Demo       demoCmd       `cmd:"" group:"start" help:"Show a run that survives the death of its worker."`
	Completion completionCmd `cmd:"" group:"start" help:"Print the shell completion script: eval \"$(turnpike completion bash)\"."`
	Complete   completeCmd   `cmd:"" hidden:""`

	Run    runCmd    `cmd:"" group:"runs" help:"Submit a run and follow it; exits 0 only if it completes."`
	Submit submitCmd `cmd:"" group:"runs" help:"Submit a run and print its id."`
	Batch  batchCmd  `cmd:"" group:"runs" help:"Submit many runs at once, and show their progress."`
	Ps     psCmd     `cmd:"" group:"runs" help:"List runs."`
	Show   showCmd   `cmd:"" group:"runs" help:"Show a run: its status, turns and messages."`
	Watch  watchCmd  `cmd:"" group:"runs" help:"Follow a run's events."`
	Cancel cancelCmd `cmd:"" group:"runs" help:"Abort a run."`
	Fork   forkCmd   `cmd:"" group:"runs" help:"Start a run that shares the history of another up to a turn."`
	Delete deleteCmd `cmd:"" group:"runs" help:"Delete a run that has ended, with its descendants."`
	GC     gcCmd     `cmd:"" group:"runs" name:"gc" help:"Delete runs that ended long ago."`

	Approve approveCmd `cmd:"" group:"signals" help:"Approve a tool call that waits for approval."`
	Deny    denyCmd    `cmd:"" group:"signals" help:"Deny a tool call that waits for approval."`
	Answer  answerCmd  `cmd:"" group:"signals" help:"Answer a question that a run asks."`
	Result  resultCmd  `cmd:"" group:"signals" help:"Send the result of a tool call that a run waits for."`
	Message messageCmd `cmd:"" group:"signals" help:"Send a user message: steer a run, or continue a finished one."`

	Agents    agentsCmd    `cmd:"" group:"agents" help:"Define, list and remove agents."`
	Files     filesCmd     `cmd:"" group:"agents" help:"Upload, list, download and delete files that models read."`
	Memory    memoryCmd    `cmd:"" group:"agents" help:"Read and change the files that agents keep for later runs."`
	Schedules schedulesCmd `cmd:"" group:"agents" help:"Start runs at fixed times."`
	Hooks     hooksCmd     `cmd:"" group:"agents" help:"Define addresses at which other systems deliver webhooks."`
	Triggers  triggersCmd  `cmd:"" group:"agents" help:"Define streams of NATS whose messages start runs."`
	Eval      evalCmd      `cmd:"" group:"agents" help:"Run cases against one or two versions of an agent and compare them."`
	Tools     toolsCmd     `cmd:"" group:"agents" help:"Find and call the tools that NATS services offer."`
	MCP       mcpCmd       `cmd:"" group:"agents" name:"mcp" help:"Inspect MCP servers."`

	Doctor   doctorCmd   `cmd:"" group:"operation" help:"Check every dependency and report problems."`
	Workers  workersCmd  `cmd:"" group:"operation" help:"List the workers of the deployment and the runs they execute."`
	Stats    statsCmd    `cmd:"" group:"operation" help:"Show runs, failures, latency, tokens and cost over time."`
	Dead     deadCmd     `cmd:"" group:"operation" help:"Inspect and replay dead letters."`
	Webhooks webhooksCmd `cmd:"" group:"operation" help:"List and replay events that could not be delivered, and send test events."`
	Restore  restoreCmd  `cmd:"" group:"operation" help:"Decide about an older copy of the store that was restored."`
	Secrets  secretsCmd  `cmd:"" group:"operation" help:"Create the users of NATS and Redis and their secrets, for a new deployment."`
	NATS     natsCmd     `cmd:"" group:"operation" name:"nats" help:"Print the permissions of NATS users, by role."`
	Redis    redisCmd    `cmd:"" group:"operation" help:"Print the permissions of Redis users, by role."`

	Login   loginCmd   `cmd:"" group:"access" help:"Store an API key or token, read from standard input, for this gateway."`
	Logout  logoutCmd  `cmd:"" group:"access" help:"Delete the stored API key or token."`
	Whoami  whoAmICmd  `cmd:"" group:"access" help:"Show the identity that the gateway assigns to you."`
	Keys    keysCmd    `cmd:"" group:"access" help:"Create, list and revoke API keys."`
	Tokens  tokensCmd  `cmd:"" group:"access" help:"Issue tokens to end users, and rotate the keys that sign them."`
	Tenants tenantsCmd `cmd:"" group:"access" help:"List tenants and change their settings."`
	Audit   auditCmd   `cmd:"" group:"access" help:"Show the audit of a tenant."`

	MockModel  mockModelCmd  `cmd:"" group:"others" help:"Run a scriptable model server with the providers' wire formats."`
	Bench      benchCmd      `cmd:"" group:"others" help:"Benchmark deployments against a baseline that does only the minimum work on the same servers."`
	Version    versionCmd    `cmd:"" group:"others" help:"Print the version."`
	Licenses   licensesCmd   `cmd:"" group:"others" help:"Print the licences of everything that the binaries contain."`
	DemoWorker demoWorkerCmd `cmd:"" hidden:""`
}

// groups are the groups of commands in the help text, in this order.
var groups = []kong.Group{
	{Key: "start", Title: "Start here:"},
	{Key: "runs", Title: "Runs:"},
	{Key: "signals", Title: "Runs that wait:"},
	{Key: "agents", Title: "Agents and tools:"},
	{Key: "operation", Title: "Operation:"},
	{Key: "access", Title: "Access:"},
	{Key: "others", Title: "Others:"},
	{Key: "global", Title: "Flags of every command:"},
}

// env has what all commands need. It has many fields because each command uses only some of them.
type env struct {
	ctx      context.Context //nolint:containedctx // the context of this one invocation
	client   *api.Client
	server   string
	tenant   string // the tenant that the user names, or empty
	in       io.Reader
	stdin    []byte // what was read from in as a file
	out      io.Writer
	content  io.Writer // out for the content of a file: unchanged, except on a terminal
	errs     io.Writer // gets messages that are not output
	json     bool
	terminal bool
	colour   bool // colour lines by their meaning

	idleHint time.Duration // after which a hint says that no worker has taken the followed run

	readyPatience time.Duration // if not 0, in place of the constant

	options []api.Option // options of all clients
	http    *http.Client // of all clients
}

// clientOf returns a client of the gateway that authenticates with a token.
func (e *env) clientOf(token string) *api.Client {
	return api.NewWithHTTP(e.server, e.http, append(slices.Clip(e.options), api.WithToken(token))...)
}

// authorities reads the certificates of a PEM file.
func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("TURNPIKE_CA_FILE or --ca-file: name a file that can be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, usagef("TURNPIKE_CA_FILE or --ca-file: %s has no certificate in PEM: give the file of a certificate authority", file)
	}
	return pool, nil
}

// requestTenant returns the tenant that requests of a command name when the user names tenant. A request cannot name
// the whole deployment, *, but requests about keys mean it if they name no tenant.
func requestTenant(command, tenant string) string {
	if tenant == access.AnyTenant && strings.HasPrefix(command, "keys ") {
		return ""
	}
	return tenant
}

// tenantOr returns the tenant that the user names, or other.
func (e *env) tenantOr(other string) string { return cmp.Or(e.tenant, other) }

// exitError is an error that ends the process with that exit code and prints no message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	if measure.Child() {
		return
	}
	var c cli
	k := app.Parse(&c, "turnpike", "Runs LLM agents as events on a queue.", kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.ExplicitGroups(groups), withExamples, kong.Vars{"version": "turnpike " + version()})
	c.Server = cmp.Or(api.Address(c.Server), runningDev(), api.DefaultURL)
	token := c.Token
	if token == "" {
		tokens, err := readTokens()
		if err != nil {
			fmt.Fprintln(os.Stderr, "turnpike:", err)
			os.Exit(1)
		}
		token = tokens[c.Server]
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	e := newEnv(os.Stdout, os.Stderr, c.Output == "json", term.IsTerminal(int(os.Stdout.Fd())))
	e.ctx, e.in = ctx, os.Stdin
	e.colour = e.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	e.server, e.tenant, e.options = c.Server, c.Tenant, []api.Option{api.WithTenant(requestTenant(k.Command(), c.Tenant))}
	var trusted *x509.CertPool
	if c.CAFile != "" {
		var err error
		if trusted, err = authorities(c.CAFile); err != nil {
			os.Exit(app.Fail(e.errs, k, err, err.Error()))
		}
	}
	e.http.Transport = newTransport(trusted, 0)
	e.client = e.clientOf(token)
	err := completeIDs(e, k)
	if err == nil {
		err = k.Run(e)
	}
	stop()
	if code, ok := errors.AsType[exitError](err); ok {
		os.Exit(int(code))
	}
	if errors.Is(err, api.ErrURL) {
		err = usagef("%w", err)
	}
	if err != nil {
		os.Exit(app.Fail(e.errs, k, err, explain(err, c.Server)))
	}
}

// newEnv returns an env that writes to out and errs. terminal reports that out is a terminal. It removes all control
// sequences from text for people, because models and callers may have written them. JSON is escaped for a terminal, and
// unchanged otherwise. The content of a file is plain text on a terminal, and unchanged otherwise.
func newEnv(out, errs io.Writer, json, terminal bool) *env {
	content := out
	if terminal {
		content = watch.Plain(out)
	}
	switch {
	case !json:
		out = watch.Plain(out)
	case terminal:
		out = watch.EscapedJSON(out)
	}
	return &env{ctx: context.Background(), http: &http.Client{}, out: out, content: content, errs: watch.Plain(errs), json: json, terminal: terminal, idleHint: 5 * time.Second}
}

// explain returns the text of err, with what to do about it. The API's own errors name requests; explain names commands
// instead.
func explain(err error, server string) string {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Sprintf("no gateway listens at %s: start `turnpike dev`, run this command in the directory in which it was started, or give a gateway's URL with --server", server)
	}
	if request, ok := errors.AsType[*url.Error](err); ok && (errors.Is(request, syscall.ECONNRESET) || errors.Is(request, io.EOF)) {
		return fmt.Sprintf("the gateway at %s closed the connection: retry, and read its log if that fails again", server)
	}
	if errors.Is(err, errSilent) {
		return fmt.Sprintf("the gateway at %s accepts connections and sends no response: its process may be stopped or overloaded; look at it with `turnpike doctor`, and restart it", server)
	}
	text := err.Error()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return text
	}
	text = strings.TrimRight(inRequests.ReplaceAllString(text, ""), " ")
	switch p.Code {
	case api.CodeUnauthenticated:
		text, _, _ = strings.Cut(text, ": send an API key or a token in one header")
		return text + ": log in with `turnpike login`, or give an API key or a token in TURNPIKE_TOKEN or --token"
	case api.CodeAgentNotFound:
		if m, ok := errors.AsType[*misspeltError](err); ok && m.meant != "" {
			return text + fmt.Sprintf(", did you mean %q? List all agents with `turnpike agents`", m.meant)
		}
		return text + ": create it with `turnpike agents put FILE`, or list all agents with `turnpike agents`, and the versions of one with `turnpike agents versions`"
	case api.CodeRunNotFound:
		return text + ": list the runs with `turnpike ps`"
	case api.CodeLetterNotFound:
		return text + ": list them with `turnpike dead ls`"
	case api.CodeInternal:
		return text + " (request " + p.RequestID + ")"
	default:
		text = err.Error()
		for _, c := range commands {
			text = c.request.ReplaceAllString(text, c.command)
		}
		return strings.TrimRight(inRequests.ReplaceAllString(text, ""), " ")
	}
}

// commands are the commands that do what the API's errors name requests for.
var commands = []struct {
	request *regexp.Regexp
	command string
}{
	{regexp.MustCompile(`\bin the header Turnpike-Tenant$`), "with --tenant"},
	{regexp.MustCompile(`\bGET /v1/runs/(\w+)/messages\b`), "`turnpike watch $1 -o json`"},
	{regexp.MustCompile(`\bGET /v1/runs\?batch=(\w+)`), "`turnpike ps --batch $1`"},
	{regexp.MustCompile(`\bGET /v1/agents/([\w-]+)/versions\b`), "`turnpike agents versions $1`"},
	{regexp.MustCompile(`\bGET /v1/agents\?status=draft$`), "`turnpike agents drafts`"},
	{regexp.MustCompile(`\bGET /v1/(hooks|schedules|triggers|tenants|keys|files)$`), "`turnpike $1 ls`"},
	{regexp.MustCompile(`\bGET /v1/evaluations$`), "`turnpike eval ls`"},
	{regexp.MustCompile(`\bGET /v1/memory:scopes$`), "`turnpike memory ls`"},
	{regexp.MustCompile(`\bGET /v1/memory\?scope=$`), "`turnpike memory ls --scope SCOPE`"},
	{regexp.MustCompile(`\bGET /v1/dead$`), "`turnpike dead ls`"},
}

// inRequests matches the part of an API error that names a request.
var inRequests = regexp.MustCompile(`: [^:]*\b(?:GET|PUT|POST|DELETE) /v1/\S+$`)

type versionCmd struct{}

func (*versionCmd) Run(e *env) error {
	return e.print(map[string]string{"version": version()}, "turnpike "+version())
}

type licensesCmd struct{}

func (*licensesCmd) Run(e *env) error {
	return e.print(map[string]string{"third_party": notice.ThirdParty}, "Turnpike is under the Apache License 2.0.\n"+strings.TrimSuffix(notice.ThirdParty, "\n"))
}

func version() string { return build.Version() + " " + build.GoVersion() }
