package measure

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/equipped"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// childArgument is the first argument of this program as a process of a deployment.
const childArgument = "bench-child"

// Variables of the processes.
const (
	stepsVariable   = "BENCH_STEPS"
	withoutVariable = "BENCH_WITHOUT"
	hastyVariable   = "BENCH_HASTY" // if not empty, webhooks and kills take a short time
)

// Child runs a process that a measurement has started: a gateway, a worker, a NATS server, or the worker of the
// floor. It reports whether this process is one; main calls it first.
func Child() bool {
	if len(os.Args) < 3 || os.Args[1] != childArgument {
		return false
	}
	os.Args = os.Args[2:]
	switch os.Args[0] {
	case "gateway":
		app.Main("gateway", "A gateway that is measured.", app.ServeGateway)
	case "worker":
		app.Main("worker", "A worker that is measured.", func(ctx context.Context, cfg equipped.Process) error {
			return equipped.Serve(ctx, cfg, prepare)
		})
	case "nats-server":
		app.Main("nats-server", "A NATS server that is measured.", serveNATS)
	case "floor":
		app.Main("floor", "The worker of the floor.", func(ctx context.Context, _ struct{}) error { return serveFloor(ctx) })
	}
	return true
}

// prepare gives a worker the tool of the measurements, and disables optimizations if the environment says so.
func prepare(cfg *worker.Config) {
	log := openSteps(cfg.ID)
	cfg.Kinds = toolspec.Kinds(map[string]tool.Tool{"noop": tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		log.note(string(c.Run))
		return tool.Result{Content: toolText}, nil
	})})
	if os.Getenv(hastyVariable) != "" {
		cfg.WebhookTimes = webhook.Times{Look: 50 * time.Millisecond, Lease: time.Second, Request: 500 * time.Millisecond, FirstPause: 100 * time.Millisecond}
		cfg.MaxAttempts = 2 * mostKills // a turn may lose each worker that is killed
	}
	without := strings.Split(os.Getenv(withoutVariable), ",")
	has := func(name string) bool { return slices.Contains(without, name) }
	cfg.Without = worker.Optimisations{EagerClaims: has("eager_claims"), Sticky: has("sticky"), Quarantine: has("quarantine")}
}

// natsConfig holds the settings of a NATS server.
type natsConfig struct {
	Config string `short:"c" help:"Its file."`
}

func serveNATS(ctx context.Context, cfg natsConfig) error {
	opts, err := server.ProcessConfigFile(cfg.Config)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// The texts of a turn of a measurement: the answers of a tool and of a model, and arguments.
var (
	toolText  = strings.Repeat("x", 400)
	modelText = strings.Repeat("y", 400)
	arguments = strings.Repeat("z", 300)
)

// stepLog is a file with a line for each call of the tool: the worker, the run and the time. One write each, to
// a file opened for appending, survives the death of a worker and needs no lock.
type stepLog struct {
	file   *os.File
	worker string
}

func openSteps(worker string) *stepLog {
	file, err := os.OpenFile(os.Getenv(stepsVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "steps are not recorded:", err)
	}
	return &stepLog{file, worker}
}

func (l *stepLog) note(run string) {
	_, _ = fmt.Fprintf(l.file, "%s %s %d\n", l.worker, run, time.Now().UnixNano()) // a missing line is one step fewer
}

// step is one call of the tool.
type step struct {
	worker, run string
	at          time.Time
}

// readSteps returns the steps in a file, which may not exist yet.
func readSteps(file string) (steps []step, err error) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var s step
		var at int64
		if _, err := fmt.Sscan(line, &s.worker, &s.run, &at); err == nil && strings.HasSuffix(line, "\n") {
			s.at = time.Unix(0, at)
			steps = append(steps, s)
		}
	}
	return steps, nil
}
