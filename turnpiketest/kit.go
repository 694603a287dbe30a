package turnpiketest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// Kit is a deployment in memory with one worker. Its Client acts for the process, as that of every Deployment; use As
// to approve calls. A Kit is safe for concurrent use, except for the methods that can fail the test, which must be
// called on the test's goroutine.
type Kit struct {
	*turnpike.Deployment

	t     testing.TB
	o     turnpike.Options
	store *memstore.Store
	bus   *membus.Bus

	mu     sync.Mutex
	closed bool
	life   *life
	passed map[Point]int
	crash  map[Point]map[int]bool
	lives  sync.WaitGroup
}

// New starts a deployment in memory with scripted models and one worker, and stops it when t ends. The fields NATS,
// Redis, Store, Bus and Metrics of o must be unset. New fails the test if o has mistakes.
func New(t testing.TB, o turnpike.Options) *Kit {
	t.Helper()
	if o.Store != nil || o.Bus != nil || o.NATS != (turnpike.NATS{}) || o.Redis.URL != "" || o.Metrics != nil {
		t.Fatal("turnpiketest: NATS, Redis, Store, Bus or Metrics is set in the options: leave all of them unset")
	}
	o.Models = maps.Clone(o.Models)
	if o.Models == nil {
		o.Models = turnpike.Models{}
	}
	o.Models["scripted"] = scripted.New()
	k := &Kit{t: t, o: o, store: memstore.New(memstore.Config{}), bus: membus.New(), passed: map[Point]int{}, crash: map[Point]map[int]bool{}}
	var err error
	o.Store, o.Bus = k.store, k.bus
	if k.Deployment, err = turnpike.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := k.begin(); err != nil {
		t.Fatal(errors.Join(err, k.Close()))
	}
	t.Cleanup(k.stop)
	return k
}

// stop ends the worker, then the deployment.
func (k *Kit) stop() {
	k.mu.Lock()
	k.closed = true
	l := k.life
	k.mu.Unlock()
	if err := l.worker.Stop(context.Background()); err != nil {
		k.t.Errorf("turnpiketest: stop the worker: %v", err)
	}
	k.lives.Wait()
	if err := errors.Join(k.Close(), k.bus.Close()); err != nil {
		k.t.Errorf("turnpiketest: close the deployment: %v", err)
	}
}

// Start stores an agent whose model plays the script, and submits a run of it. It replaces a.Model. It fails the test
// if the definition has mistakes.
func (k *Kit) Start(a turnpike.Agent, input string, script ...Reply) *turnpike.Run {
	k.t.Helper()
	a.Model = turnpike.Model{Provider: "scripted", Responses: script}
	saved, err := k.PutAgent(k.t.Context(), a)
	if err != nil {
		k.t.Fatal(err)
	}
	run, err := k.Submit(k.t.Context(), turnpike.Submission{Agent: a.Name, Version: saved.Version, Input: input})
	if err != nil {
		k.t.Fatal(err)
	}
	return run
}

// patience bounds WaitIdle.
const patience = 10 * time.Minute

// WaitIdle returns the run when it has ended or waits for input, as [turnpike.Run.WaitIdle] does. After ten minutes of
// the test's clock it fails the test with the history of the run.
func (k *Kit) WaitIdle(r *turnpike.Run) turnpike.Info {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	i, err := r.WaitIdle(ctx)
	if err != nil {
		k.t.Fatalf("run %s is not idle after %s: find in its transcript what it waits for: %v\n%s", r.ID(), patience, err, k.transcript(r))
	}
	return i
}

// transcript returns the history of a run, one line for each part, without ids and times.
func (k *Kit) transcript(r *turnpike.Run) string {
	k.t.Helper()
	all, err := r.History(k.t.Context())
	if err != nil {
		return fmt.Sprintf("(no history: %v)\n", err)
	}
	var b strings.Builder
	for _, m := range all {
		for _, p := range m.Parts {
			switch p.Type {
			case state.PartToolCall:
				fmt.Fprintf(&b, "%s calls %s %s\n", m.Role, p.Name, p.Arguments)
			case state.PartProviderTool:
				fmt.Fprintf(&b, "%s's provider ran %s %s: %s\n", m.Role, p.Name, p.Arguments, p.Content)
			case state.PartToolResult:
				fmt.Fprintf(&b, "%s: %s\n", m.Role, p.Content)
			default:
				fmt.Fprintf(&b, "%s: %s\n", m.Role, p.Text)
			}
		}
	}
	return b.String()
}
