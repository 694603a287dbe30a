package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config of a simulation.
type Config struct {
	Seed    uint64
	Workers int // default 3
	Users   int // default 40
	Batches int // of runs that are submitted together; default 4
	Faults  Faults

	// Strike is the time during which faults strike; after it, every run must end. Default 30
	// minutes.
	Strike time.Duration

	// Connect gives one process its connections to the shared store and bus.
	Connect func() (Backend, error)

	// Rollback, if not nil, restores an earlier copy of the store. The checks of effects and events
	// are then limited to those that hold despite a loss.
	Rollback func() (save, restore func())
}

// Backend is a store and a bus as one process has them.
type Backend struct {
	Store state.Store
	Bus   bus.Bus
	Close func()
}

// Faults are the probabilities of faults at single steps, and the average intervals between larger faults of a
// process. Zero is never.
type Faults struct {
	Crash     float64 // of the process, at each direction of a message
	LostReply float64 // after the work was done
	Loss      float64 // of a turn message that the server has acknowledged
	Double    float64
	Late      float64 // a message that arrives up to two minutes late

	Kill, Pause, Sever, Slow, Restore time.Duration
}

// Deployment is a deployment under simulation. It has many methods and fields because the steps of a random walk are
// its methods, and it has all that a step may change.
type Deployment struct {
	cfg     Config
	outside *outside
	clients map[string]*api.Client // by tenant
	http    *http.Client           // that they use
	began   time.Time
	wg      sync.WaitGroup // all goroutines that were started

	mu       sync.Mutex
	over     bool // faults have ended
	closed   bool // and all processes
	lives    int
	slow     time.Time // the time until which everything is slow
	workers  []*process
	gateway  *process
	front    *listener
	trace    []string
	counts   map[fault]int
	events   map[state.RunID]int64 // published, from the first without a gap
	gaps     []string
	users    []*user
	rolled   bool
	world    world
	kept     []string             // runs that retention deleted too early
	unwanted map[state.RunID]bool // runs that a user deletes, with their descendants
	batched  map[string][]string  // runs of batches
}

// fault is a kind of fault, for the report.
type fault string

const (
	crashed    fault = "crashes"
	paused     fault = "pauses"
	severed    fault = "cuts"
	slowed     fault = "slow spells"
	unanswered fault = "replies lost"
	lost       fault = "messages lost"
	doubled    fault = "messages doubled"
	late       fault = "messages late"
	rolledBack fault = "failovers to a copy"
)

// note writes a line to the trace.
func (s *Deployment) note(f fault, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != "" {
		s.counts[f]++
	}
	s.trace = append(s.trace, fmt.Sprintf("%12s ", time.Since(s.began))+fmt.Sprintf(format, args...))
}

func (s *Deployment) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// faults returns the faults in force, or nil.
func (s *Deployment) faults() *Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	return &s.cfg.Faults
}

// settled reports whether the end or the deletion of a run is final: a store that falls back to a copy may undo it.
func (s *Deployment) settled() bool { return s.faults() == nil || s.cfg.Faults.Restore == 0 }

func (s *Deployment) latency(d *dice) time.Duration {
	s.mu.Lock()
	slow := time.Until(s.slow) > 0
	s.mu.Unlock()
	if slow {
		return d.between(10*time.Millisecond, 2*time.Second)
	}
	return d.between(50*time.Microsecond, 3*time.Millisecond)
}

// published records an event that the feed has.
func (s *Deployment) published(run state.RunID, e bus.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch last := s.events[run]; {
	case e.Seq == last+1:
		s.events[run] = e.Seq
	case e.Seq > last+1 && !s.rolled:
		s.gaps = append(s.gaps, fmt.Sprintf("%s: event %d is published after %d", run, e.Seq, last))
	}
}

// startWorker starts worker i.
func (s *Deployment) startWorker(i int) error {
	name := fmt.Sprintf("w%d", i)
	p := s.newProcess(name, func() { s.again(name, func() error { return s.startWorker(i) }) })
	b, err := s.cfg.Connect()
	if err != nil {
		return err
	}
	w, err := worker.New(store{p, b.Store}, wire{b.Bus, p}, worker.Config{
		ID: name, Providers: map[string]model.Provider{"openai": brain{p, newDice(s.cfg.Seed, p.name+" model")}},
		Kinds: toolspec.Kinds(s.tools(p)), Logger: s.log(p), EventFeed: true,
		CheckpointBytes: s.checkpointBytes(), ViewMemory: viewMemory,
		Hooks: hookspec.Kinds(map[string]hook.Hook{"watcher": watcher{p, newDice(s.cfg.Seed, p.name+" hooks")}}),
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.workers[i] = p
	s.mu.Unlock()
	s.wg.Go(func() {
		defer b.Close()
		if err := w.Run(p.ctx); err != nil && p.alive() {
			s.note("", "%s: %v", p.name, err)
			p.crash("on its start")
		}
	})
	return nil
}

// checkpointBytes returns the size of a log at which turns write a checkpoint of it: with every other seed as often as
// they can, else never.
func (s *Deployment) checkpointBytes() int64 {
	if s.cfg.Seed%2 == 0 {
		return 1
	}
	return math.MaxInt32
}

// startGateway starts the gateway.
func (s *Deployment) startGateway() error {
	front := newListener()
	p := s.newProcess("gateway", func() {
		_ = front.Close()
		s.again("gateway", s.startGateway)
	})
	b, err := s.cfg.Connect()
	if err != nil {
		return err
	}
	g, err := gateway.New(store{p, b.Store}, wire{b.Bus, p}, gateway.Config{Logger: s.log(p)})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: g.Handler(), ReadHeaderTimeout: time.Minute}
	s.mu.Lock()
	s.gateway, s.front = p, front
	s.mu.Unlock()
	s.wg.Go(func() {
		defer b.Close()
		if err := g.Run(p.ctx); err != nil && p.alive() {
			s.note("", "%s: %v", p.name, err)
			p.crash("on its start")
		}
	})
	s.wg.Go(func() {
		_ = server.Serve(front)
	})
	s.wg.Go(func() {
		<-p.ctx.Done()
		_ = server.Close()
		g.Close()
	})
	return nil
}

// again restarts a dead process after a while.
func (s *Deployment) again(name string, start func() error) {
	s.mu.Lock()
	closed, lives := s.closed, s.lives
	s.mu.Unlock()
	if closed {
		return
	}
	d := newDice(s.cfg.Seed, fmt.Sprint("again ", name, lives)).between(0, 20*time.Second)
	s.wg.Go(func() {
		time.Sleep(d)
		if err := start(); err != nil {
			s.note("", "%s: does not start: %v", name, err)
		}
	})
}

// strike injects larger faults into processes until the time is up.
func (s *Deployment) strike() {
	var wg sync.WaitGroup
	end := time.Now().Add(s.cfg.Strike)
	every := func(what string, mean time.Duration, fn func(d *dice)) {
		if mean == 0 {
			return
		}
		d := newDice(s.cfg.Seed, what)
		wg.Go(func() {
			for {
				// The mean of the draw is a third of its span.
				wait := d.between(0, 3*mean)
				if wait >= time.Until(end) {
					return
				}
				time.Sleep(wait)
				fn(d)
			}
		})
	}
	f := s.cfg.Faults
	every("kill", f.Kill, func(d *dice) { s.victim("kill", d).crash("killed") })
	every("pause", f.Pause, func(d *dice) { s.victim("pause", d).pause(d.between(5*time.Second, 80*time.Second)) })
	every("sever", f.Sever, func(d *dice) { s.victim("sever", d).sever(link(d.n(2)), d.between(time.Second, time.Minute)) })
	every("slow", f.Slow, func(d *dice) {
		span := d.between(5*time.Second, time.Minute)
		s.note(slowed, "strike: everything is slow for %s", span)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.slow = time.Now().Add(span)
	})
	if s.cfg.Rollback != nil {
		every("restore", f.Restore, func(d *dice) {
			save, restore := s.cfg.Rollback()
			save()
			time.Sleep(d.between(time.Second, 30*time.Second))
			s.mu.Lock()
			s.rolled = true
			s.mu.Unlock()
			s.note(rolledBack, "the store falls back to a copy")
			restore()
			s.mu.Lock()
			clear(s.world.deleted) // the copy may have these runs
			s.mu.Unlock()
		})
	}
	time.Sleep(s.cfg.Strike)
	wg.Wait()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.note("", "no faults from here")
}

// victim draws a process, which may be dead.
func (s *Deployment) victim(of string, d *dice) *process {
	n := d.n(len(s.workers) + 1)
	s.note("", "strike: %s process %d", of, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < len(s.workers) {
		return s.workers[n]
	}
	return s.gateway
}

// log returns a logger that writes into the trace, which has its own times.
func (s *Deployment) log(p *process) *slog.Logger {
	return slog.New(slog.NewJSONHandler(logged{s, p}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// logged writes the log of a process into the trace.
type logged struct {
	s *Deployment
	p *process
}

func (l logged) Write(line []byte) (int, error) {
	l.s.note("", "%s: %s", l.p.name, strings.TrimSpace(string(line)))
	return len(line), nil
}

// listener accepts connections inside the process.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newListener() *listener {
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.done) })
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.close()
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "simulation", Net: "pipe"} }

// dial connects a user with the live gateway.
func (s *Deployment) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	front := s.front
	s.mu.Unlock()
	here, there := net.Pipe()
	select {
	case front.conns <- there:
		return here, nil
	case <-front.done:
		return nil, errors.New("simulation: connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Trace returns the last n lines of the trace.
func (s *Deployment) Trace(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.trace[max(0, len(s.trace)-n):])
}
