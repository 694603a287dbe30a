// Package bench measures the real path (gateway, NATS, Redis, worker; model and
// tool steps without delay) and, in the same run, the floor under it: the same
// operations on the same servers with no logic between. Only the ratio says how
// good Turnpike is; the machine cancels out.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Config of a benchmark.
type Config struct {
	Runs    int    `default:"500" help:"Runs of the throughput part."`
	Turns   int    `default:"10" help:"Turns of each: one model call and one tool call a turn, the last an answer."`
	Long    int    `default:"200" help:"Turns of the one run that is measured alone."`
	Profile string `enum:"lazy,durable" default:"lazy" help:"lazy: servers at their defaults; durable: Redis syncs every write (appendfsync always)."`
	Size    int    `default:"10000" help:"Runs of the larger step of size, and of steady."`
	Short   bool   `help:"A small load, to see that it works."`

	Without []string `enum:"eager_claims,executor,quarantine,batching," help:"Optimisations to do without, by commas: eager_claims, executor, quarantine, batching (of calls to Redis; not in parts with processes of their own)."`

	Only []string `default:"turns" help:"What to measure, by commas: all, or some of turns, history, parked, abort, submit, readers, scale, fair, start, size, stream, steady."`
}

// Report is what was measured.
type Report struct {
	Profile string `json:"profile"`

	*Turns // nil: not asked for

	Rows []Row `json:"rows,omitempty"` // of the other measurements
}

// Turns is how fast turns are taken, and what they cost.
type Turns struct {
	Runs  int `json:"runs"`
	Turns int `json:"turns"`

	Real  Throughput `json:"real"`
	Floor Throughput `json:"floor"`
	Ratio float64    `json:"ratio"` // real turns/s over the floor's

	Alone      Latency `json:"alone"`
	AloneFloor Latency `json:"alone_floor"`

	// One run alone: how time and bytes grow with its history.
	EarlyMS    float64 `json:"early_ms"` // turns 1 to 20, mean
	LateMS     float64 `json:"late_ms"`  // the last 20 turns, mean
	EarlyBytes int64   `json:"early_bytes"`
	LateBytes  int64   `json:"late_bytes"`
}

// Throughput of many runs at once.
type Throughput struct {
	TurnsPerSecond float64 `json:"turns_per_second"`
	CPUPerTurnMS   float64 `json:"cpu_per_turn_ms"` // of this process and both servers

	// CPUParts are the parts of this process, of NATS and of Redis in it.
	CPUParts [3]float64 `json:"cpu_parts_ms"`
}

// Latency of one turn after the other.
type Latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// String returns the report for people.
func (r *Report) String() string {
	parts := []string{"profile " + r.Profile}
	if r.Turns != nil {
		parts = append(parts, r.Turns.String())
	}
	if len(r.Rows) > 0 {
		parts = append(parts, table(r.Rows))
	}
	return strings.Join(parts, "\n\n")
}

// String returns the figures for people.
func (r *Turns) String() string {
	var b strings.Builder
	row := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	row("%d runs × %d turns, model and tool steps without delay", r.Runs, r.Turns)
	row("%-34s %12s %12s %8s", "", "turnpike", "floor", "ratio")
	row("%-34s %12.0f %12.0f %8.2f", "turns/s", r.Real.TurnsPerSecond, r.Floor.TurnsPerSecond, r.Ratio)
	row("%-34s %12.3f %12.3f %8.2f", "CPU ms a turn", r.Real.CPUPerTurnMS, r.Floor.CPUPerTurnMS, r.Real.CPUPerTurnMS/r.Floor.CPUPerTurnMS)
	for i, part := range []string{"gateway and worker", "NATS", "Redis"} {
		row("%-34s %12.3f %12.3f %8.2f", "  of "+part, r.Real.CPUParts[i], r.Floor.CPUParts[i], r.Real.CPUParts[i]/r.Floor.CPUParts[i])
	}
	row("%-34s %12.2f %12.2f %8.2f", "one run alone: p50 ms a turn", r.Alone.P50, r.AloneFloor.P50, r.Alone.P50/r.AloneFloor.P50)
	row("%-34s %12.2f %12.2f %8.2f", "one run alone: p99 ms a turn", r.Alone.P99, r.AloneFloor.P99, r.Alone.P99/r.AloneFloor.P99)
	row("%-34s %12.2f → %.2f", "one run: ms a turn, first → last 20", r.EarlyMS, r.LateMS)
	row("%-34s %12d → %d", "one run: bytes written, turn 2 → last", r.EarlyBytes, r.LateBytes)
	return strings.TrimRight(b.String(), "\n")
}

const agentName, workerID = "bench", "bench"

// warm is how long the real path runs before it is measured.
const warm = 2 * time.Second

// Run measures. progress hears how far it is.
func Run(ctx context.Context, cfg Config, progress io.Writer) (*Report, error) {
	want, err := cfg.chosen()
	if err != nil {
		return nil, err
	}
	if err := doWithout(cfg.Without); err != nil {
		return nil, err
	}
	r := &Report{Profile: cfg.Profile}
	if want["turns"] {
		if r.Turns, err = measureTurns(ctx, cfg); err != nil {
			return nil, err
		}
	}
	r.Rows, err = measureAll(ctx, cfg, want, progress)
	return r, err
}

func measureTurns(ctx context.Context, cfg Config) (*Turns, error) {
	if cfg.Short {
		cfg.Runs, cfg.Turns, cfg.Long = 50, 10, 60
	}
	if cfg.Runs < 1 || cfg.Turns < 2 || cfg.Long < 41 || cfg.Turns > 200 || cfg.Long > 200 {
		return nil, errors.New("bench needs at least 1 run, 2 to 200 turns, and 41 to 200 turns of the long run")
	}
	servers, err := startServers(ctx, cfg.Profile)
	if err != nil {
		return nil, err
	}
	defer servers.stop()
	defer app.GCHeadroom()() // as every process of Turnpike has
	r := &Turns{Runs: cfg.Runs, Turns: cfg.Turns}
	deployment, err := open(ctx, servers)
	if err != nil {
		return nil, err
	}
	defer deployment.close()
	floor, err := newFloor(ctx, servers)
	if err != nil {
		return nil, err
	}
	defer floor.close()

	// Each part once unmeasured: connections, scripts and caches are warm after it, and
	// the worker knows that it is alone.
	for began := time.Now(); time.Since(began) < warm; {
		if _, err := deployment.throughput(ctx, 20, cfg.Turns); err != nil {
			return nil, err
		}
	}
	if _, err := floor.throughput(ctx, 20, cfg.Turns); err != nil {
		return nil, err
	}
	if r.Real, err = deployment.throughput(ctx, cfg.Runs, cfg.Turns); err != nil {
		return nil, err
	}
	if r.Floor, err = floor.throughput(ctx, cfg.Runs, cfg.Turns); err != nil {
		return nil, err
	}
	r.Ratio = r.Real.TurnsPerSecond / r.Floor.TurnsPerSecond
	if err := deployment.alone(ctx, cfg.Long, r); err != nil {
		return nil, err
	}
	r.AloneFloor, err = floor.alone(ctx, cfg.Long)
	return r, err
}

// deployment is a gateway and a worker in this process, on servers of their own.
type deployment struct {
	servers *servers
	client  *api.Client
	store   *redisstore.Store
	model   *benchModel
	close   func()
}

func open(ctx context.Context, servers *servers) (*deployment, error) {
	return openWith(ctx, servers, func(s *redisstore.Store) state.Store { return s })
}

// openWith gives the worker what as makes of the store.
func openWith(ctx context.Context, servers *servers, as func(*redisstore.Store) state.Store) (*deployment, error) {
	ctx, cancel := context.WithCancel(ctx)
	nc, err := natsbus.Connect(servers.natsURL, "bench")
	if err != nil {
		cancel()
		return nil, err
	}
	b, err := natsbus.Open(ctx, nc, natsbus.Config{})
	if err != nil {
		cancel()
		return nil, err
	}
	store, err := redisstore.Open(ctx, redisAt(servers.redisURL))
	if err != nil {
		cancel()
		return nil, err
	}
	s := &deployment{servers: servers, store: store, model: &benchModel{}}
	w, err := worker.New(as(store), b, worker.Config{
		ID: workerID, Providers: map[string]model.Provider{"scripted": s.model}, ShutdownGrace: time.Second,
		Kinds: toolspec.Kinds(map[string]tool.Tool{"noop": noop}), Without: optimisations(),
	})
	if err != nil {
		cancel()
		return nil, err
	}
	listener, err := app.Listen("127.0.0.1:0")
	if err != nil {
		cancel()
		return nil, err
	}
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		cancel()
		return nil, err
	}
	var group errgroup.Group
	group.Go(func() error { return w.Run(ctx) })
	group.Go(func() error {
		return g.Serve(ctx, listener)
	})
	s.client = api.New("http://" + listener.Addr().String())
	s.close = func() {
		cancel()
		_ = group.Wait() // the measurement is over
		_ = b.Close()
		nc.Close()
		_ = store.Close()
	}
	return s, nil
}

// benchModel asks for a tool at once, and answers at the last turn.
type benchModel struct {
	mu    sync.Mutex
	turns int
	seen  func(run state.RunID, call int) // called before each answer
}

// Self implements model.Cancelable, as the providers do that ship with Turnpike.
func (m *benchModel) Self() model.Provider { return m }

func (m *benchModel) Generate(_ context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	m.mu.Lock()
	turns, seen := m.turns, m.seen
	m.mu.Unlock()
	if seen != nil {
		seen(r.Run, r.Call)
	}
	resp := model.Response{Provider: "bench", Model: "bench", Usage: state.Usage{InputTokens: 100, OutputTokens: 20}}
	if r.Call == turns-1 {
		resp.Parts = []state.Part{{Type: state.PartText, Text: strings.Repeat("y", 400)}}
		return resp, nil
	}
	resp.Parts = []state.Part{{
		Type: state.PartToolCall, ID: fmt.Sprintf("call_%d", r.Call), Name: "noop", Arguments: `{"q":"` + strings.Repeat("z", 300) + `"}`,
	}}
	return resp, nil
}

// prepare defines the agent and what the model does.
func (s *deployment) prepare(ctx context.Context, turns int, seen func(state.RunID, int)) error {
	s.model.mu.Lock()
	s.model.turns, s.model.seen = turns, seen
	s.model.mu.Unlock()
	def := `{"model":{"provider":"scripted"},"loop":{"max_turns":200},"tools":[{"name":"noop","idempotent":true,"reuse":false}]}`
	_, err := s.client.PutAgent(ctx, agentName, []byte(def))
	return err
}

// submitters is how many submit at once.
const submitters = 16

// throughput runs many runs and waits for the last.
func (s *deployment) throughput(ctx context.Context, runs, turns int) (Throughput, error) {
	if err := s.prepare(ctx, turns, nil); err != nil {
		return Throughput{}, err
	}
	before, err := s.completed(ctx)
	if err != nil {
		return Throughput{}, err
	}
	watch := s.servers.start()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for range runs {
		group.Go(func() error {
			_, err := s.client.Submit(groupCtx, api.SubmitRequest{Agent: agentName, Input: json.RawMessage(`"go"`)}, "")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Throughput{}, err
	}
	for {
		n, err := s.completed(ctx)
		if err != nil {
			return Throughput{}, err
		}
		if n >= before+int64(runs) {
			return watch.stop(runs * turns), nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return Throughput{}, ctx.Err()
		}
	}
}

func (s *deployment) completed(ctx context.Context) (int64, error) {
	counts, err := s.store.Counts(ctx)
	return counts[state.Completed], err
}

// alone runs one long run and looks at each of its turns.
func (s *deployment) alone(ctx context.Context, turns int, r *Turns) error {
	var times []time.Time
	var bytes []int64
	last := make(chan struct{})
	ended := sync.OnceFunc(func() { close(last) })
	err := s.prepare(ctx, turns, func(_ state.RunID, call int) {
		if call == turns-1 {
			defer ended()
		}
		times = append(times, time.Now()) // one run: nobody else calls
		if call == 1 || call == 2 || call >= turns-2 {
			bytes = append(bytes, s.servers.written(ctx))
			times[len(times)-1] = time.Now()
		}
	})
	if err != nil {
		return err
	}
	run, err := s.client.Submit(ctx, api.SubmitRequest{Agent: agentName, Input: json.RawMessage(`"go"`)}, "")
	if err != nil {
		return err
	}
	// Nothing else happens here meanwhile: whoever asks how the run stands makes a turn
	// slower, which the floor has nobody for.
	select {
	case <-last:
	case <-time.After(patience): // it may have ended before
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		got, err := s.client.Get(ctx, run.ID)
		if err != nil {
			return err
		}
		if got.Terminal() {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var ms []float64
	for i := 1; i < len(times); i++ {
		ms = append(ms, float64(times[i].Sub(times[i-1]))/1e6)
	}
	if len(ms) < 40 || len(bytes) < 4 {
		return fmt.Errorf("the long run made %d turns only", len(times))
	}
	r.EarlyMS, r.LateMS = mean(ms[3:20]), mean(ms[len(ms)-20:len(ms)-2])
	r.EarlyBytes, r.LateBytes = bytes[1]-bytes[0], bytes[len(bytes)-1]-bytes[len(bytes)-2]
	r.Alone = latency(ms[3 : len(ms)-2])
	return nil
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func latency(ms []float64) Latency {
	sorted := slices.Sorted(slices.Values(ms))
	at := func(q float64) float64 { return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))] }
	return Latency{P50: at(0.5), P99: at(0.99)}
}
