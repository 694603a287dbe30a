package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed/plain"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// stores are the stores of a deployment, and one in memory.
var stores = map[string]func(t *testing.T) state.Store{
	"memory": func(*testing.T) state.Store { return memstore.New(memstore.Config{}) },
	"redis": func(t *testing.T) state.Store {
		t.Helper()
		s, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: "t-" + strings.ToLower(ulid.Make().String())})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	},
	"nats": func(t *testing.T) state.Store {
		t.Helper()
		s, err := natsstore.Open(t.Context(), testbed.NATS(t), natsstore.Config{Prefix: "t-" + strings.ToLower(ulid.Make().String())})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	},
}

// moments is a worker's store and model. It calls back at chosen moments of a run's first turn.
type moments struct {
	state.Store
	model.Provider

	mu   sync.Mutex
	at   map[string]func(state.RunID) // by moment, once per run
	done map[string]bool
}

func (m *moments) reach(moment string, id state.RunID) {
	m.mu.Lock()
	key := moment + string(id)
	f := m.at[moment]
	if m.done[key] {
		f = nil
	}
	m.done[key] = true
	m.mu.Unlock()
	if f != nil {
		f(id)
	}
}

func (m *moments) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	m.reach("during the model call", r.Run)
	return m.Provider.Generate(ctx, r, onDelta)
}

func (m *moments) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	if !c.State.Status.Terminal() {
		return m.Store.Commit(ctx, l, c)
	}
	m.reach("between decide and commit", l.Run)
	done, err := m.Store.Commit(ctx, l, c)
	if err == nil {
		m.reach("after the commit", l.Run)
	}
	return done, err
}

// final is a deployment on one store, with a callback at a chosen moment.
type final struct {
	t      *testing.T
	client *api.Client
	url    string
	bus    *membus.Bus
	store  state.Store
	at     map[string]func(state.RunID)
}

func newFinal(t *testing.T, store state.Store) *final {
	t.Helper()
	b := membus.New()
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := &final{t: t, bus: b, store: store, at: map[string]func(state.RunID){}}
	m := &moments{Store: store, Provider: scripted.New(), at: f.at, done: map[string]bool{}}
	w, err := worker.New(m, b, worker.Config{
		ID: "w1", Providers: map[string]model.Provider{"scripted": m}, ShutdownGrace: time.Millisecond, Without: plain.Without(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	wg.Go(func() { _ = g.Run(ctx) })
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { cancel(); server.Close(); wg.Wait() })
	f.client, f.url = api.New(server.URL), server.URL
	if _, err := f.client.PutAgent(ctx, "talk", []byte(`{model: {provider: scripted, responses: [{text: first}, {text: second}, {text: third}]}}`)); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *final) say(id state.RunID, text string) {
	if _, err := f.client.Signal(context.Background(), string(id), api.SignalRequest{Message: json.RawMessage(fmt.Sprintf("%q", text))}); err != nil {
		f.t.Errorf("message %q: %v", text, err)
	}
}

func (f *final) cancel(id state.RunID) {
	resp, err := http.Post(f.url+"/v1/runs/"+string(id)+"/cancel", "application/json", strings.NewReader(`{}`)) //nolint:noctx // closed when the test ends
	if err != nil {
		f.t.Error(err)
		return
	}
	_ = resp.Body.Close()
}

// run submits a run and returns the answer to ?wait and its events up to the end of the stream.
func (f *final) run() (api.Run, []api.Event) {
	f.t.Helper()
	resp, err := http.Post(f.url+"/v1/runs?wait=2m", "application/json", strings.NewReader(`{"agent":"talk","input":"x"}`)) //nolint:noctx // closed when the test ends
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	var run api.Run
	if err := json.NewDecoder(resp.Body).Decode(&run); err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("the run is %+v: %d, %v", run, resp.StatusCode, err)
	}
	return run, f.again(run.ID)
}

// again reads the stream of a run from its beginning to its end.
func (f *final) again(id string) []api.Event {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer stop()
	var events []api.Event
	for e, err := range f.client.Events(ctx, id, 0) {
		if err != nil {
			f.t.Fatalf("events: %v", err)
		}
		if e.Seq > 0 {
			events = append(events, e)
		}
	}
	return events
}

// reply submits a run over the bus and returns the replies once one of them has the output.
func (f *final) reply(subject, output string) []api.Run {
	f.t.Helper()
	f.bus.Submit("default", "talk", []byte(`{"input":"x"}`), map[string]string{"Turnpike-Reply": subject})
	deadline, tick := time.NewTimer(2*time.Minute), time.NewTicker(5*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		var runs []api.Run
		for _, data := range f.bus.Replies(subject) {
			var run api.Run
			if err := json.Unmarshal(data, &run); err != nil {
				f.t.Fatal(err)
			}
			runs = append(runs, run)
		}
		if slices.ContainsFunc(runs, func(r api.Run) bool { return r.Output != nil && *r.Output == output }) {
			return runs
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			f.t.Fatalf("%d replies, none is %q", len(runs), output)
		}
	}
}

func ends(events []api.Event) int {
	n := 0
	for _, e := range events {
		if e.Type == state.EntryFinished {
			n++
		}
	}
	return n
}

// A message to a run during its last turn precedes run.finished, which is then the last event; ?wait, the reply
// and the stream agree. A message after the end was committed continues the run, with a transition.
func TestFinishedIsFinal(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, moment := range []string{"during the model call", "between decide and commit"} {
				f := newFinal(t, open(t))
				f.at[moment] = func(id state.RunID) { f.say(id, "one more thing") }
				run, events := f.run()
				if run.Status != "completed" || run.Output == nil || *run.Output != "second" {
					t.Errorf("%s: ?wait answers %s, %v", moment, run.Status, run.Output)
				}
				last := events[len(events)-1]
				if n := ends(events); n != 1 || last.Type != state.EntryFinished || last.Output == nil || *last.Output != "second" {
					t.Errorf("%s: run.finished appears %d times, the last event is %s", moment, n, last.Type)
				}
				if !slices.ContainsFunc(events, func(e api.Event) bool {
					return e.Type == state.EntryTransition && e.Reason == state.UserMessage && len(e.Messages) == 1 && e.Messages[0].Text() == "one more thing"
				}) {
					t.Errorf("%s: no transition has the message", moment)
				}
				if replies := f.reply("reply."+strings.ReplaceAll(moment, " ", "_"), "second"); len(replies) != 1 {
					t.Errorf("%s: %d replies, want one", moment, len(replies))
				}
			}

			f := newFinal(t, open(t))
			said := make(chan struct{}, 2)
			f.at["after the commit"] = func(id state.RunID) { f.say(id, "one more thing"); said <- struct{}{} }
			_, events := f.run()
			<-said
			for n := 0; ends(events) < 2 && n < 1000; n++ { // the stream may have ended with the first
				events = f.again(events[0].RunID)
			}
			var reasons []string
			for _, e := range events {
				if e.Version > 0 {
					reasons = append(reasons, fmt.Sprint(e.Type, " ", e.Reason))
				}
			}
			want := []string{"run.submitted submitted", "run.finished completed", "transition user_message", "run.finished completed"}
			if !slices.Equal(reasons, want) {
				t.Errorf("after the commit: %q, want %q", reasons, want)
			}
			f.reply("reply.after", "second")
		})
	}
}

// Messages before a cancellation are in the log, marked as undelivered, even if both arrive after the end of
// the run was decided and before it is committed.
func TestUndeliveredAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFinal(t, open(t))
			f.at["between decide and commit"] = func(id state.RunID) {
				f.say(id, "before")
				f.cancel(id)
			}
			run, events := f.run()
			if run.Status != "completed" {
				t.Errorf("the run is %s", run.Status)
			}
			last := events[len(events)-1]
			if ends(events) != 1 || last.Type != state.EntryFinished || len(last.Messages) != 1 || last.Messages[0].Text() != "before" || !last.Messages[0].Undelivered {
				t.Errorf("the last event is %s with %+v", last.Type, last.Messages)
			}
		})
	}
}
