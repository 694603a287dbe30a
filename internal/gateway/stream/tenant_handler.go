package stream

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// TenantHandler responds to GET /v1/events.
type TenantHandler struct {
	Admission

	runs  Runs
	store Store
	feeds *Feeds
}

// NewTenantHandler returns a handler that streams the changes of feeds.
func NewTenantHandler(runs Runs, store Store, feeds *Feeds, a Admission) *TenantHandler {
	return &TenantHandler{Admission: a, runs: runs, store: store, feeds: feeds}
}

// Get streams the changes of a tenant's runs that follow the event stream.open. A client that resumes with the id of
// its last event also gets the changes that it has missed, or the event stream.reset if they are not known.
func (h *TenantHandler) Get(w http.ResponseWriter, r *http.Request) error {
	only, err := changesOf(r)
	if err != nil {
		return err
	}
	caller := access.FromContext(r.Context())
	if err := h.runs.Select(r.Context(), caller, &only); err != nil {
		return err
	}
	s := &tenantReader{frames: frames{w, http.NewResponseController(w)}, h: h, only: only}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("after")
	}
	if last != "" {
		if s.at, s.feed, s.n, err = parseChangesID(last); err != nil {
			return err
		}
	}
	setHeaders(w)
	if r.Method == http.MethodHead {
		return nil
	}
	release, err := h.Quota.Take(caller)
	if err != nil {
		w.Header().Del("Cache-Control")
		return err
	}
	defer release()
	f, leave, err := h.feeds.follow(r.Context(), only.Tenant)
	if err != nil {
		w.Header().Del("Cache-Control")
		return err
	}
	defer leave()
	h.Readers.Inc()
	defer h.Readers.Dec()
	w.WriteHeader(http.StatusOK)
	ctx, stop := h.Callers.WhileAllowed(r)
	defer stop()
	if err := s.run(ctx, f); err != nil {
		h.Log.Debug("stream of changes ends", "error", err, "tenant", only.Tenant)
	}
	return nil
}

// changesOf parses the filter of a reader. The filter may name only fields of a run that never change: otherwise a
// reader would miss the change after which a run no longer matches.
func changesOf(r *http.Request) (state.Filter, error) {
	for name := range r.URL.Query() {
		known := slices.Contains([]string{"agent", "loop", "parent", "batch", "after", exchange.ParameterTenant}, name) || strings.HasPrefix(name, "metadata.")
		if !known {
			return state.Filter{}, exchange.Invalid("unknown parameter %q: use agent, loop, parent, batch, metadata.KEY or after; the stream has runs of all statuses", name)
		}
	}
	query := r.URL.Query()
	query.Del("after")
	return service.ParseFilter(query)
}

// tenantReader is one reader of the changes of a tenant.
type tenantReader struct {
	frames

	h    *TenantHandler
	only state.Filter

	// The last event of the reader: its time, its feed, and its number in that feed.
	at   time.Time
	feed string
	n    int64
}

func (s *tenantReader) run(ctx context.Context, f *feed) error {
	if err := s.begin(ctx, f); err != nil {
		return err
	}
	alive := time.NewTicker(keepAliveInterval)
	defer alive.Stop()
	for {
		next, grown := f.after(s.n)
		for _, k := range next {
			if err := s.send(k); err != nil {
				return err
			}
		}
		if len(next) > 0 {
			if err := s.Flush(); err != nil {
				return err
			}
			continue
		}
		var err error
		select {
		case <-grown:
		case <-alive.C:
			if err = s.KeepAlive(); err == nil {
				err = s.Flush()
			}
		case <-s.h.feeds.quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// begin sends the event stream.open. If the reader's last event is from another feed (of another gateway, an earlier
// process, or a feed that has ended since), begin first calls catchUp, which sends the runs that have changed since
// that event, and stream.reset if it may have missed some. These events have no ids, so a client that is disconnected
// before stream.open receives them again. Missed changes of the same feed, or stream.reset if they are not known any
// more, follow stream.open.
func (s *tenantReader) begin(ctx context.Context, f *feed) error {
	now := time.Now()
	if s.feed != f.name {
		resumes := s.feed != ""
		s.feed, s.n = f.name, f.newest()
		if resumes {
			if err := s.catchUp(ctx); err != nil {
				return err
			}
		}
	}
	if err := s.write(sse.Append(nil, eventOf(api.Change{Type: api.ChangesOpen, At: state.At(now)}, changesID(now, s.feed, s.n)))); err != nil {
		return err
	}
	return s.Flush()
}

// catchUp sends the runs that have changed since the reader's last event, the oldest first. If the tenant has more
// runs than catchUp reads, or runs were deleted since then, it also sends stream.reset, so that the client requests
// its lists again.
func (s *tenantReader) catchUp(ctx context.Context) error {
	since := s.at.Add(-state.MaxSkew)
	only := s.only
	only.Limit, only.Bytes = listDepth, service.ListBytes
	now := time.Now()
	var changed []api.Run
	var lost bool
	err := s.h.runs.InTurn(ctx, func() error {
		page, err := s.h.store.List(ctx, only)
		if err != nil {
			return err
		}
		for _, st := range slices.Backward(page.Runs) {
			if !st.UpdatedAt.Before(since) {
				changed = append(changed, api.RunOf(st, now).Summary())
			}
		}
		deleted, err := retention.LastDeletion(ctx, s.h.store, only.Tenant)
		lost = page.Next != "" || deleted.After(since.Add(-retention.NotedEvery))
		return err
	})
	if err != nil {
		return err
	}
	for _, run := range changed {
		if err := s.write(sse.Append(nil, eventOf(api.Change{Type: api.RunChanged, At: state.At(now), Run: &run}, ""))); err != nil {
			return err
		}
	}
	if lost {
		return s.write(sse.Append(nil, eventOf(api.Change{Type: api.ChangesLost, At: state.At(now)}, "")))
	}
	return nil
}

// eventOf returns a change as an event of the stream.
func eventOf(c api.Change, id string) sse.Event {
	data, err := exchange.Encode(c)
	if err != nil {
		data = []byte("{}\n") // a run that was read encodes
	}
	return sse.Event{ID: id, Type: c.Type, Data: data[:len(data)-1]}
}

// send writes a change if it matches the filter of the reader.
func (s *tenantReader) send(k change) error {
	s.n = k.n
	if k.run.ID != "" && !s.only.Match(k.run) {
		return nil
	}
	id := "id: " + changesID(k.at, s.feed, k.n) + "\n"
	return s.write(append([]byte(id), k.frame...))
}

// changesID returns the id of an event: its time, its feed, and its number in that feed.
func changesID(at time.Time, feed string, n int64) string {
	return strconv.FormatInt(at.UnixMilli(), 10) + "." + feed + "." + strconv.FormatInt(n, 10)
}

func parseChangesID(text string) (at time.Time, feed string, n int64, err error) {
	if parts := strings.Split(text, "."); len(parts) == 3 && parts[1] != "" {
		ms, errAt := strconv.ParseInt(parts[0], 10, 64)
		n, errN := strconv.ParseInt(parts[2], 10, 64)
		if errAt == nil && errN == nil && ms >= 0 && n >= 0 {
			return time.UnixMilli(ms), parts[1], n, nil
		}
	}
	return time.Time{}, "", 0, exchange.Problem(http.StatusBadRequest, api.CodeInvalidCursor, "%q is not the id of an event of this stream: send an id that the stream has returned", text)
}
