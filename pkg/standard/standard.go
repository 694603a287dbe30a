package standard

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/hook/natshook"
	"github.com/turnpike-dev/turnpike/internal/tool/a2atool"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/tool/httptool"
	"github.com/turnpike-dev/turnpike/internal/tool/mcptool"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Config says what the standard set may do. The zero value is safe: tools and models reach
// public addresses only, and start no programs.
type Config struct {
	// NATS is the connection of the kinds of tool and hook that services answer over NATS.
	// Default: agents cannot use these kinds.
	NATS *nats.Conn

	// Prefix begins the subjects of those services: Options.Prefix of the deployment. Default "turnpike".
	Prefix string

	// HTTPAllow lists non-public addresses that HTTP tools, MCP servers and remote agents may
	// reach: host:port, or networks such as 10.1.0.0/16.
	HTTPAllow []string

	// ModelAllow lists further ones that the base_url of models may name, in addition to those of
	// HTTPAllow.
	ModelAllow []string

	// MCPCommands lists the programs that MCP tools may start in the worker; "*" is any.
	MCPCommands []string

	Confinement Confinement
}

// Confinement says what the programs of MCP tools may do. The zero value confines them as much as
// the system can, and gives them no network.
type Confinement struct {
	// Mode is auto, namespaces, landlock or off. Default auto: the first of namespaces and landlock
	// that the system has; programs are refused where it has neither.
	Mode string

	Network     []string // programs that have the network of this process; "*" is any
	Read, Write []string // paths in addition to the system's own
	Withheld    []string // paths that no program sees, even below one that it may read

	// Home is the home directory of programs. It is created if it is missing, and stays. Default:
	// a temporary directory.
	Home string

	Memory int64 // of one program, in bytes; default 512 MiB
}

// Set is the standard set, for the fields of the same names in turnpike.Options.
type Set struct {
	Models    map[string]model.Provider
	Kinds     tool.Kinds
	HookKinds hook.Kinds

	// WebhookClient sends events to webhooks, to the same addresses as tools reach.
	WebhookClient *http.Client

	servers *mcptool.Caller
	report  confine.Report
}

// New returns the standard set. Close ends what it starts.
func New(cfg Config) (*Set, error) {
	guard, err := guard.New(cfg.HTTPAllow)
	if err != nil {
		return nil, fmt.Errorf("TURNPIKE_HTTP_ALLOW (in Go, Config.HTTPAllow): %w", err)
	}
	models, err := Providers(slices.Concat(cfg.HTTPAllow, cfg.ModelAllow)...)
	if err != nil {
		return nil, err
	}
	confinement, err := confine.New(confine.Config(cfg.Confinement))
	if err != nil {
		return nil, err
	}
	s := &Set{Models: models, WebhookClient: guard.Client(), servers: mcptool.New(guard, mcptool.Config{Commands: cfg.MCPCommands, Confinement: confinement}), report: confinement.Report()}
	s.Kinds = tool.Kinds{toolspec.HTTP: httptool.New(guard), toolspec.A2A: a2atool.New(guard.Client()), toolspec.MCP: s.servers}
	if cfg.NATS != nil {
		prefix := cmp.Or(cfg.Prefix, "turnpike")
		s.Kinds[toolspec.NATS] = natstool.NewKind(cfg.NATS, prefix)
		s.HookKinds = hook.Kinds{hookspec.NATS: natshook.Kind(cfg.NATS, prefix)}
	}
	return s, nil
}

// Close ends the sessions with MCP servers and the programs that serve them.
func (s *Set) Close() { s.servers.Close() }

// Confined reports whether the programs of MCP tools run confined, and describes how. If they do
// not, they run without limits or the worker refuses to start them; the description says which.
func (s *Set) Confined() (description string, confined bool) {
	return s.report.String(), s.report.Err == nil && s.report.Mode != confine.Off
}

// Keys returns where workers find the API keys of the providers, for models that name none.
func Keys() map[string]string {
	keys := map[string]string{}
	for name, spec := range model.BuiltinSpecs() {
		if spec.Key != "" {
			keys[name] = "secret://" + spec.Key
		}
	}
	return keys
}
