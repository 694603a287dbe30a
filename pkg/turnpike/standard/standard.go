package standard

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/hook/natshook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/a2atool"
	"github.com/turnpike-dev/turnpike/pkg/tool/confine"
	"github.com/turnpike-dev/turnpike/pkg/tool/httptool"
	"github.com/turnpike-dev/turnpike/pkg/tool/mcptool"
	"github.com/turnpike-dev/turnpike/pkg/tool/natstool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// Config says what the standard set may do. The zero value is safe: tools and models reach
// public addresses only, and start no programs.
type Config struct {
	// HTTPAllow are addresses that are not public and that HTTP tools, MCP servers and
	// remote agents may have all the same: host:port, or networks such as 10.1.0.0/16.
	HTTPAllow []string

	// ModelAllow are further ones that the base_url of models may have, beside those of
	// HTTPAllow.
	ModelAllow []string

	// MCPCommands are the programs that MCP tools may start on the worker; "*" is any.
	MCPCommands []string

	// Confinement says what those programs may do. The zero value gives them no network.
	Confinement confine.Config

	// MockResponses, a JSON array, replace the model of every agent.
	MockResponses string
}

// NewWorker returns a worker of the deployment that has the standard set beside what w
// has; where both name the same, w prevails. Sessions with MCP servers end when the
// deployment is closed.
func NewWorker(d *turnpike.Deployment, w worker.Config, cfg Config) (*worker.Worker, error) {
	guard, err := httptool.NewGuard(cfg.HTTPAllow)
	if err != nil {
		return nil, fmt.Errorf("TURNPIKE_HTTP_ALLOW: %w", err)
	}
	if cfg.MockResponses != "" {
		if w.MockResponses, err = scripted.FromEnv(cfg.MockResponses); err != nil {
			return nil, err
		}
	}
	providers, err := Providers(slices.Concat(cfg.HTTPAllow, cfg.ModelAllow)...)
	if err != nil {
		return nil, err
	}
	w.Providers, w.Keys = with(providers, w.Providers), with(Keys(), w.Keys)
	confinement, err := confine.New(cfg.Confinement)
	if err != nil {
		return nil, err
	}
	if len(cfg.MCPCommands) > 0 {
		report(d.Config().Logger, confinement.Report())
	}
	servers := mcptool.New(guard, mcptool.Config{Commands: cfg.MCPCommands, Confinement: confinement})
	d.OnClose(servers.Close)
	w.Kinds = toolspec.Kinds(nil).With(tool.Kinds{
		toolspec.NATS: natstool.NewKind(d.NATS, d.Config().Prefix), toolspec.HTTP: httptool.New(guard), toolspec.A2A: a2atool.New(guard.Client()), toolspec.MCP: servers,
	}).With(w.Kinds)
	w.Hooks = hookspec.Kinds(nil).With(hook.Kinds{hookspec.NATS: natshook.Kind(d.NATS, d.Config().Prefix)}).With(w.Hooks)
	return d.NewWorker(w)
}

// report logs how programs are confined.
func report(log zerolog.Logger, r confine.Report) {
	if r.Err == nil && r.Mode != confine.Off {
		log.Info().Str("mode", string(r.Mode)).Str("network", r.Network).Str("memory", r.Memory).Msg("programs of MCP tools are confined")
		return
	}
	log.Warn().Str("found", r.String()).Str("hint", "docs/how-to/mcp-tools.md#confinement says what a system needs").Msg("programs of MCP tools are not confined, or refused")
}

// Keys returns where workers find the keys of the providers, for models that name none.
func Keys() map[string]string {
	keys := map[string]string{}
	for name, spec := range model.BuiltinSpecs() {
		if spec.Key != "" {
			keys[name] = "secret://" + spec.Key
		}
	}
	return keys
}

// with returns the entries of both; more prevails.
func with[V any](all, more map[string]V) map[string]V {
	maps.Copy(all, more)
	return all
}
