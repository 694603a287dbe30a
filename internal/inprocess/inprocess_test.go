package inprocess_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/inprocess"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newProcess returns the clients of a process with the agent hello.
func newProcess(t *testing.T) (*inprocess.Process, *inprocess.Client) {
	t.Helper()
	return newProcessOn(t, memstore.New(memstore.Config{}), membus.New())
}

func newProcessOn(t *testing.T, store state.Store, b bus.Bus) (*inprocess.Process, *inprocess.Client) {
	t.Helper()
	g, err := gateway.New(store, b, gateway.Config{MaxBody: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	p := inprocess.New(g.Inside())
	t.Cleanup(func() { p.Close(); g.Close() })
	c := p.As(api.Principal{Name: "test", Roles: access.Roles()})
	if _, err := c.PutAgent(t.Context(), "hello", []byte(`{model: {provider: scripted, responses: [{text: hi}]}}`)); err != nil {
		t.Fatal(err)
	}
	return p, c
}

func submit(t *testing.T, c *inprocess.Client) api.Run {
	t.Helper()
	run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: api.Text("Hello."), Metadata: map[string]string{"a": "b"}}, "key")
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// end ends a run, as a worker does.
func end(t *testing.T, store state.Store, b bus.Bus, id state.RunID) {
	t.Helper()
	c, err := store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "t", Worker: "w", Lease: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	st, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &st, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	b.NotifyAppended(st.Tenant, id, c.State.LogLen(), st.LogLen())
}

// Events yields the stored events, and those that follow, until the run has ended.
func TestEvents(t *testing.T) {
	t.Parallel()
	store, b := memstore.New(memstore.Config{}), membus.New()
	_, c := newProcessOn(t, store, b)
	run := submit(t, c)
	var types []string
	last := int64(0)
	for e, err := range c.Events(t.Context(), run.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != last+1 {
			t.Errorf("event %d follows %d", e.Seq, last)
		}
		last = e.Seq
		if types = append(types, string(e.Type)); len(types) == 1 {
			end(t, store, b, state.RunID(run.ID))
		}
	}
	if got := strings.Join(types, " "); got != "run.submitted run.finished" {
		t.Errorf("events %s", got)
	}
}

// A caller that leaves the loop ends the reader; a run that does not exist is an error.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	_, c := newProcess(t)
	run := submit(t, c)
	for range c.Events(t.Context(), run.ID, 0) {
		break
	}
	var got error
	for _, err := range c.Events(t.Context(), "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", 0) {
		got = err
	}
	if !errors.Is(got, api.ErrNotFound) {
		t.Errorf("events of a missing run: %v", got)
	}
}

// failing is a store that cannot read runs any more once fail is set.
type failing struct {
	state.Store

	fail atomic.Pointer[func() error]
}

func (s *failing) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if fail := s.fail.Load(); fail != nil {
		return state.State{}, (*fail)()
	}
	return s.Store.Load(ctx, id)
}

// A stream whose reader has ended does not end without an error if its run cannot be read then: it may not have ended.
func TestEventsOfUnreadableRun(t *testing.T) {
	t.Parallel()
	store := &failing{Store: memstore.New(memstore.Config{})}
	g, err := gateway.New(store, membus.New(), gateway.Config{MaxBody: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	p := inprocess.New(g.Inside())
	t.Cleanup(func() { p.Close(); g.Close() })
	c := p.As(api.Principal{Name: "test", Roles: access.Roles()})
	if _, err := c.PutAgent(t.Context(), "hello", []byte(`{model: {provider: scripted, responses: [{text: hi}]}}`)); err != nil {
		t.Fatal(err)
	}
	run := submit(t, c)
	ended, end := context.WithCancel(t.Context())
	end()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	unreadable := func() error {
		cancel() // so that the stream does not retry
		return errors.New("the store is away")
	}
	var last error
	for _, err := range c.Events(ctx, run.ID, 0) {
		if last = err; err == nil {
			_ = g.Run(ended) // ends the reader without an error
			store.fail.Store(&unreadable)
		}
	}
	if last == nil {
		t.Error("the stream of a run that has not ended has ended without an error")
	}
}

// After an interruption a stream continues, with each event once.
func TestEventsAfterAnInterruption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, b := memstore.New(memstore.Config{}), membus.New()
		store := &failing{Store: inner}
		_, c := newProcessOn(t, store, b)
		run := submit(t, c)
		failed := false
		once := func() error {
			failed = true
			store.fail.Store(nil)
			return errors.New("the store is away")
		}
		var types []string
		for e, err := range c.Events(t.Context(), run.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if types = append(types, string(e.Type)); len(types) == 1 {
				store.fail.Store(&once)
				end(t, inner, b, state.RunID(run.ID))
			}
		}
		if got := strings.Join(types, " "); got != "run.submitted run.finished" || !failed {
			t.Errorf("events %s; the store has failed: %t", got, failed)
		}
	})
}

// Close ends event streams, also from inside their loop, and makes later calls fail.
func TestClose(t *testing.T) {
	t.Parallel()
	p, c := newProcess(t)
	run := submit(t, c)
	var last error
	for _, err := range c.Events(t.Context(), run.ID, 0) {
		if last = err; err == nil {
			p.Close()
		}
	}
	if !errors.Is(last, inprocess.ErrClosed) {
		t.Errorf("the stream ended with %v, want ErrClosed", last)
	}
	if _, err := c.Get(t.Context(), run.ID); !errors.Is(err, inprocess.ErrClosed) {
		t.Errorf("Get after Close = %v, want ErrClosed", err)
	}
}

// A call ends with its context.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	_, c := newProcess(t)
	run := submit(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range c.Events(ctx, run.ID, 0) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the stream ended with %v, want canceled", last)
	}
	if _, err := c.Get(ctx, run.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("Get = %v, want canceled", err)
	}
}

// Requests have the same limits and problems as over HTTP.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p, c := newProcess(t)
	_, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: api.Text(strings.Repeat("x", 5<<10))}, "")
	if r, ok := errors.AsType[*api.Problem](err); !ok || r.Status != http.StatusRequestEntityTooLarge || r.Code != api.CodeBodyTooLarge || r.RequestID == "" {
		t.Errorf("large submission: %v", err)
	}
	if _, err := p.As(api.Principal{Name: "reader", Roles: []access.Role{access.Viewer}}).Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: api.Text("Hello.")}, ""); !errors.Is(err, api.ErrForbidden) {
		t.Errorf("submission of a viewer: %v", err)
	}
	if _, err := p.As(api.Principal{Roles: access.Roles()}).Get(t.Context(), "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"); !errors.Is(err, api.ErrUnauthenticated) {
		t.Errorf("a principal without a name: %v", err)
	}
}

// A caller may modify a result: it shares no memory with the store.
func TestResultsAreCopies(t *testing.T) {
	t.Parallel()
	_, c := newProcess(t)
	run := submit(t, c)
	run.Metadata["a"] = "changed"
	if again, err := c.Get(t.Context(), run.ID); err != nil || again.Metadata["a"] != "b" {
		t.Errorf("metadata %v, %v", again.Metadata, err)
	}
}

// away is a store that does not answer.
type away struct{ state.Store }

func (away) Load(context.Context, state.RunID) (state.State, error) {
	return state.State{}, errors.New("no answer")
}

// A problem has the time after which to retry, which HTTP has in a header.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	_, c := newProcessOn(t, away{memstore.New(memstore.Config{})}, membus.New())
	_, err := c.Get(t.Context(), string(state.FirstIDAt(time.Now())))
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeStoreUnavailable || p.RetryAfter == 0 {
		t.Errorf("Get = %#v, want %s with a time to retry", err, api.CodeStoreUnavailable)
	}
}
