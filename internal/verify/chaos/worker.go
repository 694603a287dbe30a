package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/programs"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
	"github.com/turnpike-dev/turnpike/pkg/turnpike/standard"
)

// WorkerConfig is what a worker process of a campaign is told, through the
// environment.
type WorkerConfig struct {
	app.Config
	app.WorkerConfig
	Ledger string `env:"TURNPIKE_CHAOS_LEDGER" required:"" help:"File that effects are written to."`
}

// Work is a worker process: the real worker, with tools that write to the ledger
// and with a bus that doubles, loses and reorders messages.
func Work(ctx context.Context, cfg WorkerConfig) error {
	// A worker that is started again is another one: it holds nothing of what the
	// former held.
	cfg.ID = fmt.Sprintf("%s-%d", cfg.ID, os.Getpid())
	ledger, err := OpenLedger(cfg.Ledger)
	if err != nil {
		return err
	}
	defer ledger.Close()
	d, err := app.Open(ctx, cfg.Config, nil, cfg.ID, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	n := noise{worker: cfg.ID, ledger: ledger}
	d.Store, d.Bus = &noisyStore{d.Store, n}, &noisyBus{d.Bus, n}
	settings, err := cfg.Worker()
	if err != nil {
		return err
	}
	settings.Hooks = hookspec.Kinds(map[string]hook.Hook{"watcher": watcher{cfg.ID, ledger}})
	settings.Kinds = toolspec.Kinds(tools(cfg.ID, ledger))
	w, err := standard.NewWorker(d, settings, standard.Config{HTTPAllow: cfg.HTTPAllow, ModelAllow: cfg.ModelAllow, MCPCommands: cfg.MCPCommands, Confinement: programs.Config(cfg.Programs, cfg.SecretsDir), MockResponses: cfg.MockResponses})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// watcher is a hook that writes its requests to the ledger. It answers slowly, so that faults
// strike during its calls.
type watcher struct {
	worker string
	ledger *Ledger
}

// Call implements hook.Hook.
func (w watcher) Call(ctx context.Context, r hook.Request) (hook.Answer, error) {
	e := Effect{At: time.Now(), Worker: w.worker, Run: string(r.Run), Hook: string(r.Point)}
	var args struct {
		Nonce string `json:"nonce"`
	}
	switch {
	case r.Call != nil:
		if err := json.Unmarshal(r.Call.Arguments, &args); err != nil {
			return hook.Answer{}, err
		}
		e.Nonce = args.Nonce
	case r.Output != "":
		e.Nonce, _, _ = strings.Cut(r.Output, " ")
	}
	if e.Nonce != "" {
		if err := w.ledger.Append(e); err != nil {
			return hook.Answer{}, err
		}
	}
	rig.Pause(ctx, rand.N(300*time.Millisecond))        //nolint:gosec // not a secret
	if r.Point == hook.PostSampling && rand.N(5) == 0 { //nolint:gosec // as above
		return hook.Answer{Notes: []string{"take care"}}, nil
	}
	return hook.Answer{}, nil
}

// slowTool is how long the tool slow takes.
const slowTool = 600 * time.Millisecond

// act writes the effect of a call to the ledger and returns what the tool answers.
func act(ledger *Ledger, worker string, c tool.Call) (string, error) {
	var args struct {
		Nonce string `json:"nonce"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return "", err
	}
	e := Effect{
		At: time.Now(), Worker: worker, Run: string(c.Run), Call: c.ID, Tool: c.Name, Key: c.IdempotencyKey,
		Nonce: args.Nonce, Result: ulid.Make().String(),
	}
	return e.Result, ledger.Append(e)
}

// tools of the campaign's agents that are Go functions, by name.
func tools(worker string, ledger *Ledger) map[string]tool.Tool {
	effect := func(takes time.Duration, pending bool) tool.Tool {
		return tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
			content, err := act(ledger, worker, c)
			if err == nil && takes > 0 && !rig.Pause(ctx, takes) {
				err = ctx.Err()
			}
			return tool.Result{Content: content, Pending: pending}, err
		})
	}
	return map[string]tool.Tool{
		"read": effect(0, false), "once": effect(0, false), "slow": effect(slowTool, false), "later": effect(0, true),
	}
}

// remoteName is the tool that is a NATS service.
const remoteName = "remote"

// serveRemote answers calls of the remote tool at a NATS server until stop is
// called.
func serveRemote(nc *nats.Conn, prefix, worker string, ledger *Ledger) (stop func() error, err error) {
	return toolkit.Serve(nc, prefix, toolkit.Tool{Name: remoteName, Handler: func(_ context.Context, c toolkit.Call) (toolkit.Result, error) {
		said, err := act(ledger, worker, tool.Call{
			Run: state.RunID(c.RunID), ID: c.CallID, Name: remoteName, Arguments: c.Arguments, IdempotencyKey: c.IdempotencyKey,
		})
		return toolkit.Result{Content: said}, err
	}})
}
