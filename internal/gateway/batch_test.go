package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed/plain"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// faulty is a store that fails selected calls, before or after executing them, and records what was finalized.
type faulty struct {
	state.Store

	fail func(call string, id state.RunID) error

	mu        sync.Mutex
	finalized map[state.RunID]int64 // number of log entries
}

func (f *faulty) broken(call string, id state.RunID) error {
	if f.fail == nil {
		return nil
	}
	return f.fail(call, id)
}

func (f *faulty) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if err := f.broken("create", n.State.ID); err != nil {
		return state.Created{}, err
	}
	return f.Store.Create(ctx, n)
}

func (f *faulty) Signal(ctx context.Context, id state.RunID, s state.Signal, delay time.Duration) (state.Wake, error) {
	if err := f.broken("signal", id); err != nil {
		return state.Wake{}, err
	}
	w, err := f.Store.Signal(ctx, id, s, delay)
	if err := f.broken("signalled", id); err != nil {
		return state.Wake{}, err
	}
	return w, err
}

func (f *faulty) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	f.mu.Lock()
	f.finalized[id] = max(f.finalized[id], seq)
	f.mu.Unlock()
	return f.Store.MarkFinalized(ctx, id, seq)
}

// lot is a gateway with three workers whose tool counts the runs in flight.
type lot struct {
	*deployment

	store *faulty
	calls chan toolCall

	mu         sync.Mutex
	under, max int
}

// toolCall is a call of the tool "work" that continues when it is released.
type toolCall struct {
	run   state.RunID
	letGo func()
}

func newLot(t *testing.T, store state.Store, b bus.Bus) *lot {
	t.Helper()
	l := &lot{store: &faulty{Store: store, finalized: map[state.RunID]int64{}}, calls: make(chan toolCall, 100)}
	g, err := gateway.New(l.store, b, gateway.Config{RedeliveryDelay: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 3 {
		w, err := worker.New(l.store, b, worker.Config{
			ID: fmt.Sprint("w", i), Providers: map[string]model.Provider{"scripted": scripted.New()},
			Without: plain.Without(), ShutdownGrace: time.Millisecond, SweepInterval: 10 * time.Millisecond, RedeliveryDelay: 50 * time.Millisecond,
			Kinds: toolspec.Kinds(map[string]tool.Tool{"work": tool.Func(l.work)}),
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = w.Run(ctx) })
	}
	wg.Go(func() { _ = g.Run(ctx) })
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { cancel(); server.Close(); wg.Wait() })
	l.deployment = &deployment{t: t, url: server.URL, client: api.New(server.URL)}
	l.put("worker", `{model: {provider: scripted, responses: [{tool_calls: [{name: work, id: c1}]}, {text: done}]}, tools: [{name: work, idempotent: true}]}`)
	l.put("hello", `{model: {provider: scripted, responses: [{text: hi}]}}`)
	return l
}

func newMemoryLot(t *testing.T) *lot {
	t.Helper()
	return newLot(t, memstore.New(memstore.Config{}), membus.New())
}

func (l *lot) work(ctx context.Context, c tool.Call) (tool.Result, error) {
	l.mu.Lock()
	l.under++
	l.max = max(l.max, l.under)
	l.mu.Unlock()
	defer func() { l.mu.Lock(); l.under--; l.mu.Unlock() }()
	done := make(chan struct{})
	l.calls <- toolCall{c.Run, sync.OnceFunc(func() { close(done) })}
	select {
	case <-done:
		return tool.Result{Content: "ok"}, nil
	case <-ctx.Done():
		return tool.Result{}, ctx.Err()
	}
}

// next waits for a call of the tool.
func (l *lot) next() toolCall {
	l.t.Helper()
	select {
	case c := <-l.calls:
		return c
	case <-time.After(2 * time.Minute):
		l.t.Fatal("no run started")
		return toolCall{}
	}
}

// batch submits n runs of an agent.
func (l *lot) batch(agent string, n, parallel int, key string) api.BatchAccepted {
	l.t.Helper()
	b, err := l.client.SubmitBatch(l.t.Context(), request(agent, n, parallel), key)
	if err != nil {
		l.t.Fatal(err)
	}
	if len(b.RunIDs) != n {
		l.t.Fatalf("%d runs were accepted, want %d", len(b.RunIDs), n)
	}
	return b
}

func request(agent string, n, parallel int) api.BatchRequest {
	req := api.BatchRequest{MaxParallel: parallel}
	for i := range n {
		req.Runs = append(req.Runs, api.SubmitRequest{Agent: agent, Input: json.RawMessage(fmt.Sprintf(`"input %d"`, i))})
	}
	return req
}

// wait follows a batch to its end and returns how its runs ended.
func (l *lot) wait(id string) (api.Batch, []string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Minute)
	defer cancel()
	b, err := l.client.WaitBatch(ctx, id, nil)
	if err != nil {
		l.t.Fatalf("WaitBatch: %v; the batch is %v", err, b.Counts)
	}
	var reasons []string
	for _, run := range b.Items {
		reasons = append(reasons, *run.Reason)
	}
	return b, reasons
}

func (l *lot) load(id string) state.State {
	l.t.Helper()
	st, err := l.store.Load(l.t.Context(), state.RunID(id))
	if err != nil {
		l.t.Fatal(err)
	}
	return st
}

// awaitFinalized waits until the first n entries of a run are finalized.
func (l *lot) awaitFinalized(id string, n int64) {
	l.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		l.store.mu.Lock()
		finalized := l.store.finalized[state.RunID(id)]
		l.store.mu.Unlock()
		if finalized >= n {
			return
		}
	}
	l.t.Fatalf("run %s was never finalized", id)
}

// A batch of seven runs with max_parallel 2 never exceeds two, each lane keeps its order, and all runs end, on
// every store (L8).
func TestBatchLimit(t *testing.T) {
	t.Parallel()
	prefix := func() string { return "t-" + strings.ToLower(ulid.Make().String()) }
	open := map[string]func(t *testing.T) (state.Store, bus.Bus){
		"memory": func(*testing.T) (state.Store, bus.Bus) { return memstore.New(memstore.Config{}), membus.New() },
		"nats": func(t *testing.T) (state.Store, bus.Bus) {
			t.Helper()
			nc, p := testbed.NATS(t), prefix()
			s, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: p})
			if err != nil {
				t.Fatal(err)
			}
			b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: p})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = b.Close(), s.Close() })
			return s, b
		},
		"redis": func(t *testing.T) (state.Store, bus.Bus) {
			t.Helper()
			s, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: prefix()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s, membus.New()
		},
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, b := open(t)
			l := newLot(t, store, b)
			accepted := l.batch("worker", 7, 2, "")
			var order []int
			held := []toolCall{l.next(), l.next()}
			for len(held) > 0 {
				if b, err := l.client.Batch(t.Context(), accepted.BatchID); err != nil || b.Counts["queued"]+b.Counts["running"] > 2 || b.Done {
					t.Errorf("while runs are working the batch is %v, done %v, %v", b.Counts, b.Done, err)
				}
				i := slices.Index(accepted.RunIDs, string(held[0].run))
				order = append(order, i)
				held[0].letGo()
				held = held[1:]
				if i+2 < 7 {
					held = append(held, l.next())
				}
			}
			end, reasons := l.wait(accepted.BatchID)
			if diff := cmp.Diff(slices.Repeat([]string{"completed"}, 7), reasons); diff != "" {
				t.Errorf("ends:\n%s", diff)
			}
			if !end.Done || end.Total != 7 || end.MaxParallel != 2 || end.CreatedAt.IsZero() || !maps.Equal(end.Counts, map[string]int{"completed": 7}) {
				t.Errorf("batch = %+v", end)
			}
			for lane := range 2 {
				mine := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i%2 != lane })
				if !slices.IsSorted(mine) {
					t.Errorf("lane %d ran in the order %v", lane, mine)
				}
			}
			if l.max != 2 {
				t.Errorf("%d runs were working at once, want 2", l.max)
			}
			for i, run := range end.Items {
				if run.Index != i || run.ID != accepted.RunIDs[i] {
					t.Errorf("item %d = %+v, want %s", i, run, accepted.RunIDs[i])
				}
			}
		})
	}
}

// A pending run that is cancelled ends at once without using a slot. Its lane continues once the run before it
// has ended.
func TestBatchCancelPending(t *testing.T) {
	t.Parallel()
	l := newMemoryLot(t)
	b := l.batch("worker", 5, 1, "")
	first := l.next()
	for _, i := range []int{2, 1, 3} {
		if _, err := l.client.Cancel(t.Context(), b.RunIDs[i], "not this one"); err != nil {
			t.Fatal(err)
		}
		l.awaitFinalized(b.RunIDs[i], 3)
		if st := l.load(b.RunIDs[i]); st.Transition.Reason != state.EndAbortedWaiting {
			t.Errorf("run %d ended %s", i, st.Transition.Reason)
		}
	}
	l.awaitFinalized(b.RunIDs[4], 2) // the sweeper's first pass
	if behind := l.load(b.RunIDs[4]); !behind.PendingInBatch() {
		t.Error("the run behind the cancelled one started while the first was working")
	}
	first.letGo()
	last := l.next()
	if string(last.run) != b.RunIDs[4] {
		t.Errorf("run %s started, want %s", last.run, b.RunIDs[4])
	}
	last.letGo()
	if _, reasons := l.wait(b.BatchID); !slices.Equal(reasons, []string{"completed", "aborted_waiting", "aborted_waiting", "aborted_waiting", "completed"}) {
		t.Errorf("ends: %v", reasons)
	}
}

// A worker that dies between the commit that ends a run and the start of the next does not stop its lane, and
// neither does a lost answer (I2).
func TestBatchSurvivesLostStarts(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"signal", "signalled"} {
		l := newMemoryLot(t)
		var mu sync.Mutex
		failures := map[state.RunID]int{}
		l.store.fail = func(call string, id state.RunID) error {
			mu.Lock()
			defer mu.Unlock()
			if call != lost || failures[id] == 2 {
				return nil
			}
			failures[id]++
			return errors.New("connection lost")
		}
		b := l.batch("hello", 5, 2, "")
		if _, reasons := l.wait(b.BatchID); !slices.Equal(reasons, slices.Repeat([]string{"completed"}, 5)) {
			t.Errorf("%s: ends: %v", lost, reasons)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(failures) != 3 {
			t.Errorf("%s: %d starts were lost, want 3", lost, len(failures))
		}
	}
}

// A run starts as soon as it is stored if no other run is ahead of it, although later runs are not stored yet
// (L8).
func TestBatchStartsWhileItIsStored(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, func(c *worker.Config) { c.SweepInterval = time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var first atomic.Value
	there := s.over(&faulty{Store: s.store, fail: func(_ string, id state.RunID) error {
		if first.CompareAndSwap(nil, string(id)) {
			return nil
		}
		_, err := s.client.Wait(ctx, first.Load().(string))
		return err
	}}, s.bus)
	if _, err := there.client.SubmitBatch(ctx, request("hello", 3, 0), ""); err != nil {
		t.Error(err)
	}
}

// The runs that a gateway had stored before it failed execute, and the same submission adds the rest of the
// same batch (I2).
func TestBatchIsCompleted(t *testing.T) {
	t.Parallel()
	l := newMemoryLot(t)
	var lost atomic.Bool // fails the connection after three runs
	lost.Store(true)
	var mu sync.Mutex
	var created []string
	l.store.fail = func(call string, id state.RunID) error {
		mu.Lock()
		defer mu.Unlock()
		if call != "create" || !lost.Load() {
			return nil
		}
		if len(created) == 3 {
			return errors.New("connection lost")
		}
		created = append(created, string(id))
		return nil
	}
	_, err := l.client.SubmitBatch(t.Context(), request("hello", 5, 1), "k1")
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 503 {
		t.Fatalf("SubmitBatch = %v, want 503", err)
	}
	// The third run ends before the fourth exists.
	for _, id := range created {
		if run, err := l.client.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		} else if !run.Terminal() {
			l.events(id, 0, nil)
		}
	}
	lost.Store(false)
	b := l.batch("hello", 5, 1, "k1")
	if !slices.Equal(b.RunIDs[:3], created) {
		t.Errorf("runs %v, of which %v existed", b.RunIDs, created)
	}
	if _, reasons := l.wait(b.BatchID); !slices.Equal(reasons, slices.Repeat([]string{"completed"}, 5)) {
		t.Errorf("ends: %v", reasons)
	}
	if again := l.batch("hello", 5, 1, "k1"); !cmp.Equal(again, b) {
		t.Errorf("the repeated submission = %v, was %v", again, b)
	}
	_, err = l.client.SubmitBatch(t.Context(), request("hello", 4, 1), "k1")
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeIdempotencyConflict {
		t.Errorf("a different batch under the key = %v", err)
	}
}

// A run of a batch accepts every field of a submission. A run with a later start holds its slot, and messages
// to a pending run are there when it starts.
func TestBatchRunsAreRuns(t *testing.T) {
	t.Parallel()
	l := newMemoryLot(t)
	at := time.Now().Add(300 * time.Millisecond).UTC().Format(time.RFC3339Nano)
	code, header, body := l.call("POST", "/v1/runs:batch", fmt.Sprintf(`{"max_parallel":1,"runs":[
		{"agent":"worker","input":"a","priority":"high","metadata":{"n":"0"}},
		{"agent":"hello","input":"b","start_at":%q},
		{"agent":"hello","input":[{"role":"user","content":"c"}],"limits":{"max_turns":3},"metadata":{"n":"2"}}]}`, at))
	if code != 202 || header.Get("Location") != "/v1/batches/"+body["batch_id"].(string) {
		t.Fatalf("POST = %d %v, %v", code, body, header)
	}
	ids := body["run_ids"].([]any)
	work := l.next()
	_, _, run := l.call("GET", "/v1/runs/"+ids[2].(string), "")
	waiting, _ := run["waiting"].(map[string]any)
	if run["status"] != "waiting" || run["reason"] != "waiting_schedule" || waiting["expires_at"] != nil || run["transition"].(map[string]any)["detail"] != "batch" {
		t.Errorf("a pending run is %v, waiting %v", run["status"], waiting)
	}
	if code, _, p := l.call("POST", "/v1/runs/"+ids[2].(string)+"/signals", `{"message":"and d"}`); code != 202 {
		t.Fatalf("message to a pending run = %d %v", code, p)
	}
	work.letGo()
	l.wait(body["batch_id"].(string))
	if st := l.load(ids[1].(string)); st.UpdatedAt.Before(l.load(ids[0].(string)).FinishedAt.Time) || st.FinishedAt.Format(time.RFC3339Nano) < at {
		t.Errorf("the run with start_at %s ended at %s", at, st.FinishedAt)
	}
	messages, err := l.client.Messages(t.Context(), ids[2].(string))
	if err != nil || len(messages) != 3 || messages[1].Text() != "and d" {
		t.Errorf("messages = %v, %v", messages, err)
	}
	_, _, page := l.call("GET", "/v1/runs?batch="+body["batch_id"].(string)+"&metadata.n=2", "")
	if items := page["items"].([]any); len(items) != 1 || items[0].(map[string]any)["id"] != ids[2] {
		t.Errorf("list of the batch's runs = %v", items)
	}
	_, _, page = l.call("GET", "/v1/batches/"+body["batch_id"].(string)+"?limit=2", "")
	if items := page["items"].([]any); len(items) != 2 || page["total"] != 3.0 || page["next_cursor"] == nil {
		t.Errorf("a page of the batch = %v", page)
	}
	_, _, page = l.call("GET", fmt.Sprintf("/v1/batches/%s?limit=2&cursor=%s", body["batch_id"], page["next_cursor"]), "")
	if items := page["items"].([]any); len(items) != 1 || items[0].(map[string]any)["index"] != 2.0 || page["next_cursor"] != nil {
		t.Errorf("the last page of the batch = %v", page)
	}
}

// A batch with an invalid run is refused as a whole.
func TestBatchProblems(t *testing.T) {
	t.Parallel()
	l := newMemoryLot(t)
	const good = `{"agent":"hello","input":"x"}`
	with := func(run string) string { return `{"runs":[` + good + `,` + run + `]}` }
	lone := l.submit("hello")
	for _, tt := range []struct {
		method, path, body string
		status             int
		code, says         string
	}{
		{"POST", "/v1/runs:batch", ``, 400, "invalid_json", "empty"},
		{"POST", "/v1/runs:batch", `{}`, 400, "invalid_request", "runs has 0 entries"},
		{"POST", "/v1/runs:batch", `{"runs":{}}`, 400, "invalid_json", "runs"},
		{"POST", "/v1/runs:batch", `{"run":[]}`, 400, "invalid_json", `"run"`},
		{"POST", "/v1/runs:batch", `{"runs":[` + strings.Repeat(good+",", 1000) + good + `]}`, 400, "invalid_request", "1001"},
		{"POST", "/v1/runs:batch", `{"runs":[` + good + `],"max_parallel":0}`, 400, "invalid_request", "max_parallel is 0"},
		{"POST", "/v1/runs:batch", `{"runs":[` + good + `],"max_parallel":1.5}`, 400, "invalid_json", "max_parallel"},
		{"POST", "/v1/runs:batch", with(`7`), 400, "invalid_json", "runs[1]"},
		{"POST", "/v1/runs:batch", with(`null`), 400, "invalid_request", "runs[1]: agent"},
		{"POST", "/v1/runs:batch", with(`{"input":"x"}`), 400, "invalid_request", "runs[1]: agent"},
		{"POST", "/v1/runs:batch", with(`{"agent":"nobody","input":"x"}`), 404, "agent_not_found", "runs[1]: there is no agent"},
		{"POST", "/v1/runs:batch", with(`{"agent":"hello","input":"x","prio":"low"}`), 400, "invalid_json", `runs[1]: unknown field "prio"`},
		{"POST", "/v1/runs:batch", with(`{"agent":"hello","input":"x","priority":"urgent"}`), 400, "invalid_request", "runs[1]: priority"},
		{"POST", "/v1/runs:batch", with(`{"agent":"hello","input":""}`), 400, "invalid_request", "runs[1]: input"},
		{"POST", "/v1/runs:batch", with(`{"agent":"hello","input":"` + strings.Repeat("x", 1<<20) + `"}`), 413, "body_too_large", "runs[1]"},
		{"POST", "/v1/runs:batch", strings.Repeat(" ", 8<<20) + `{}`, 413, "body_too_large", ""},
		{"GET", "/v1/batches/42", ``, 400, "invalid_id", "batch_"},
		{"GET", "/v1/batches/batch_01JD3X9K3W8Q4V5N6M7P8R9S0T", ``, 404, "batch_not_found", ""},
		{"GET", "/v1/batches/batch_" + strings.TrimPrefix(lone, "run_"), ``, 404, "batch_not_found", ""},
		{"GET", "/v1/runs?batch=42", ``, 400, "invalid_id", "batch_"},
	} {
		code, _, p := l.call(tt.method, tt.path, tt.body)
		detail, _ := p["detail"].(string)
		if code != tt.status || p["code"] != tt.code || !strings.Contains(detail, tt.says) {
			t.Errorf("%s %s %.80s\n  = %d %v; want %d %s with %q", tt.method, tt.path, tt.body, code, p, tt.status, tt.code, tt.says)
		}
	}
	if page, err := l.client.List(t.Context(), nil); err != nil || len(page.Items) != 1 {
		t.Errorf("%d runs exist, %v; those of refused batches must not", len(page.Items), err)
	}
}

// WaitBatch reports each run once when it has ended, and each run that starts to wait for a person (L8).
func TestWaitBatchReports(t *testing.T) {
	t.Parallel()
	l := newMemoryLot(t)
	l.put("gated", `{model: {provider: scripted, responses: [{tool_calls: [{name: work, id: c1}]}, {text: fine}]}, tools: [{name: work, approval: always}]}`)
	req := request("hello", 3, 0)
	req.Runs[1].Agent = "gated"
	accepted, err := l.client.SubmitBatch(t.Context(), req, "")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	b, err := l.client.WaitBatch(t.Context(), accepted.BatchID, func(b api.Batch, run api.Run) {
		told[run.ID] = append(told[run.ID], run.Status)
		if b.Total != 3 || b.Counts[run.Status] == 0 {
			t.Errorf("WaitBatch reported a run that is %s in a batch that is %v", run.Status, b.Counts)
		}
		if run.Waiting != nil {
			if _, err := l.client.Signal(t.Context(), run.ID, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}); err != nil {
				t.Error(err)
			}
			l.next().letGo()
		}
	})
	if err != nil || !b.Done {
		t.Fatalf("WaitBatch = %+v, %v", b, err)
	}
	want := map[string][]string{
		accepted.RunIDs[0]: {"completed"}, accepted.RunIDs[1]: {"waiting", "completed"}, accepted.RunIDs[2]: {"completed"},
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("WaitBatch reported (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.client.WaitBatch(ctx, accepted.BatchID, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitBatch with an ended context = %v", err)
	}
	if _, err := l.client.WaitBatch(t.Context(), "batch_01JD3X9K3W8Q4V5N6M7P8R9S0T", nil); err == nil {
		t.Error("WaitBatch for a batch that does not exist waits")
	}
}

// The output schemas of the runs of a batch have limits together; runs with the same schema share it.
func TestBatchOfHostileSchemas(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("a", `{"model": {"provider": "scripted"}}`)
	batch := func(title func(int) int) string {
		var runs []string
		for i := range 60 {
			runs = append(runs, fmt.Sprintf(`{"agent": "a", "input": "x", "output_schema": {"title": "%d", "properties": {%s}}}`, title(i), `"p": {"pattern": "(a?){900}"}, "q": {"pattern": "(a?){900}"}`))
		}
		return `{"max_parallel": 1, "runs": [` + strings.Join(runs, ",") + `]}`
	}
	code, _, p := s.call("POST", "/v1/runs:batch", batch(func(i int) int { return i }))
	if want := "output_schema: the regular expressions of the output schemas of the batch are together too complex"; code != 400 || p["code"] != "invalid_request" || !strings.Contains(fmt.Sprint(p["detail"]), want) {
		t.Errorf("a batch with distinct schemas = %d %.300v, want %s", code, p, want)
	}
	if code, _, p := s.call("POST", "/v1/runs:batch", batch(func(int) int { return 0 })); code != 202 {
		t.Errorf("a batch with one schema = %d %.300v", code, p)
	}
}
