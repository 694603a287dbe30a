package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// listing is a store that calls after, once, when it has read a list of runs.
type listing struct {
	*memstore.Store

	after func()
}

func (l *listing) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	page, err := l.Store.List(ctx, f)
	if after := l.after; after != nil {
		l.after = nil
		after()
	}
	return page, err
}

// allowed lets all callers keep their streams.
type allowed struct{}

func (allowed) WhileAllowed(r *http.Request) (context.Context, func()) {
	return r.Context(), func() {}
}

// changes returns the types of the changes in an answer, or the status if a run has changed.
func changes(t *testing.T, answer *httptest.ResponseRecorder) (got []string) {
	t.Helper()
	for in := sse.NewReader(answer.Body); ; {
		e, err := in.Next()
		if err != nil {
			return got
		}
		var change api.Change
		if err := json.Unmarshal(e.Data, &change); err != nil {
			t.Fatal(err)
		}
		what := change.Type
		if change.Run != nil {
			what = change.Run.Status
		}
		got = append(got, what)
	}
}

// A reader that resumes at another gateway gets a change that is made while that gateway reads the list of runs.
func TestChangeWhileAReaderResumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		store := &listing{Store: r.store}
		feeds := stream.NewFeeds(store, r.bus, slog.New(slog.DiscardHandler), r.quit)
		h := stream.NewTenantHandler(r.follow(store), store, feeds, stream.Admission{
			Callers: allowed{}, Quota: limit.NewQuota("streams", "x", 1, 1), Readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), Log: slog.New(slog.DiscardHandler),
		})
		store.after = func() {
			r.end()
			time.Sleep(time.Second) // the bubble's clock; the feed reads the run
		}
		c := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: r.first.Tenant, Roles: access.Roles()}
		req := httptest.NewRequestWithContext(access.NewContext(t.Context(), c), http.MethodGet, "/v1/events", nil)
		req.Header.Set("Last-Event-ID", strconv.FormatInt(time.Now().UnixMilli(), 10)+".elsewhere.7")
		answer := httptest.NewRecorder()
		ended := make(chan error, 1)
		go func() { ended <- h.Get(answer, req) }()
		time.Sleep(2 * time.Second)
		close(r.quit)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		got := changes(t, answer)
		if want := []string{"queued", api.ChangesOpen, "completed"}; !slices.Equal(got, want) {
			t.Errorf("the reader gets %v, want %v", got, want)
		}
	})
}

// A reader gets the changes of the runs that its filter selects, and no others.
func TestChangesOfAFilter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent := state.RunID(state.RunPrefix + ulid.Make().String())
		r := newRunWith(t, func(st *state.State) {
			st.Metadata = map[string]string{"k": "v"}
			st.Parent = &state.Parent{RunID: parent, CallID: "c", Depth: 1}
			st.Batch = &state.Batch{Index: 2, Size: 3}
		})
		feeds := stream.NewFeeds(r.store, r.bus, slog.New(slog.DiscardHandler), r.quit)
		h := stream.NewTenantHandler(r.follow(r.store), r.store, feeds, stream.Admission{
			Callers: allowed{}, Quota: limit.NewQuota("streams", "x", 99, 99), Readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), Log: slog.New(slog.DiscardHandler),
		})
		c := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: r.first.Tenant, Roles: access.Roles()}
		var readers sync.WaitGroup
		answers := map[string]*httptest.ResponseRecorder{}
		own := []string{"", "agent=a", "loop=react", "parent=" + string(parent), "batch=" + r.first.BatchID(), "metadata.k=v"}
		others := []string{"agent=b", "loop=plan", "parent=" + string(r.first.ID), "batch=" + state.BatchPrefix + ulid.Make().String(), "metadata.k=w", "metadata.l=v"}
		for _, query := range slices.Concat(own, others) {
			answer := httptest.NewRecorder()
			answers[query] = answer
			readers.Go(func() {
				if err := h.Get(answer, httptest.NewRequestWithContext(access.NewContext(t.Context(), c), http.MethodGet, "/v1/events?"+query, nil)); err != nil {
					t.Errorf("%s: %v", query, err)
				}
			})
		}
		synctest.Wait()
		r.end()
		time.Sleep(time.Second) // the bubble's clock; the feed reads the run
		close(r.quit)
		readers.Wait()
		for query, answer := range answers {
			want := []string{api.ChangesOpen}
			if slices.Contains(own, query) {
				want = append(want, "completed")
			}
			if got := changes(t, answer); !slices.Equal(got, want) {
				t.Errorf("the reader of %q gets %v, want %v", query, got, want)
			}
		}
	})
}

// failing is a store that fails the next reads of a run.
type failing struct {
	*memstore.Store

	next atomic.Int64
}

func (f *failing) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if f.next.Add(-1) >= 0 {
		return state.State{}, errors.New("the store fails")
	}
	return f.Store.Load(ctx, id)
}

// A reader gets the deletion of a run that its feed has not sent, although a read of the run fails first, or another
// notice follows.
func TestDeletionOfARunThatWasNotSent(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]int64{"a failed read": 1, "another notice": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRun(t)
				r.end()
				store := &failing{Store: r.store}
				feeds := stream.NewFeeds(store, r.bus, slog.New(slog.DiscardHandler), r.quit)
				h := stream.NewTenantHandler(r.follow(store), store, feeds, stream.Admission{
					Callers: allowed{}, Quota: limit.NewQuota("streams", "x", 1, 1), Readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), Log: slog.New(slog.DiscardHandler),
				})
				c := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: r.first.Tenant, Roles: access.Roles()}
				req := httptest.NewRequestWithContext(access.NewContext(t.Context(), c), http.MethodGet, "/v1/events", nil)
				answer := httptest.NewRecorder()
				ended := make(chan error, 1)
				go func() { ended <- h.Get(answer, req) }()
				synctest.Wait()
				if err := r.store.Delete(t.Context(), r.first.ID); err != nil {
					t.Fatal(err)
				}
				store.next.Store(fails)
				r.bus.Deleted(r.first.Tenant, r.first.ID)
				if fails == 0 {
					feeds.Changed(r.first.Tenant, r.first.ID)
				}
				time.Sleep(time.Second) // the bubble's clock
				close(r.quit)
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if got, want := changes(t, answer), []string{api.ChangesOpen, api.RunDeleted}; !slices.Equal(got, want) {
					t.Errorf("the reader gets %v, want %v", got, want)
				}
			})
		})
	}
}

// watched is a bus that counts the watches in force.
type watched struct {
	*membus.Bus

	watches *atomic.Int64
}

func (w watched) WatchAll(ctx context.Context, fn func(string, state.RunID)) (func(), error) {
	stop, err := w.Bus.WatchAll(ctx, fn)
	w.watches.Add(1)
	return func() { w.watches.Add(-1); stop() }, err
}

// A gateway watches changes while someone reads them, and again if a reader comes long after the last one has left.
func TestReaderAfterTheLastFeedHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		var watches atomic.Int64
		feeds := stream.NewFeeds(r.store, watched{r.bus, &watches}, slog.New(slog.DiscardHandler), r.quit)
		h := stream.NewTenantHandler(r.follow(r.store), r.store, feeds, stream.Admission{
			Callers: allowed{}, Quota: limit.NewQuota("streams", "x", 1, 1), Readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), Log: slog.New(slog.DiscardHandler),
		})
		read := func() (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			c := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: r.first.Tenant, Roles: access.Roles()}
			ended := make(chan error, 1)
			go func() {
				ended <- h.Get(httptest.NewRecorder(), httptest.NewRequestWithContext(access.NewContext(ctx, c), http.MethodGet, "/v1/events", nil))
			}()
			time.Sleep(time.Second) // the bubble's clock
			return func() { cancel(); <-ended }
		}
		for range 2 {
			leave := read()
			if n := watches.Load(); n != 1 {
				t.Fatalf("with a reader %d watches are in force, want 1", n)
			}
			leave()
			time.Sleep(time.Hour)
			if n := watches.Load(); n != 0 {
				t.Fatalf("an hour after the last reader %d watches are in force", n)
			}
		}
		close(r.quit)
	})
}

// changesWhile returns the types of the changes that a reader gets during act, or the status if a run has changed.
// store is that of its feed.
func (r *runs) changesWhile(store state.Store, act func(*stream.Feeds)) []string {
	r.t.Helper()
	feeds := stream.NewFeeds(store, r.bus, slog.New(slog.DiscardHandler), r.quit)
	h := stream.NewTenantHandler(r.follow(store), store, feeds, stream.Admission{
		Callers: allowed{}, Quota: limit.NewQuota("streams", "x", 1, 1), Readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), Log: slog.New(slog.DiscardHandler),
	})
	c := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: r.first.Tenant, Roles: access.Roles()}
	answer := httptest.NewRecorder()
	ended := make(chan error, 1)
	go func() {
		ended <- h.Get(answer, httptest.NewRequestWithContext(access.NewContext(r.t.Context(), c), http.MethodGet, "/v1/events", nil))
	}()
	synctest.Wait()
	act(feeds)
	close(r.quit)
	if err := <-ended; err != nil {
		r.t.Fatal(err)
	}
	return changes(r.t, answer)
}

// A feed that has lost notices tells its readers so once. It then reads the runs of later notices, also a run whose
// notice was among the lost ones.
func TestNoticeAfterAnOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		got := r.changesWhile(r.store, func(feeds *stream.Feeds) {
			feeds.Changed(r.first.Tenant, r.first.ID)
			for range 5000 {
				feeds.Changed(r.first.Tenant, state.RunID(state.RunPrefix+ulid.Make().String()))
			}
			time.Sleep(500 * time.Millisecond) // the bubble's clock
			r.end()
			time.Sleep(time.Second) // the feed does not list the runs before two seconds have passed
		})
		if want := []string{api.ChangesOpen, api.ChangesLost, "completed"}; !slices.Equal(got, want) {
			t.Errorf("the reader gets %v, want %v", got, want)
		}
	})
}

// Notices that fit the queue are not lost, however often they repeat: the feed reads all their runs, in parts.
func TestNoticesThatFit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		got := r.changesWhile(r.store, func(feeds *stream.Feeds) {
			for range 300 {
				id := state.RunID(state.RunPrefix + ulid.Make().String())
				for range 20 {
					feeds.Changed(r.first.Tenant, id)
				}
			}
			r.end()
			time.Sleep(time.Second) // the bubble's clock; the feed does not list the runs before two have passed
		})
		if want := []string{api.ChangesOpen, "completed"}; !slices.Equal(got, want) {
			t.Errorf("the reader gets %v, want %v", got, want)
		}
	})
}

// A reader gets a deletion once, although its notice repeats. A run that is missing without such a notice, and that the
// feed has not sent, is none.
func TestDeletionIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		r.end()
		got := r.changesWhile(r.store, func(feeds *stream.Feeds) {
			if err := r.store.Delete(t.Context(), r.first.ID); err != nil {
				t.Fatal(err)
			}
			feeds.Changed(r.first.Tenant, r.first.ID)
			time.Sleep(250 * time.Millisecond) // the bubble's clock; the feed reads the run
			for range 2 {
				r.bus.Deleted(r.first.Tenant, r.first.ID)
				time.Sleep(250 * time.Millisecond)
			}
			feeds.Changed(r.first.Tenant, r.first.ID)
			time.Sleep(250 * time.Millisecond)
		})
		if want := []string{api.ChangesOpen, api.RunDeleted}; !slices.Equal(got, want) {
			t.Errorf("the reader gets %v, want %v", got, want)
		}
	})
}

// A reader gets the deletion of a run that its feed has not sent, although a notice of a change came just before.
func TestDeletionAfterANoticeOfAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		r.end()
		got := r.changesWhile(r.store, func(feeds *stream.Feeds) {
			feeds.Changed(r.first.Tenant, r.first.ID)
			if err := r.store.Delete(t.Context(), r.first.ID); err != nil {
				t.Fatal(err)
			}
			r.bus.Deleted(r.first.Tenant, r.first.ID)
			time.Sleep(time.Second) // the bubble's clock
		})
		if want := []string{api.ChangesOpen, api.RunDeleted}; !slices.Equal(got, want) {
			t.Errorf("the reader gets %v, want %v", got, want)
		}
	})
}

// A notice of a run of another tenant shows the reader neither that run nor its deletion.
func TestNoticeOfARunOfAnotherTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRunWith(t, func(st *state.State) { st.Tenant = "other" })
		own := newRun(t)
		if _, err := r.store.Create(t.Context(), state.NewRun{State: own.first, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		other := r.first.ID
		r.end()
		r.first = own.first
		got := r.changesWhile(r.store, func(feeds *stream.Feeds) {
			feeds.Changed(own.first.Tenant, other)
			time.Sleep(250 * time.Millisecond) // the bubble's clock; the feed reads the run
			if err := r.store.Delete(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			feeds.Changed(own.first.Tenant, other)
			time.Sleep(250 * time.Millisecond)
			r.end()
			time.Sleep(250 * time.Millisecond)
		})
		if want := []string{api.ChangesOpen, "completed"}; !slices.Equal(got, want) {
			t.Errorf("the reader gets %v, want %v", got, want)
		}
	})
}
