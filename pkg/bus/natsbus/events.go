package natsbus

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Subjects of notices, after the prefix. Watchers announce their runs on subjectWatch, with one run
// id per line as the data.
const (
	subjectGrown   = "grown"
	subjectDeleted = "deleted"
	subjectLive    = "live"
	subjectWatch   = "watch"
)

const (
	// watchEvery is the interval at which a process repeats the runs that it watches, for processes
	// that missed the previous message.
	watchEvery = 2 * time.Second

	// watchLasts is the time that a run counts as watched after an announcement: longer than
	// two repetitions, so that one may be lost.
	watchLasts = 5 * time.Second

	// watchUnknown is the time after which a process that has begun to listen knows the runs that are
	// watched: longer than one repetition.
	watchUnknown = 3 * time.Second

	// watchBatch is the maximum number of runs in one message.
	watchBatch = 1000
)

// headerTenant names the tenant of a message's run.
const headerTenant = "Turnpike-Tenant"

// NotifyAppended implements bus.Events.
func (b *Bus) NotifyAppended(tenant string, run state.RunID, from, to int64) {
	data := strconv.AppendInt(make([]byte, 0, 24), from, 10)
	data = strconv.AppendInt(append(data, ' '), to, 10)
	m := &nats.Msg{Subject: b.subject(subjectGrown, token(string(run))), Header: nats.Header{headerTenant: {tenant}}, Data: data}
	if err := b.nc.PublishMsg(m); err != nil {
		b.log.Debug("hint that a log has grown", "error", err)
	}
}

// PublishLive implements bus.Events.
func (b *Bus) PublishLive(run state.RunID, data []byte) {
	if err := b.publishSigned(b.subject(subjectLive, token(string(run))), data); err != nil {
		b.log.Debug("live event", "error", err)
	}
}

// Watch implements bus.Events.
func (b *Bus) Watch(ctx context.Context, run state.RunID, fn func(bus.Notice)) (func(), error) {
	grown := b.subject(subjectGrown, token(string(run)))
	hearing := b.hearing()
	stop, err := b.listen(ctx, []string{grown, b.subject(subjectLive, token(string(run)))}, func(m *nats.Msg) {
		if m.Subject != grown {
			if hearing.believe(m) {
				fn(bus.Notice{Live: m.Data})
			}
			return
		}
		if n, ok := parseGrown(m.Data); ok {
			fn(n)
		}
	})
	if err != nil {
		return nil, err
	}
	leave := b.watching.add(run)
	if err := b.nc.Publish(b.subject(subjectWatch), []byte(run)); err != nil {
		b.log.Debug("say which run is watched", "error", err) // it is said again
	}
	return sync.OnceFunc(func() { leave(); stop() }), nil
}

// WatchAll implements bus.Events.
func (b *Bus) WatchAll(ctx context.Context, fn func(string, state.RunID)) (func(), error) {
	return b.listen(ctx, []string{b.subject(subjectGrown, "*")}, func(m *nats.Msg) {
		if run, err := state.ParseRunID(lastToken(m.Subject)); err == nil {
			fn(m.Header.Get(headerTenant), run)
		}
	})
}

// Deleted implements bus.Intake.
func (b *Bus) Deleted(tenant string, run state.RunID) {
	if err := b.nc.Publish(b.subject(subjectDeleted, token(string(run))), []byte(tenant)); err != nil {
		b.log.Debug("hint that a run is deleted", "error", err)
	}
}

// WatchDeleted implements bus.Events.
func (b *Bus) WatchDeleted(ctx context.Context, fn func(string, state.RunID)) (func(), error) {
	return b.listen(ctx, []string{b.subject(subjectDeleted, "*")}, func(m *nats.Msg) {
		if run, err := state.ParseRunID(lastToken(m.Subject)); err == nil {
			fn(string(m.Data), run)
		}
	})
}

func parseGrown(data []byte) (bus.Notice, bool) {
	from, to, ok := bytes.Cut(data, []byte{' '})
	if !ok {
		return bus.Notice{}, false
	}
	n, errFrom := strconv.ParseInt(string(from), 10, 64)
	m, errTo := strconv.ParseInt(string(to), 10, 64)
	return bus.Notice{From: n, To: m}, errFrom == nil && errTo == nil && 0 <= n && n < m
}

// watching is the set of runs that this process watches.
type watching struct {
	mu   sync.Mutex
	runs map[state.RunID]int
}

func (w *watching) add(run state.RunID) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs = map[state.RunID]int{}
	}
	w.runs[run]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.runs[run]--; w.runs[run] == 0 {
			delete(w.runs, run)
		}
	}
}

// batches returns the runs, encoded as messages.
func (w *watching) batches() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all [][]byte
	var b strings.Builder
	n := 0
	for run := range w.runs {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(run))
		if n++; n%watchBatch == 0 {
			all = append(all, []byte(b.String()))
			b.Reset()
		}
	}
	if b.Len() > 0 {
		all = append(all, []byte(b.String()))
	}
	return all
}

// repeatWatches announces the runs that this process watches at every interval, until quit.
func (b *Bus) repeatWatches(quit <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-quit:
			return
		}
		for _, data := range b.watching.batches() {
			if err := b.nc.Publish(b.subject(subjectWatch), data); err != nil {
				b.log.Debug("say which runs are watched", "error", err)
			}
		}
	}
}

// Watchers implements bus.Events.
func (b *Bus) Watchers(ctx context.Context) (bus.Watchers, error) {
	w := &watchers{known: time.Now().Add(watchUnknown), until: map[state.RunID]time.Time{}}
	stop, err := b.listen(ctx, []string{b.subject(subjectWatch)}, func(m *nats.Msg) { w.hear(m.Data, time.Now()) })
	w.stop = stop
	return w, err
}

// watchers are the runs that any process watches.
type watchers struct {
	stop  func()
	known time.Time // before it, any run may be watched

	mu    sync.RWMutex
	until map[state.RunID]time.Time
	swept time.Time
}

// Stop implements bus.Watchers.
func (w *watchers) Stop() { w.stop() }

// Watched implements bus.Watchers.
func (w *watchers) Watched(run state.RunID) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if time.Now().Before(w.known) {
		return true
	}
	until, ok := w.until[run]
	return ok && time.Now().Before(until)
}

func (w *watchers) hear(data []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for run := range bytes.SplitSeq(data, []byte{'\n'}) {
		w.until[state.RunID(run)] = now.Add(watchLasts)
	}
	if now.Sub(w.swept) < watchLasts {
		return
	}
	w.swept = now
	for run, until := range w.until {
		if now.After(until) {
			delete(w.until, run)
		}
	}
}
