package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// Only operators and admins of the whole deployment may decide about its store, and only its viewers see the
// affected runs. Without a waiting decision there is nothing to decide.
func TestWhoDecidesAboutTheStore(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	for _, c := range []struct {
		tenant         string
		role           access.Role
		looks, decides string
	}{
		{"acme", access.Operator, api.CodeForbidden, api.CodeForbidden},
		{"acme", access.Admin, api.CodeForbidden, api.CodeForbidden},
		{"*", access.Viewer, "", api.CodeForbidden},
		{"*", access.Operator, "", api.CodeNoRestore},
		{"*", access.Admin, "", api.CodeNoRestore},
	} {
		as := api.New(s.url, api.WithToken(s.key(c.tenant, c.role)))
		_, looked := as.Restore(t.Context())
		_, accepted := as.AcceptRestore(t.Context())
		_, abandoned := as.AbandonRestore(t.Context())
		for what, got := range map[string]struct {
			err  error
			want string
		}{"status": {looked, c.looks}, "accept": {accepted, c.decides}, "abandon": {abandoned, c.decides}} {
			code := ""
			if p, ok := errors.AsType[*api.Problem](got.err); ok {
				code = p.Code
			}
			if code != got.want || got.err != nil && code == "" {
				t.Errorf("%s by a %s of %s: %v, want %q", what, c.role, c.tenant, got.err, got.want)
			}
		}
	}
}

// mark is the mark of a store, and of a bus whose mark is 100.
type mark struct{ store atomic.Int64 }

func (m *mark) Marks(context.Context) (least, greatest int64, err error) {
	return m.store.Load(), m.store.Load(), nil
}

func (m *mark) RaiseMarks(ctx context.Context, _, _ int64) (least, greatest int64, err error) {
	return m.Marks(ctx)
}

func (m *mark) SetFloor(int64) {}

func (m *mark) Mark(context.Context) (data []byte, revision uint64, at time.Time, err error) {
	return []byte(`{"count": 100}`), 1, time.Now(), nil
}

func (m *mark) ReplaceMark(context.Context, []byte, uint64) (moved bool, err error) {
	return false, nil
}

// While an older copy of the store waits for the decision, a run that it lacks does not count as missing: a request
// that waits for the run continues to wait, and other requests may be repeated. A run of another tenant does not differ
// from a missing one.
func TestMissingRunDuringRestore(t *testing.T) {
	t.Parallel()
	memory, m, log := memstore.New(memstore.Config{}), &mark{}, slog.New(slog.DiscardHandler)
	m.store.Store(100)
	watch := restore.NewWatch(m, m, log)
	look := func(mark int64, waits bool) {
		t.Helper()
		m.store.Store(mark)
		if err := watch.Look(t.Context()); err != nil || watch.Waiting() != waits {
			t.Fatalf("a store with the mark %d: waiting %v, %v", mark, watch.Waiting(), err)
		}
	}
	look(100, false)
	b, store := membus.New(), watch.Store(memory)
	g, err := gateway.New(store, b, gateway.Config{Restore: restore.NewReview(watch, store, nil)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	s := &deployment{t: t, url: server.URL, client: api.New(server.URL)}
	s.put("hello", `{model: {provider: scripted, responses: [{text: hi}]}}`)
	foreign := state.State{ID: state.FirstIDAt(time.Now()), Agent: "hello", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}
	if foreign, err = foreign.Move(state.Submitted, state.Entry{At: state.At(time.Now())}); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Create(t.Context(), state.NewRun{State: foreign, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	before := memory.Snapshot()
	submit := func(query string) (int, map[string]any) {
		code, _, run := s.call("POST", "/v1/runs"+query, `{"agent": "hello", "input": "x"}`)
		return code, run
	}
	_, lost := submit("")
	id, _ := lost["id"].(string)
	_, _, batch := s.call("POST", "/v1/runs:batch", `{"runs": [{"agent": "hello", "input": "x"}]}`)
	batchID, _ := batch["batch_id"].(string)
	type answer struct {
		code int
		run  map[string]any
	}
	answers := make(chan answer, 2)
	wait := func(query string) {
		code, run := submit(query)
		answers <- answer{code, run}
	}
	go wait("?wait=10m") // these end with the test
	go wait("?wait=5s")  // longer than the reads after which a run counts as lost
	eventually(t, "both runs are stored", func() bool {
		page, err := memory.List(t.Context(), state.Filter{Tenant: state.DefaultTenant})
		return err == nil && len(page.Runs) == 4
	})
	look(0, true)
	memory.Restore(before)

	for path, method := range map[string]string{
		"/v1/runs/" + id: "GET", "/v1/runs/" + id + "/messages": "GET", "/v1/runs/" + id + "/events": "GET", "/v1/runs/" + id + "/cancel": "POST",
		"/v1/batches/" + batchID: "GET", "/v1/runs/" + string(foreign.ID): "GET", "/v1/runs/" + string(state.FirstIDAt(time.Unix(1, 0))): "GET",
	} {
		code, header, p := s.call(method, path, "")
		if code != http.StatusServiceUnavailable || p["code"] != api.CodeWaitingRestore || header.Get("Retry-After") == "" {
			t.Errorf("%s %s: %d, Retry-After %q, %v", method, path, code, header.Get("Retry-After"), p)
		}
	}
	if a := <-answers; a.code != http.StatusAccepted || a.run["status"] != "queued" || !strings.HasPrefix(a.run["id"].(string), state.RunPrefix) {
		t.Errorf("the end of the shorter wait: %d %v", a.code, a.run)
	}
	look(100, false) // as after the decision
	if a := <-answers; a.code != http.StatusOK || a.run["reason"] != "lost" {
		t.Errorf("the longer wait: %d %v", a.code, a.run)
	}
	if code, _, p := s.call("GET", "/v1/runs/"+string(foreign.ID), ""); code != http.StatusNotFound || p["code"] != api.CodeRunNotFound {
		t.Errorf("a run of another tenant after the decision: %d %v", code, p)
	}
}
