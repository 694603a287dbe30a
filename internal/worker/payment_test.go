package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/tool/httptool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// mortal is the store of a worker that can be killed. After that, none of its requests takes effect and none of
// its results is submitted.
type mortal struct {
	state.Store

	dead atomic.Bool
}

func (m *mortal) fence() error {
	if m.dead.Load() {
		return state.ErrFenced
	}
	return nil
}

func (m *mortal) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	if err := m.fence(); err != nil {
		return nil, err
	}
	return m.Store.Claim(ctx, q)
}

func (m *mortal) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	if err := m.fence(); err != nil {
		return nil, err
	}
	return m.Store.Renew(ctx, l, lease, delay)
}

func (m *mortal) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	if err := m.fence(); err != nil {
		return nil, err
	}
	return m.Store.Record(ctx, l, r)
}

func (m *mortal) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	if err := m.fence(); err != nil {
		return state.Committed{}, err
	}
	return m.Store.Commit(ctx, l, c)
}

func (m *mortal) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	if err := m.fence(); err != nil {
		return err
	}
	return m.Store.Release(ctx, l, delay)
}

// bank is a payment service. It executes each request for an order, but at most once per key, and never under a
// key it has refused.
type bank struct {
	mu       sync.Mutex
	paid     map[string]string   // key: order
	refused  map[string]bool     // keys
	arrived  map[string]int      // order: number of requests
	orders   map[string][]string // order: the keys of its requests
	probes   int
	waiting  int                      // number of unanswered requests of the current worker
	arrival  chan struct{}            // signals the arrival of a request
	killed   chan struct{}            // closed when the worker of the waiting requests is killed
	settled  map[string]chan struct{} // key: closed when the probe has asked about it
	refusals int                      // number of requests under a refused key
}

func newBank() *bank {
	return &bank{
		paid: map[string]string{}, refused: map[string]bool{}, arrived: map[string]int{}, orders: map[string][]string{},
		arrival: make(chan struct{}, 1), killed: make(chan struct{}), settled: map[string]chan struct{}{},
	}
}

func (b *bank) asked(key string) chan struct{} {
	if b.settled[key] == nil {
		b.settled[key] = make(chan struct{})
	}
	return b.settled[key]
}

// pay executes an order. It returns false if the key is refused.
func (b *bank) pay(key, order string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused[key] {
		b.refusals++
		return false
	}
	b.paid[key] = order
	return true
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet {
		b.probe(w, key)
		return
	}
	var order struct {
		ID     string `json:"order"`
		Number int    `json:"number"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	b.arrived[order.ID]++
	b.orders[order.ID] = append(b.orders[order.ID], key)
	arrival, killed := b.arrived[order.ID], b.killed
	b.mu.Unlock()

	// The fate of a request: three kinds of kill on the first arrival, one on the second.
	fate := order.Number % 5
	switch {
	case arrival == 1 && fate <= 2, arrival == 2 && order.Number%7 == 0: // executed, but the answer is lost
		b.pay(key, order.ID)
		b.wait(killed)
	case arrival == 1 && fate == 3: // lost on its way
		b.wait(killed)
	case arrival == 1: // delayed on its way
		b.wait(killed)
		b.mu.Lock()
		asked := b.asked(key)
		b.mu.Unlock()
		<-asked
		b.pay(key, order.ID)
	case b.pay(key, order.ID):
		fmt.Fprintf(w, "order %s is paid", order.ID)
	default:
		http.Error(w, "this key is refused", http.StatusConflict)
	}
}

// wait blocks a request until its worker is killed.
func (b *bank) wait(killed chan struct{}) {
	b.mu.Lock()
	b.waiting++
	b.mu.Unlock()
	select {
	case b.arrival <- struct{}{}:
	default:
	}
	<-killed
}

// probe reports the outcome for a key. It sometimes fails.
func (b *bank) probe(w http.ResponseWriter, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes++
	switch order, ok := b.paid[key]; {
	case b.probes%12 == 0:
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	case b.probes%25 == 0:
		fmt.Fprint(w, "<html>")
		return
	case ok:
		fmt.Fprintf(w, `{"outcome": "done", "result": "order %s is paid"}`, order)
	default:
		b.refused[key] = true
		fmt.Fprint(w, `{"outcome": "not_done", "refused": true}`)
	}
	select {
	case <-b.asked(key):
	default:
		close(b.asked(key))
	}
}

// kill waits for the given number of waiting requests, kills their worker, and lets the rest of the deployment
// notice it.
func (b *bank) kill(s *deployment, want func(waiting int) bool, w *mortal, id string, stop func()) int {
	s.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		n := b.waiting
		b.mu.Unlock()
		if want(n) {
			break
		}
		select {
		case <-b.arrival:
		case <-tick.C:
		case <-deadline.C:
			s.t.Fatalf("%d requests wait", n)
		}
	}
	w.dead.Store(true)
	b.mu.Lock()
	n := b.waiting
	close(b.killed)
	b.killed, b.waiting = make(chan struct{}), 0
	b.mu.Unlock()
	stop()
	for range 10 {
		if due, err := s.store.Evict(s.t.Context(), id, 1000, time.Millisecond); err != nil {
			s.t.Fatal(err)
		} else if len(due) == 0 {
			break
		}
	}
	return n
}

// Workers are killed between a payment's effect and its result, or while the request is in flight. With the
// probe, every order is paid exactly once and the model never reads an unknown outcome (I4). The full test
// kills 1,000 times.
func TestPaymentsAreSettled(t *testing.T) {
	t.Parallel()
	want := 1000
	if testing.Short() {
		want = 100
	}
	const wave = 50
	s, b := newDeployment(t), newBank()
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	guard, err := guard.New([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	pay := agent.Tool{
		Name: "pay", Kind: toolspec.HTTP, Own: tool.EncodeSettings(toolspec.Request{URL: server.URL + "/payments", Method: http.MethodPost}),
		Probe: &tool.Probe{Kind: toolspec.HTTP, Own: tool.EncodeSettings(toolspec.Request{URL: server.URL + "/payments"})},
	}
	config := func() worker.Config {
		cfg := s.config()
		cfg.Kinds[toolspec.HTTP] = httptool.New(guard)
		return cfg
	}
	kills, unknown, runs := 0, 0, 0
	for kills < want {
		var ids []state.RunID
		first := config()
		store := &mortal{Store: s.store}
		stop := s.workOn(store, first)
		for range wave {
			runs++
			ids = append(ids, s.submit(state.Limits{}, []agent.Tool{pay}, model.Scripted{ToolCalls: []model.ScriptedCall{{
				ID: "c1", Name: "pay", Arguments: json.RawMessage(fmt.Sprintf(`{"order": "o%d", "number": %d}`, runs, runs)),
			}}}, model.Scripted{Text: "end"}))
		}
		kills += b.kill(s, func(n int) bool { return n == wave }, store, first.ID, stop)

		// The next worker resumes the turns, and is killed with the calls it has started again.
		second := config()
		store = &mortal{Store: s.store}
		stop = s.workOn(store, second)
		kills += b.kill(s, func(n int) bool { return n == s.left(ids) }, store, second.ID, stop)

		stop = s.work(config())
		for _, id := range ids {
			s.awaitReason(id, state.EndCompleted)
			if strings.Contains(strings.Join(s.transcript(id), "\n"), "outcome of this call is unknown") {
				unknown++
			}
		}
		stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	paid := map[string]int{}
	for _, order := range b.paid {
		paid[order]++
	}
	for order, n := range paid {
		if n > 1 {
			t.Errorf("I4: order %s was paid %d times, requests %v", order, n, b.orders[order])
		}
	}
	if missing := runs - len(paid); missing > unknown {
		t.Errorf("%d of %d orders were not paid", missing, runs)
	}
	if unknown*100 > kills {
		t.Errorf("after %d kills the model read %d times that the outcome is unknown", kills, unknown)
	}
	if b.refusals == 0 {
		t.Error("no request came late")
	}
	t.Logf("%d kills in %d runs, %d questions: %d paid twice, %d requests refused, %d times unknown", kills, runs, b.probes, len(b.paid)-len(paid), b.refusals, unknown)
}

// left returns the number of runs that have not ended.
func (s *deployment) left(ids []state.RunID) int {
	s.t.Helper()
	n := 0
	for _, id := range ids {
		st, err := s.store.Load(s.t.Context(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		if !st.Status.Terminal() {
			n++
		}
	}
	return n
}
