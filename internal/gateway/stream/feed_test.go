package stream_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// audience is the readers of a gateway's feeds.
type audience struct {
	*runs

	feeds   *stream.Feeds
	h       *stream.TenantHandler
	watches atomic.Int64 // in force
}

func newAudience(t *testing.T) *audience {
	t.Helper()
	a := &audience{runs: newRun(t)}
	a.feeds = stream.NewFeeds(a.store, watched{a.bus, &a.watches}, slog.New(slog.DiscardHandler), a.quit)
	a.h = stream.NewTenantHandler(a.follow(a.store), a.store, a.feeds, stream.Admission{
		Callers: allowed{}, Quota: limit.NewQuota("streams", "x", 9, 9), Readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), Log: slog.New(slog.DiscardHandler),
	})
	return a
}

// read reads the changes of a tenant after an event, until leave is called, which returns them.
func (a *audience) read(tenant, after string) (leave func() *httptest.ResponseRecorder) {
	ctx, cancel := context.WithCancel(a.t.Context())
	c := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: tenant, Roles: access.Roles()}
	req := httptest.NewRequestWithContext(access.NewContext(ctx, c), http.MethodGet, "/v1/events", nil)
	req.Header.Set("Last-Event-ID", after)
	answer, ended := httptest.NewRecorder(), make(chan error, 1)
	go func() { ended <- a.h.Get(answer, req) }()
	synctest.Wait()
	return func() *httptest.ResponseRecorder {
		cancel()
		if err := <-ended; err != nil {
			a.t.Error(err)
		}
		return answer
	}
}

// watching checks the number of watches in force some time after something has happened.
func (a *audience) watching(want int64, after time.Duration, what string) {
	a.t.Helper()
	time.Sleep(after) // the bubble's clock
	if n := a.watches.Load(); n != want {
		a.t.Errorf("%s after %s: %d watches are in force, want %d", after, what, n, want)
	}
}

// lastID returns the id of the last event in an answer, and leaves the answer unread.
func lastID(answer *httptest.ResponseRecorder) (id string) {
	for in := sse.NewReader(bytes.NewReader(answer.Body.Bytes())); ; {
		e, err := in.Next()
		if err != nil {
			return id
		}
		id = e.ID
	}
}

// A feed continues while it has readers, and for a minute after the last one has left. A reader that resumes within
// that minute gets exactly the changes that it has missed.
func TestFeedContinuesForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudience(t)
		first, other := a.read(a.first.Tenant, ""), a.read(a.first.Tenant, "")
		opened := first()
		a.watching(1, time.Hour, "one of two readers has left")
		other()
		a.watching(1, 58*time.Second, "the last reader has left")
		a.end()
		time.Sleep(time.Second) // the feed reads the run
		resumes := a.read(a.first.Tenant, lastID(opened))
		if got, want := changes(t, resumes()), []string{api.ChangesOpen, "queued", "completed"}; !slices.Equal(got, want) {
			t.Errorf("a reader that resumes gets %v, want %v", got, want)
		}
		a.watching(1, 59*time.Second, "the reader that resumed has left")
		a.watching(0, 2*time.Second, "that")
		close(a.quit)
	})
}

// The feed of a tenant continues when that of another one ends.
func TestFeedOfAnotherTenantEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudience(t)
		leave := a.read(a.first.Tenant, "")
		a.read("other", "")()
		a.watching(1, time.Hour, "the reader of the other tenant has left")
		leave()
		a.watching(0, time.Hour, "the last reader has left")
		close(a.quit)
	})
}

// refusing is a bus that watches no deletions.
type refusing struct{ watched }

func (refusing) WatchDeleted(context.Context, func(string, state.RunID)) (func(), error) {
	return nil, errors.New("no deletions")
}

// A bus that refuses one of the two watches keeps none.
func TestRefusedWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudience(t)
		feeds := stream.NewFeeds(a.store, refusing{watched{a.bus, &a.watches}}, slog.New(slog.DiscardHandler), a.quit)
		h := stream.NewTenantHandler(a.follow(a.store), a.store, feeds, a.h.Admission)
		c := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: a.first.Tenant, Roles: access.Roles()}
		err := h.Get(httptest.NewRecorder(), httptest.NewRequestWithContext(access.NewContext(t.Context(), c), http.MethodGet, "/v1/events", nil))
		if err == nil {
			t.Error("the reader gets no error")
		}
		a.watching(0, 0, "the refusal")
		close(a.quit)
	})
}
