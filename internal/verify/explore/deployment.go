package explore

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	lease      = 25013 * time.Millisecond
	redelivery = 5003 * time.Millisecond

	// late is the time that a turn waits for late results of its previous worker: one poll.
	late = 211 * time.Millisecond

	// warm is the time that the deployment runs before any request: workers claim no turn eagerly
	// before they have listened for a while.
	warm = 3 * time.Second

	// again is the time after which a dead worker restarts if no other worker lives.
	again = 10 * time.Second
)

// deployment is one execution of a scenario, in a bubble of synctest. It has many methods and fields
// because the choices of the explorer are its methods, and it has all that they may change.
type deployment struct {
	sc      *Scenario
	store   *memstore.Store
	over    chan struct{}
	news    chan struct{}
	running sync.WaitGroup
	users   int // number of users who are not done
	names   names

	mu        sync.Mutex
	pending   []*call
	processes []*process
	queue     queue
	step      int
	outcome   outcome // of the call that is continuing
	lives     int
	restart   time.Time // the time at which a worker restarts
	intake    []*asked
	alive     map[string]time.Time          // the time until which the store considers each worker alive
	known     map[state.RunID]record.Record // since the store was changed

	outside
}

// names are short names of runs.
type names struct {
	mu    sync.Mutex
	known map[state.RunID]string
}

func (s *deployment) short(id state.RunID) string {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	if s.names.known[id] == "" {
		s.names.known[id] = fmt.Sprint("R", len(s.names.known)+1)
	}
	return s.names.known[id]
}

func newDeployment(sc *Scenario) *deployment {
	return &deployment{
		alive: map[string]time.Time{},
		sc:    sc, store: memstore.New(memstore.Config{}), over: make(chan struct{}), news: make(chan struct{}, 1),
		names: names{known: map[state.RunID]string{}}, queue: queue{published: map[string]bool{}}, outside: newOutside(),
	}
}

// start starts all processes, and returns when they are ready.
func (s *deployment) start() error {
	for _, name := range slices.Sorted(maps.Keys(s.sc.Agents)) {
		if _, err := s.store.PutAgent(context.Background(), state.DefaultTenant, name, []byte(s.sc.Agents[name]), false); err != nil {
			return fmt.Errorf("put agent %s: %w", name, err)
		}
	}
	for i := range 2 {
		if err := s.startWorker(fmt.Sprintf("w%d", i+1)); err != nil {
			return err
		}
	}
	if s.sc.Bus {
		s.gateways()
	}
	return nil
}

func (s *deployment) newProcess(name string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives++
	var key [32]byte
	copy(key[:], fmt.Sprint(name, s.lives))
	ctx, end := context.WithCancel(context.Background())
	p := &process{s: s, name: name, index: s.lives, ctx: ctx, end: end, gone: make(chan struct{}), aborted: map[state.RunID]bool{}, rng: rand.NewChaCha8(key)}
	s.processes = append(s.processes, p)
	return p
}

// startWorker begins a life of a worker.
func (s *deployment) startWorker(name string) error {
	p := s.newProcess(name)
	p.worker = true
	cfg := worker.Config{
		ID: name, Random: p, LeaseDuration: lease, RedeliveryDelay: redelivery, LateResults: late,
		Providers: map[string]model.Provider{"scripted": brain{p}},
		Kinds:     toolspec.Kinds(map[string]tool.Tool{"pay": deed{p}, "look": deed{p}, "pay_probe": probe{p}}),
		Hooks:     hookspec.Kinds(map[string]hook.Hook{"guard": guard{p}}),
	}
	s.sc.tune(&cfg)
	w, err := worker.New(store{p: p}, wire{p: p}, cfg)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	s.running.Go(func() { _ = w.Run(p.ctx) }) // it only fails without an answer from the bus, which always answers
	return nil
}

// front returns a live gateway.
func (s *deployment) front() (*process, *gateway.Gateway, error) {
	p := s.newProcess("gateway")
	p.index = 0 // users' requests run before workers' steps
	g, err := gateway.New(store{p: p}, wire{p: p}, gateway.Config{Random: p, RedeliveryDelay: redelivery})
	if err == nil {
		s.running.Go(func() {
			<-p.ctx.Done()
			g.Close()
		})
	}
	return p, g, err
}

// die ends a process. Its open requests get no answer; the caller holds s.mu.
func (s *deployment) die(p *process) {
	p.dead = true
	close(p.gone)
	s.pending = slices.DeleteFunc(slices.Clone(s.pending), func(c *call) bool { return c.p == p })
	s.replace()
}

// replace schedules the restart of a worker if none is left; the caller holds s.mu.
func (s *deployment) replace() {
	if s.restart.IsZero() && !slices.ContainsFunc(s.processes, func(p *process) bool { return p.worker && !p.dead && !p.leaves }) {
		s.restart = time.Now().Add(again)
	}
}

// comeBack restarts a dead worker under its own name.
func (s *deployment) comeBack() error {
	name := "w3"
	for _, p := range s.processes {
		if p.worker && p.dead {
			name = p.name
		}
	}
	return s.startWorker(name)
}

// close ends all processes, and waits for them.
func (s *deployment) close() {
	s.mu.Lock()
	close(s.over)
	s.mu.Unlock()
	for _, p := range s.processes {
		p.end()
	}
	s.running.Wait()
}

// sum hashes the content of the store.
func sum(c *memstore.Snapshot) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_ = c.Encode(&h)
	return h.Sum64()
}

// record returns the stored state of a run.
func (s *deployment) record(id state.RunID) (record.Record, bool) {
	if s.known == nil {
		s.known = map[state.RunID]record.Record{}
	}
	if r, ok := s.known[id]; ok {
		return r, true
	}
	var r record.Record
	err := s.store.Snapshot().Record(id, &r)
	if err == nil {
		s.known[id] = r
	}
	return r, err == nil
}

// changed invalidates the cached records.
func (s *deployment) changed() { clear(s.known) }

// owns reports whether a worker holds a lease.
func (s *deployment) owns(worker string) bool {
	owners, err := s.store.Owners(context.Background())
	return err == nil && slices.Contains(owners, worker)
}

// brain is the model as one process reaches it.
type brain struct{ p *process }

// Generate returns a different response at each call.
func (b brain) Generate(ctx context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	s := b.p.s
	said := 0
	for _, m := range r.Messages {
		said += count(m.Role == state.RoleAssistant)
	}
	s.begins(ctx, b.p, r.Run, "the model is asked")
	req := request{name: fmt.Sprintf("%s: ask the model for %s", b.p.name, s.short(r.Run)), can: works}
	resp, err := ask(ctx, b.p, req, func() (model.Response, error) {
		s.asked++
		resp := s.sc.Says(r.Model, said, s.asked)
		resp.Provider, resp.Model = "scripted", r.Model
		return resp, nil
	})
	if err != nil {
		return model.Response{}, model.Interrupted("scripted", err)
	}
	return resp, nil
}

// deed is a tool as one process reaches it.
type deed struct{ p *process }

// Call implements tool.Tool.
func (d deed) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	s := d.p.s
	s.begins(ctx, d.p, c.Run, "a tool is called")
	s.follows(ctx, d.p, c.Run, "a tool is called")
	req := request{name: fmt.Sprintf("%s: call %s %s for %s", d.p.name, c.Name, c.ID, s.short(c.Run)), can: works}
	s.starts(c)
	r, err := ask(ctx, d.p, req, func() (tool.Result, error) {
		if s.refused[c.IdempotencyKey] {
			return tool.Error(keyRefused), nil
		}
		s.acts(d.p, c)
		return tool.Result{Content: result(c.Name, string(c.Arguments))}, nil
	})
	if err == nil {
		s.returns(d.p, c)
	}
	return r, err
}

// keyRefused is a tool's answer to a key that its probe has refused.
const keyRefused = "this key is refused"

// probe is the probe of a tool as one process reaches it.
type probe struct{ p *process }

// Call implements tool.Tool.
func (d probe) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	s := d.p.s
	s.begins(ctx, d.p, c.Run, "a probe is asked")
	req := request{name: fmt.Sprintf("%s: ask what became of %s for %s", d.p.name, c.ID, s.short(c.Run)), can: works}
	return ask(ctx, d.p, req, func() (tool.Result, error) {
		for _, e := range s.effects {
			if e.key == c.IdempotencyKey {
				return tool.ProbeDone(tool.Result{Content: result(e.name, e.arguments)}), nil
			}
		}
		if s.sc.Refuse {
			s.refused[c.IdempotencyKey] = true
		}
		return tool.ProbeNotDone(s.sc.Refuse), nil
	})
}

var _ bus.Bus = wire{}
