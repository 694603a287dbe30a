// Package equipped makes the worker that the commands run: one with the standard set of models,
// tools and hooks, in addition to those of the program.
package equipped

import (
	"maps"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/standard"
)

// Worker returns a worker with the parts in w and the standard set; a part of w replaces the standard one of the same
// name. The NATS connection and the prefix are those of d, whatever cfg has. mock, a JSON array of responses, replaces
// the model of every agent unless it is empty. Sessions with MCP servers end when d is closed.
func Worker(d *deploy.Deployment, w worker.Config, cfg standard.Config, mock string) (*worker.Worker, error) {
	cfg.NATS, cfg.Prefix = d.NATS, d.Config().Prefix
	set, err := standard.New(cfg)
	if err != nil {
		return nil, err
	}
	d.OnClose(set.Close)
	if mock != "" {
		if w.MockResponses, err = scripted.FromEnv(mock); err != nil {
			return nil, err
		}
	}
	if len(cfg.MCPCommands) > 0 {
		log := d.Config().Logger
		if how, confined := set.Confined(); confined {
			log.Info("programs of MCP tools are confined", "how", how)
		} else {
			log.Warn("programs of MCP tools are not confined: found says whether they have all rights of this worker or are not started", "found", how, "hint", "set up confinement: docs/how-to/mcp-tools.md#confinement")
		}
	}
	w.Providers, w.Keys = with(set.Models, w.Providers), with(standard.Keys(), w.Keys)
	w.Kinds = toolspec.Kinds(nil).With(set.Kinds).With(w.Kinds)
	w.Hooks = hookspec.Kinds(nil).With(set.HookKinds).With(w.Hooks)
	if w.WebhookClient == nil {
		w.WebhookClient = set.WebhookClient
	}
	return d.NewWorker(w)
}

// with returns the entries of both; more prevails.
func with[V any](all, more map[string]V) map[string]V {
	maps.Copy(all, more)
	return all
}
