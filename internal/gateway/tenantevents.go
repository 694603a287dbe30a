package gateway

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

// getChanges streams how the runs of a tenant change. A reader hears of what comes after
// stream.open. One that comes back with the id of its last event gets what it has missed.
func (g *Gateway) getChanges(w http.ResponseWriter, r *http.Request) error {
	only, err := changesOf(r)
	if err != nil {
		return err
	}
	only.Tenant = access.FromContext(r.Context()).Tenant
	s := &changeStream{w: w, rc: http.NewResponseController(w), g: g, only: only}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("after")
	}
	if last != "" {
		if s.at, s.feed, s.n, err = parseChangesID(last); err != nil {
			return err
		}
	}
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return nil
	}
	release, err := g.streams.Take(access.FromContext(r.Context()))
	if err != nil {
		h.Del("Cache-Control")
		return err
	}
	defer release()
	f, leave, err := g.changes.follow(r.Context(), only.Tenant)
	if err != nil {
		h.Del("Cache-Control")
		return err
	}
	defer leave()
	g.readers.Inc()
	defer g.readers.Dec()
	w.WriteHeader(http.StatusOK)
	ctx, stop := g.callers.WhileAllowed(r)
	defer stop()
	if err := s.run(ctx, f); err != nil {
		g.log.Debug("stream of changes ends", "error", err, "tenant", only.Tenant)
	}
	return nil
}

// changesOf reads which runs a reader wants to hear of. It may ask for what never changes
// about a run: one that changed so that it fits no more would be missed otherwise.
func changesOf(r *http.Request) (state.Filter, error) {
	for name := range r.URL.Query() {
		known := slices.Contains([]string{"agent", "loop", "parent", "batch", "after", exchange.ParameterTenant}, name) || strings.HasPrefix(name, "metadata.")
		if !known {
			return state.Filter{}, exchange.Invalid("unknown parameter %q; known are agent, loop, parent, batch, metadata.KEY, after: the stream tells of all statuses, as a run has each for a while only", name)
		}
	}
	query := r.URL.Query()
	query.Del("after")
	return service.ParseFilter(query)
}

// changeStream is one reader of the changes of a tenant.
type changeStream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	g    *Gateway
	only state.Filter

	// The last event that the reader has: when it was, of which feed, and its number there.
	at   time.Time
	feed string
	n    int64
}

func (s *changeStream) run(ctx context.Context, f *changeFeed) error {
	if err := s.begin(ctx, f); err != nil {
		return err
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		next, grown := f.after(s.n)
		for _, k := range next {
			if err := s.send(k); err != nil {
				return err
			}
		}
		if len(next) > 0 {
			if err := s.flush(); err != nil {
				return err
			}
			continue
		}
		var err error
		select {
		case <-grown:
		case <-alive.C:
			if err = s.write(sse.AppendComment(nil, "keep-alive")); err == nil {
				err = s.flush()
			}
		case <-s.g.quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// begin says that the stream is open. A reader that has read another feed, of another gateway
// or of before, gets the runs first that have changed since then. They have no ids: if it is
// cut off before the end it begins anew.
func (s *changeStream) begin(ctx context.Context, f *changeFeed) error {
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
	return s.flush()
}

// catchUp sends the runs that have changed since the reader's last event, the oldest first. If
// there are more runs than it looks at, or runs were deleted since, the reader is told to ask for
// its lists anew.
func (s *changeStream) catchUp(ctx context.Context) error {
	since := s.at.Add(-state.MaxSkew)
	only := s.only
	only.Limit, only.Bytes = changesDepth, service.ListBytes
	now := time.Now()
	var changed []api.Run
	var lost bool
	err := s.g.service.Runs.InTurn(ctx, func() error {
		page, err := s.g.store.List(ctx, only)
		if err != nil {
			return err
		}
		for _, st := range slices.Backward(page.Runs) {
			if !st.UpdatedAt.Before(since) {
				changed = append(changed, api.RunOf(st, now).Summary())
			}
		}
		deleted, err := retention.LastDeletion(ctx, s.g.store, only.Tenant)
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

// eventOf returns a change as it is sent.
func eventOf(c api.Change, id string) sse.Event {
	data, err := exchange.Encode(c)
	if err != nil {
		data = []byte("{}\n") // not of a run that was read
	}
	return sse.Event{ID: id, Type: c.Type, Data: data[:len(data)-1]}
}

// send writes a change, if the reader wants to hear of it.
func (s *changeStream) send(k change) error {
	s.n = k.n
	if k.run.ID != "" && !s.only.Match(k.run) {
		return nil
	}
	id := "id: " + changesID(k.at, s.feed, k.n) + "\n"
	return s.write(append([]byte(id), k.frame...))
}

func (s *changeStream) write(frame []byte) error {
	_, err := s.w.Write(frame)
	return err
}

func (s *changeStream) flush() error { return s.rc.Flush() }

// changesID is the id of an event: when it was, of which feed, and its number there.
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
	return time.Time{}, "", 0, exchange.Problem(http.StatusBadRequest, api.CodeInvalidCursor, "%q is not the id of an event of this stream", text)
}
