package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// changesReader follows GET /v1/events.
type changesReader struct {
	t     *testing.T
	close func()
	last  string // the latest event id

	mu   sync.Mutex
	seen []api.Change
	more chan struct{}
}

// follow opens a stream and waits until it is open.
func follow(t *testing.T, url, token, last string) *changesReader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // by the goroutine below
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %s", url, resp.Status)
	}
	r := &changesReader{t: t, last: last, more: make(chan struct{}, 1)}
	done := make(chan struct{})
	r.close = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(r.close)
	go func() {
		defer close(done)
		defer resp.Body.Close()
		for in := sse.NewReader(resp.Body); ; {
			e, err := in.Next()
			if err != nil {
				return
			}
			var c api.Change
			if err := json.Unmarshal(e.Data, &c); err != nil || c.Type != e.Type {
				t.Errorf("event %s: %s, %v", e.Type, e.Data, err)
			}
			r.mu.Lock()
			r.seen = append(r.seen, c)
			if e.ID != "" {
				r.last = e.ID
			}
			r.mu.Unlock()
			select {
			case r.more <- struct{}{}:
			default:
			}
		}
	}()
	r.until("the stream is open", func(c api.Change) bool { return c.Type == api.ChangesOpen })
	return r
}

// until waits for a change that ok accepts.
func (r *changesReader) until(what string, ok func(api.Change) bool) {
	r.t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		found := slices.ContainsFunc(r.seen, ok)
		r.mu.Unlock()
		if found {
			return
		}
		select {
		case <-r.more:
		case <-timeout:
			r.t.Fatalf("no change matches: %s; there were %d", what, len(r.seen))
		}
	}
}

func (r *changesReader) run(id, status string) {
	r.t.Helper()
	r.until(id+" "+status, func(c api.Change) bool { return c.Run != nil && c.Run.ID == id && c.Run.Status == status })
}

func (r *changesReader) deleted(id string) {
	r.t.Helper()
	r.until(id+" deleted", func(c api.Change) bool { return c.Type == api.RunDeleted && c.RunID == id })
}

// count returns the number of events of a type.
func (r *changesReader) count(kind string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.seen {
		if c.Type == kind {
			n++
		}
	}
	return n
}

// heard returns the changes of a run so far.
func (r *changesReader) heard(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, c := range r.seen {
		if c.Run != nil && c.Run.ID == id {
			all = append(all, c.Run.Status)
		}
	}
	return all
}

// A reader receives each state change of the tenant's runs. A reader that reconnects receives what it missed,
// from any gateway.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, before := s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	r := follow(t, s.url+"/v1/events", "", "")
	id := s.submit("gated")
	r.run(id, "waiting")
	if code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"approvals":[{"call_id":"c1","decision":"approve"}]}`); code != http.StatusAccepted {
		t.Fatal(p)
	}
	r.run(id, "completed")
	r.close()

	missed := s.submit("hello")
	if _, err := s.client.Wait(t.Context(), missed); err != nil {
		t.Fatal(err)
	}
	again := follow(t, s.url+"/v1/events", "", r.last)
	again.run(missed, "completed")
	if got := again.heard(id); len(got) != 0 {
		t.Errorf("duplicate changes of %s: %v", id, got)
	}
	// Another gateway has no memory of earlier changes.
	there := s.over(s.store, s.bus)
	elsewhere := follow(t, there.url+"/v1/events", "", r.last)
	elsewhere.run(missed, "completed")
	late := s.submit("hello")
	elsewhere.run(late, "completed")
	again.run(late, "completed")
	if before["status"] != "completed" {
		t.Error(before)
	}
}

// A reader that resumes at another gateway gets changes of the newest 1,000 runs. If the tenant has more, and only
// then, the gateway sends stream.reset, so that the reader reloads.
func TestChangesOfManyRuns(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	r := follow(t, s.url+"/v1/events", "", "")
	r.close()
	next := state.FirstIDAt(time.Now())
	for want, more := range []int{1000, 1} {
		for range more {
			if _, err := s.store.Create(t.Context(), state.NewRun{State: submitted(t, next), RedeliveryDelay: time.Hour}); err != nil {
				t.Fatal(err)
			}
			next = next.Plus(1)
		}
		elsewhere := follow(t, s.over(s.store, s.bus).url+"/v1/events", "", r.last)
		if n := elsewhere.count(api.ChangesLost); n != want {
			t.Errorf("told to reload %d times after %d more runs, want %d", n, more, want)
		}
		elsewhere.close()
	}
}

// A reader may select runs by their immutable properties.
func TestChangesOfSome(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	r := follow(t, s.url+"/v1/events?agent=hello&metadata.k=v", "", "")
	_, _, other := s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	_, _, another := s.call("POST", "/v1/runs?wait=2m", `{"agent":"adder","input":"x","metadata":{"k":"v"}}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x","metadata":{"k":"v"}}`)
	r.run(run["id"].(string), "completed")
	for _, v := range []map[string]any{other, another} {
		if got := r.heard(v["id"].(string)); len(got) != 0 {
			t.Errorf("changes of %v: %v", v["agent"], got)
		}
	}
	follow(t, s.url+"/v1/events?tenant=default", "", "")
	for query, code := range map[string]string{"status=running": api.CodeInvalidRequest, "limit=3": api.CodeInvalidRequest, "after=7": api.CodeInvalidCursor, "after=1.x.-1": api.CodeInvalidCursor} {
		if status, _, p := s.call("GET", "/v1/events?"+query, ""); status != http.StatusBadRequest || p["code"] != code {
			t.Errorf("%s = %d %v", query, status, p)
		}
	}
}

// quiet is a bus that loses all notifications.
type quiet struct{ bus.Bus }

func (quiet) WatchAll(context.Context, func(string, state.RunID)) (func(), error) {
	return func() {}, nil
}

func (quiet) WatchDeleted(context.Context, func(string, state.RunID)) (func(), error) {
	return func() {}, nil
}

// mute is a bus that does not answer.
type mute struct{ bus.Bus }

func (mute) WatchAll(context.Context, func(string, state.RunID)) (func(), error) {
	return nil, errors.New("no answer")
}

// Lost notifications delay a change but do not lose it. Without the bus, the stream is refused.
func TestChangesWithoutHints(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	r := follow(t, s.over(s.store, quiet{s.bus}).url+"/v1/events", "", "")
	id := s.submit("hello")
	r.run(id, "completed")
	if code, h, p := s.over(s.store, mute{s.bus}).call("GET", "/v1/events", ""); code != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		t.Errorf("without the bus: %d %v", code, p)
	}
}

// Readers on every gateway are notified of deleted runs, including runs older than the reader and runs outside
// its filter. Other tenants are not.
func TestChangesOfDeletedRuns(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	done := func() string {
		id := s.submit("hello")
		if _, err := s.client.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first, second, last := done(), done(), done()
	there := s.over(s.store, s.bus)
	own, elsewhere := follow(t, s.url+"/v1/events?agent=adder", "", ""), follow(t, there.url+"/v1/events", "", "")
	foreign := follow(t, there.url+"/v1/events?tenant=other", "", "")
	for _, id := range []string{first, second} {
		if err := s.client.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		own.deleted(id)
		elsewhere.deleted(id)
	}
	if n := elsewhere.count(api.RunDeleted); n != 2 {
		t.Errorf("%d deletion events, want 2", n)
	}
	if n := foreign.count(api.RunDeleted); n != 0 {
		t.Errorf("another tenant received %d deletion events", n)
	}
	// A reader that reconnects learns of deletions: a gateway that was running names the runs, and another
	// tells it to reload.
	elsewhere.close()
	if err := s.client.Delete(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	again := follow(t, there.url+"/v1/events", "", elsewhere.last)
	again.deleted(last)
	if n := again.count(api.ChangesLost); n != 0 {
		t.Errorf("told to reload %d times, want 0", n)
	}
	third := follow(t, s.over(s.store, s.bus).url+"/v1/events", "", elsewhere.last)
	if n := third.count(api.ChangesLost); n != 1 {
		t.Errorf("told to reload %d times, want 1", n)
	}
}

// A deletion notice about an existing run creates no event. If a notice is lost, a run that was seen before is
// still reported as deleted.
func TestHintsOfDeletedRuns(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	r, deaf := follow(t, s.url+"/v1/events", "", ""), follow(t, s.over(s.store, quiet{s.bus}).url+"/v1/events", "", "")
	kept, gone := s.submit("hello"), s.submit("hello")
	for _, id := range []string{kept, gone} {
		r.run(id, "completed")
		deaf.run(id, "completed")
	}
	s.bus.Deleted("default", state.RunID(kept))
	if err := s.client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	r.deleted(gone)
	deaf.deleted(gone)
	for _, reader := range []*changesReader{r, deaf} {
		if n := reader.count(api.RunDeleted); n != 1 {
			t.Errorf("%d deletion events, want 1", n)
		}
	}
}

// loads counts reads of runs.
type loads struct {
	state.Store

	mu sync.Mutex
	of map[state.RunID]int
}

func (l *loads) Load(ctx context.Context, id state.RunID) (state.State, error) {
	l.mu.Lock()
	l.of[id]++
	l.mu.Unlock()
	return l.Store.Load(ctx, id)
}

// A run with many notifications is read a few times a second, once for all readers.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	store := &loads{Store: s.store, of: map[state.RunID]int{}}
	there := s.over(store, s.bus)
	id := s.submit("slow")
	var readers []*changesReader
	for range 5 {
		readers = append(readers, follow(t, there.url+"/v1/events", "", ""))
	}
	store.mu.Lock()
	before := store.of[state.RunID(id)] // the reads for its own changes
	store.mu.Unlock()
	began := time.Now()
	for range 20_000 {
		s.bus.NotifyAppended(state.DefaultTenant, state.RunID(id), 1, 2)
	}
	done := s.submit("hello")
	for _, r := range readers {
		r.run(done, "completed")
	}
	most := 2 + int(time.Since(began)/(100*time.Millisecond))
	store.mu.Lock()
	defer store.mu.Unlock()
	if n := store.of[state.RunID(id)] - before; n > most {
		t.Errorf("read %d times, want at most %d", n, most)
	}
}

// A feed does not read runs of other tenants, however many of them change.
func TestChangesOfOthersAreNotRead(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	store := &loads{Store: s.store, of: map[state.RunID]int{}}
	r := follow(t, s.over(store, s.bus).url+"/v1/events", "", "")
	var foreign []state.RunID
	for n := range 1000 {
		id := state.FirstIDAt(time.Now()).Plus(n)
		foreign = append(foreign, id)
		s.bus.NotifyAppended("other", id, 1, 2)
	}
	r.run(s.submit("hello"), "completed")
	store.mu.Lock()
	defer store.mu.Unlock()
	for _, id := range foreign {
		if store.of[id] > 0 {
			t.Fatalf("the gateway read %s of another tenant", id)
		}
	}
}

// A reader receives no changes of another tenant's runs, even if it names one.
func TestChangesOfOneTenant(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	r := follow(t, s.url+"/v1/events", s.key("acme", access.Viewer), "")
	foreign, own := s.run("other"), s.run("acme")
	r.until("the own run", func(c api.Change) bool { return c.Run != nil && c.Run.ID == own.ID })
	if got := r.heard(foreign.ID); len(got) != 0 {
		t.Errorf("received changes of another tenant's run: %v", got)
	}
}

// A summary contains no long texts.
func TestSummary(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("long", `{model: {provider: scripted, responses: [{text: "`+strings.Repeat("é", 5000)+`"}]}}`)
	s.call("POST", "/v1/runs?wait=2m", `{"agent":"long","input":"x"}`)
	_, _, page := s.call("GET", "/v1/runs?agent=long&view=summary", "")
	run := page["items"].([]any)[0].(map[string]any)
	if out := run["output"].(string); len(out) > 410 || !strings.HasSuffix(out, "é…") {
		t.Errorf("output has %d bytes: %.20q", len(out), out)
	}
	_, _, page = s.call("GET", "/v1/runs?agent=long", "")
	if out := page["items"].([]any)[0].(map[string]any)["output"].(string); len(out) != 10_000 {
		t.Errorf("the whole output has %d bytes", len(out))
	}
	if code, _, p := s.call("GET", "/v1/runs?view=all", ""); code != http.StatusBadRequest {
		t.Errorf("view=all = %d %v", code, p)
	}
}
