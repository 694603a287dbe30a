package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// A trunk has 10 limbs, each of these 9 branches, and each of these 10 leaves.
	limbs, branches, leaves = 10, 9, 10
	runsBelowTrunk          = limbs + limbs*branches + limbs*branches*leaves

	// treeWorkers is the number of workers. An abort does not stop the creations that have begun: each worker makes up
	// to 16 at the same time. As many may follow that were checked just before the abort.
	treeWorkers, begun = 2, treeWorkers * 2 * 16
)

// treeStore is a store that counts the children whose creation began before and after the end of their root was
// journaled, and the runs that wait and that have ended. It holds creations once it has permitted some, until it is
// released.
type treeStore struct {
	state.Store

	permits  int           // creations that it does not hold
	held     chan struct{} // closed when a creation is held
	released chan struct{}

	mu           sync.Mutex
	over         bool // the end of the root is journaled
	before, late int
	children     map[state.RunID]bool // whose creation has begun
	waits, ends  map[state.RunID]bool // leaves that have waited, runs that have ended
}

func newTreeStore(store state.Store, permits int) *treeStore {
	return &treeStore{
		Store: store, permits: permits, held: make(chan struct{}), released: make(chan struct{}),
		children: map[state.RunID]bool{}, waits: map[state.RunID]bool{}, ends: map[state.RunID]bool{},
	}
}

func (s *treeStore) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.State.Parent != nil && s.begin(n.State.ID) {
		select {
		case <-s.released:
		case <-ctx.Done():
			return state.Created{}, ctx.Err()
		}
	}
	return s.Store.Create(ctx, n)
}

// begin counts the creation of a child, and reports whether to hold it. A creation may be repeated.
func (s *treeStore) begin(id state.RunID) (hold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.children[id] {
		s.children[id] = true
		if s.over {
			s.late++
		} else {
			s.before++
		}
		if s.before+s.late == s.permits+1 {
			close(s.held)
		}
	}
	return s.before+s.late > s.permits
}

func (s *treeStore) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	done, err := s.Store.Commit(ctx, l, c)
	if err != nil {
		return done, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.State.Status.Terminal():
		s.over = s.over || c.State.Parent == nil
		s.ends[l.Run] = true
	case c.State.Status == state.Waiting && c.State.Agent == "leaf":
		s.waits[l.Run] = true
	}
	return done, nil
}

// waiting returns the number of leaves that have waited.
func (s *treeStore) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

// going returns the number of runs that have not ended, including those that are being created.
func (s *treeStore) going() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 1 + s.before + s.late - len(s.ends)
}

// counts returns the number of children whose creation began before the end of their root was journaled, and after it.
func (s *treeStore) counts() (before, late int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before, s.late
}

// all returns all runs of the store.
func (s *treeStore) all(t *testing.T) (runs []state.State) {
	t.Helper()
	for f := (state.Filter{Limit: 200}); ; {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, page.Runs...)
		if f.Cursor = page.Next; f.Cursor == "" {
			return runs
		}
	}
}

// growTree starts a gateway and workers on a store, and submits a run whose tree has a thousand runs below it. Each
// leaf waits for a client.
func growTree(t *testing.T, kind string, permits int) (s *treeStore, client *api.Client, root string) {
	t.Helper()
	at, prefix := testbed.NATSServer(t).URL(), "t"+ulid.Make().String()
	client, store, b := gatewayOn(t, kind, at, prefix)
	s = newTreeStore(store, permits)
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	t.Cleanup(func() { stop(); working.Wait() })
	for i := range treeWorkers {
		w, err := worker.New(s, b, worker.Config{ID: fmt.Sprint("w", i), Slots: 64, Providers: map[string]model.Provider{"scripted": scripted.New()}})
		if err != nil {
			t.Fatal(err)
		}
		working.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	below := func(name string, n int) string {
		calls := strings.TrimSuffix(strings.Repeat(`{"name":"below","arguments":{"task":"x"}},`, n), ",")
		return `{"model":{"provider":"scripted","responses":[{"tool_calls":[` + calls + `]},{"text":"done"}]},"tools":[{"name":"below","kind":"agent","agent":"` + name + `"}]}`
	}
	for _, a := range [][2]string{
		{"leaf", `{"model":{"provider":"scripted","responses":[{"tool_calls":[{"name":"ask"}]},{"text":"done"}]},"tools":[{"name":"ask","kind":"client","schema":{"type":"object"}}]}`},
		{"branch", below("leaf", leaves)},
		{"limb", below("branch", branches)},
		{"trunk", below("limb", limbs)},
	} {
		if _, err := client.PutAgent(t.Context(), a[0], []byte(a[1])); err != nil {
			t.Fatal(err)
		}
	}
	run, err := client.Submit(t.Context(), api.SubmitRequest{Agent: "trunk", Input: api.Text("go")}, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, client, run.ID
}

// countDown waits until left returns 0. It ends the test if nothing changes for the patience of tests.
func countDown(t *testing.T, what string, left func() int) {
	t.Helper()
	for n := left(); n > 0; {
		eventually(t, "something changes", func() error {
			before := n
			if n = left(); n == before {
				return fmt.Errorf("%d %s", n, what)
			}
			return nil
		})
	}
}

func cancelTree(t *testing.T, client *api.Client, root string) {
	t.Helper()
	if _, err := client.Cancel(t.Context(), root, "enough"); err != nil {
		t.Fatal(err)
	}
}

// checkAtRest waits until a cancelled tree is at rest, and checks that each of its runs was cancelled once. It returns
// the number of runs below the root.
func checkAtRest(t *testing.T, s *treeStore) int {
	t.Helper()
	countDown(t, "runs have not ended", s.going)
	runs := s.all(t)
	exists := map[state.RunID]bool{}
	for _, r := range runs {
		exists[r.ID] = true
	}
	for _, r := range runs {
		if r.Status != state.Cancelled {
			t.Errorf("run %s of %s is %s (%s)", r.ID, r.Agent, r.Status, r.Transition.Reason)
		}
		if r.Parent != nil && !exists[r.Parent.RunID] {
			t.Errorf("run %s is below %s, which does not exist", r.ID, r.Parent.RunID)
		}
		log, err := s.Log(t.Context(), r.ID, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for i := range log {
			if log[i].Type == state.EntryFinished {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("run %s of %s has ended %d times", r.ID, r.Agent, ends)
		}
	}
	if counts, err := s.Counts(t.Context()); err != nil || counts[state.Cancelled] != int64(len(runs)) {
		t.Errorf("%d runs are listed, the counts are %v, %v", len(runs), counts, err)
	}
	return len(runs) - 1
}

// Cancelling a tree of a thousand runs ends every run of it, on each store. After the end of the root is journaled, only
// runs are created whose creation had begun (I2, I7).
func TestCancelledTrees(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"redis", "nats"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			t.Run("that has grown", func(t *testing.T) {
				t.Parallel()
				s, client, root := growTree(t, kind, runsBelowTrunk)
				countDown(t, "leaves do not wait for the client yet", func() int { return limbs*branches*leaves - s.waiting() })
				cancelTree(t, client, root)
				if n := checkAtRest(t, s); n != runsBelowTrunk {
					t.Errorf("%d runs are below the root, want %d", n, runsBelowTrunk)
				}
				if before, late := s.counts(); before != runsBelowTrunk || late > 0 {
					t.Errorf("%d creations began before the end of the root was journaled, and %d after", before, late)
				}
			})
			t.Run("that grows", func(t *testing.T) {
				t.Parallel()
				const grown = 300
				s, client, root := growTree(t, kind, grown)
				<-s.held
				cancelTree(t, client, root)
				close(s.released)
				n := checkAtRest(t, s)
				before, late := s.counts()
				t.Logf("%d runs are below the root; %d creations began before the end of the root was journaled, and %d after", n, before, late)
				if n != before+late || n < grown || n > grown+begun {
					t.Errorf("%d runs are below the root, want the %d before the abort and at most the %d that had begun", n, grown, begun)
				}
			})
		})
	}
}
