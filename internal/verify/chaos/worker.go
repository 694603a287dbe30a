package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/equipped"
	"github.com/turnpike-dev/turnpike/internal/app/programs"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/standard"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// WorkerConfig is the configuration of a worker process of a campaign, passed in the environment.
type WorkerConfig struct {
	app.Config
	app.WorkerConfig
	Ledger string `env:"TURNPIKE_CHAOS_LEDGER" required:"" help:"File that effects are written to."`
}

// Work is a worker process: the real worker, with tools that write to the ledger
// and with a bus that doubles, loses and reorders messages.
func Work(ctx context.Context, cfg WorkerConfig) error {
	// A restarted worker has a new id: it holds no leases of the previous one.
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
	w, err := equipped.Worker(d, settings, standard.Config{HTTPAllow: cfg.HTTPAllow, ModelAllow: cfg.ModelAllow, MCPCommands: cfg.MCPCommands, Confinement: programs.Config(cfg.Programs, cfg.SecretsDir)}, cfg.MockResponses)
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
	seen := r.Error != nil
	var args struct {
		Nonce string `json:"nonce"`
	}
	switch {
	case r.Call != nil:
		if err := json.Unmarshal(r.Call.Arguments, &args); err != nil {
			return hook.Answer{}, err
		}
		e.Call, e.Nonce = r.Call.ID, args.Nonce
	case r.Output != "":
		e.Nonce, _, _ = strings.Cut(r.Output, " ")
	}
	if e.Nonce != "" || seen {
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

// slowTool is the duration of the tool slow.
const slowTool = 600 * time.Millisecond

// effectOf returns the effect of a call, with the tool's answer.
func effectOf(worker string, c tool.Call) (Effect, error) {
	var args struct {
		Nonce string `json:"nonce"`
	}
	err := json.Unmarshal(c.Arguments, &args)
	return Effect{
		At: time.Now(), Worker: worker, Run: string(c.Run), Call: c.ID, Tool: c.Name, Key: c.IdempotencyKey,
		Nonce: args.Nonce, Result: ulid.Make().String(),
	}, err
}

// act writes the effect of a call to the ledger and returns the tool's answer.
func act(ledger *Ledger, worker string, c tool.Call) (string, error) {
	e, err := effectOf(worker, c)
	if err != nil {
		return "", err
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
		"sure": sure(worker, ledger), "sure_probe": sureProbe(worker, ledger),
	}
}

// sure acts once under each key, and never under a key that its probe has refused. It answers late, so that
// workers die between the effect and the answer.
func sure(worker string, ledger *Ledger) tool.Tool {
	return tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
		e, err := effectOf(worker, c)
		if err != nil || !rig.Pause(ctx, slowTool/3) {
			return tool.Result{}, cmp.Or(err, ctx.Err())
		}
		was, err := ledger.Once(e)
		if err != nil || !rig.Pause(ctx, slowTool/3) {
			return tool.Result{}, cmp.Or(err, ctx.Err())
		}
		if was.Result == "" {
			return tool.Error("this key is refused"), nil
		}
		return tool.Result{Content: was.Result}, nil
	})
}

// sureProbe reports what sure did under a key, and refuses the key of a call that was not made.
func sureProbe(worker string, ledger *Ledger) tool.Tool {
	return tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		was, err := ledger.Once(Effect{At: time.Now(), Worker: worker, Run: string(c.Run), Call: c.ID, Key: c.IdempotencyKey})
		switch {
		case err != nil:
			return tool.Result{}, err
		case was.Result == "":
			return tool.ProbeNotDone(true), nil
		default:
			return tool.ProbeDone(tool.Result{Content: was.Result}), nil
		}
	})
}

// mcpName is the tool of the MCP server.
const mcpName = "mend"

// mcpServer returns an MCP server whose tool writes to the ledger. It does not know the run: the
// nonce identifies it.
func mcpServer(worker string, ledger *Ledger) http.Handler {
	return testbed.MCPHandler(map[string]testbed.MCPTool{mcpName: func(_ context.Context, key string, arguments json.RawMessage) (string, error) {
		return act(ledger, worker, tool.Call{Name: mcpName, Arguments: arguments, IdempotencyKey: key})
	}})
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
