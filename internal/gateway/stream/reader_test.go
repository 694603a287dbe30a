package stream_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// runs is a store with one run, and its events.
type runs struct {
	t      *testing.T
	store  *memstore.Store
	bus    *membus.Bus
	events *stream.Events
	quit   chan struct{}
	first  state.State
}

func newRun(t *testing.T) *runs {
	t.Helper()
	return newRunWith(t, func(*state.State) {})
}

// newRunWith is newRun for a run that set changes before it is submitted.
func newRunWith(t *testing.T, set func(*state.State)) *runs {
	t.Helper()
	r := &runs{t: t, store: memstore.New(memstore.Config{}), bus: membus.New(), quit: make(chan struct{})}
	r.follow(r.store)
	st := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal}
	set(&st)
	var err error
	if r.first, err = st.Move(state.Submitted, state.Entry{At: state.At(time.Now())}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Create(t.Context(), state.NewRun{State: r.first, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return r
}

// follow makes the readers read this store, and returns its runs.
func (r *runs) follow(store state.Store) *service.Runs {
	r.t.Helper()
	s, err := service.New(store, r.bus, service.Config{
		Prefix: "turnpike", Tenant: state.DefaultTenant, RedeliveryDelay: time.Second, Random: rand.Reader,
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.events = stream.NewEvents(s.Runs, store, r.bus, nil, r.quit)
	return s.Runs
}

// end ends the run, and publishes that its log has grown.
func (r *runs) end() {
	r.t.Helper()
	c, err := r.store.Claim(r.t.Context(), state.ClaimRequest{Run: r.first.ID, Version: 1, Token: "t", Worker: "w", Lease: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		r.t.Fatal(c.Outcome, err)
	}
	s, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.store.Commit(r.t.Context(), c.Lease, state.Commit{ID: "c", State: &s, From: c.State.LogLen()}); err != nil {
		r.t.Fatal(err)
	}
	r.bus.NotifyAppended(s.Tenant, s.ID, c.State.LogLen(), s.LogLen())
}

// stored returns the numbers of all events of the run.
func (r *runs) stored() (all []int64) {
	r.t.Helper()
	log, err := r.store.Log(r.t.Context(), r.first.ID, 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range log {
		all = append(all, e.Seq)
	}
	return all
}

// sink collects the numbers of events. Flushed receives after each flush.
type sink struct {
	seqs    []int64
	flushed chan struct{}
	err     error // of Event
}

func (s *sink) Event(e *stream.Event) error {
	s.seqs = append(s.seqs, e.Seq())
	return s.err
}

func (s *sink) KeepAlive() error { return nil }

func (s *sink) Flush() error {
	select {
	case s.flushed <- struct{}{}:
	default:
	}
	return nil
}

func (r *runs) open(after int64) *stream.Reader {
	r.t.Helper()
	reader, err := r.events.Open(r.t.Context(), r.first, stream.Selection{After: after})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(reader.Close)
	return reader
}

// A reader needs no HTTP: it sends the stored events and those that follow, each once and in order, and returns
// when the run has ended.
func TestReaderFollowsARun(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	got := &sink{flushed: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	reader := r.open(0)
	go func() { ended <- reader.Run(t.Context(), got) }()
	<-got.flushed // the stored events were sent
	r.end()
	if err := <-ended; err != nil {
		t.Fatalf("Run = %v", err)
	}
	if want := r.stored(); !slices.Equal(got.seqs, want) || len(want) < 2 {
		t.Errorf("events %v, want %v", got.seqs, want)
	}
}

// The bound on the size of waiting events counts those that wait, not all: a reader that is fast enough gets every live
// event.
func TestReaderOfManyLiveEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		got := &sink{}
		reader := r.open(1)
		ended := make(chan error, 1)
		go func() { ended <- reader.Run(t.Context(), got) }()
		synctest.Wait() // the reader has read the store
		for range 4 {
			r.bus.PublishLive(r.first.ID, api.EncodeLive(r.first.ID, api.Live{Type: state.LiveToolProgress, Turn: 1, Progress: strings.Repeat("x", 30<<10)}))
			synctest.Wait() // the reader has taken it
		}
		close(r.quit)
		if err := <-ended; err != nil {
			t.Fatalf("Run = %v", err)
		}
		if len(got.seqs) != 4 {
			t.Errorf("%d live events of 30 KiB, want 4", len(got.seqs))
		}
	})
}

// A reader that resumes gets the events after its last one.
func TestReaderResumes(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.end()
	got := &sink{}
	if err := r.open(1).Run(t.Context(), got); err != nil {
		t.Fatalf("Run = %v", err)
	}
	if want := r.stored()[1:]; !slices.Equal(got.seqs, want) {
		t.Errorf("events %v, want %v", got.seqs, want)
	}
}

// Run ends with its context, with its sink, and when the gateway stops.
func TestReaderEnds(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.open(1).Run(ctx, &sink{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Run with a canceled context = %v", err)
	}
	full := errors.New("full")
	if err := r.open(0).Run(t.Context(), &sink{err: full}); !errors.Is(err, full) {
		t.Errorf("Run with a full sink = %v", err)
	}
	close(r.quit)
	if err := r.open(1).Run(t.Context(), &sink{}); err != nil {
		t.Errorf("Run after quit = %v", err)
	}
}

// ending is a store that calls before, once, when the status of a run is read.
type ending struct {
	*memstore.Store

	before func()
}

func (e *ending) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if before := e.before; before != nil {
		e.before = nil
		before()
	}
	return e.Store.Load(ctx, id)
}

// A run that ends between the reads of its log and of its status: its reader gets the last events. The reader of a run
// that goes on reads its status rarely.
func TestReaderOfARunThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the reader reads the status after ten seconds
		r := newRun(t)
		store := &ending{Store: r.store}
		r.follow(store)
		got := &sink{}
		reader := r.open(0)
		began, read := time.Now(), time.Duration(0)
		store.before = func() { read = time.Since(began); r.end() }
		if err := reader.Run(t.Context(), got); err != nil {
			t.Fatalf("Run = %v", err)
		}
		if read != 10*time.Second { // of the bubble
			t.Errorf("the status is read after %s, want 10s", read)
		}
		if want := r.stored(); !slices.Equal(got.seqs, want) || len(want) < 2 {
			t.Errorf("events %v, want %v", got.seqs, want)
		}
	})
}

// A reader that is too slow gets some of the live events that arrive meanwhile, and all those that arrive once it has
// caught up.
func TestReaderAfterABurst(t *testing.T) {
	t.Parallel()
	for name, burst := range map[string]struct{ events, size, want int }{"many small events": {600, 1, 256}, "few large events": {4, 30 << 10, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(t)
				publish := func(size int) {
					r.bus.PublishLive(r.first.ID, api.EncodeLive(r.first.ID, api.Live{Type: state.LiveToolProgress, Turn: 1, Progress: strings.Repeat("x", size)}))
					synctest.Wait() // it waits for the reader, or was dropped
				}
				got := &sink{}
				reader := r.open(1)
				for range burst.events {
					publish(burst.size)
				}
				ended := make(chan error, 1)
				go func() { ended <- reader.Run(t.Context(), got) }()
				synctest.Wait() // the reader has taken the events
				before := len(got.seqs)
				publish(60 << 10)
				close(r.quit)
				if err := <-ended; err != nil {
					t.Fatalf("Run = %v", err)
				}
				if before != burst.want || len(got.seqs) != before+1 {
					t.Errorf("%d live events, want %d; then %d, want 1", before, burst.want, len(got.seqs)-before)
				}
			})
		})
	}
}
