package natsbus

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
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

	// keepNotices is the minimum time that notices are kept: longer than an announcement takes. If one is lost,
	// readers do not depend on it: see NotifyAppended.
	keepNotices = time.Second
)

// everyRun in an announcement means all runs, see WatchAll.
const everyRun = "*"

// watching is the set of run ids, or everyRun, that this process watches.
type watching struct {
	mu   sync.Mutex
	runs map[string]int
}

func (w *watching) add(run string) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs = map[string]int{}
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
		b.WriteString(run)
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

// announce tells all processes, now and from time to time until leave is called, that this one watches a run, or
// everyRun.
func (b *Bus) announce(run string) (leave func()) {
	leave = b.watching.add(run)
	if err := b.nc.Publish(b.subject(subjectWatch), []byte(run)); err != nil {
		b.log.Debug("say which run is watched", "error", err) // it is said again
	}
	return leave
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

// Watchers implements bus.Events. The trackings of a process share one subscription.
func (b *Bus) Watchers(ctx context.Context) (bus.Watchers, error) {
	b.tracking.Lock()
	defer b.tracking.Unlock()
	w := b.watchers.Load()
	if w == nil {
		w = newWatchers(time.Now())
		stop, err := b.listen(ctx, []string{b.subject(subjectWatch)}, func(m *nats.Msg) {
			for run, k := range w.hear(m.Data, time.Now()) {
				b.sendAppended(k.tenant, run, k.From, k.To)
			}
		})
		if err != nil {
			return nil, err
		}
		w.end = stop
		b.watchers.Store(w)
	}
	w.users++
	return &tracking{watchers: w, stop: sync.OnceFunc(func() { b.untrack(w) })}, nil
}

func (b *Bus) untrack(w *watchers) {
	b.tracking.Lock()
	defer b.tracking.Unlock()
	if w.users--; w.users == 0 {
		b.watchers.Store(nil)
		w.end()
	}
}

// tracking is one user's share of the watchers.
type tracking struct {
	*watchers
	stop func()
}

// Stop implements bus.Watchers.
func (t *tracking) Stop() { t.stop() }

// watchers are the runs that any process watches, and the latest notices for others.
type watchers struct {
	users int       // guarded by Bus.tracking
	end   func()    // ends the subscription
	known time.Time // before it, any run may be watched

	mu    sync.Mutex
	until map[string]time.Time // by run or everyRun
	swept time.Time

	// Notices of runs without known watchers: the announcement of a watch may arrive after the watcher has read the
	// store, and after the notice of entries that the watcher has not read. old has those of the interval before recent.
	recent, old map[state.RunID]*kept
	began       time.Time // of the interval of recent
}

// kept is a notice that was not sent.
type kept struct {
	tenant string
	bus.Notice
}

func newWatchers(now time.Time) *watchers {
	return &watchers{known: now.Add(watchUnknown), until: map[string]time.Time{}, recent: map[state.RunID]*kept{}, old: map[state.RunID]*kept{}, began: now}
}

// Watched implements bus.Watchers.
func (w *watchers) Watched(run state.RunID) bool {
	now := time.Now()
	if now.Before(w.known) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.Before(w.until[string(run)])
}

// keep keeps a notice of a run, and returns false if the run may be watched.
func (w *watchers) keep(tenant string, run state.RunID, n bus.Notice, now time.Time) bool {
	if now.Before(w.known) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Before(w.until[everyRun]) || now.Before(w.until[string(run)]) {
		return false
	}
	w.age(now)
	if k := w.recent[run]; k != nil {
		k.From, k.To = min(k.From, n.From), max(k.To, n.To)
		return true
	}
	// The caller's strings may be parts of large ones.
	w.recent[state.RunID(strings.Clone(string(run)))] = &kept{strings.Clone(tenant), n}
	return true
}

// age drops notices that no announcement in flight can be about.
func (w *watchers) age(now time.Time) {
	switch since := now.Sub(w.began); {
	case since < keepNotices:
		return
	case since < 2*keepNotices:
		w.recent, w.old = w.old, w.recent
		clear(w.recent)
	default:
		clear(w.recent)
		clear(w.old)
	}
	w.began = now
}

// hear records the runs of an announcement, and returns the kept notices of those whose watch is new.
func (w *watchers) hear(data []byte, now time.Time) map[state.RunID]*kept {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.age(now)
	late := map[state.RunID]*kept{}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		run := string(line)
		if !now.Before(w.until[run]) {
			w.release(run, late)
		}
		w.until[run] = now.Add(watchLasts)
	}
	if now.Sub(w.swept) < watchLasts {
		return late
	}
	w.swept = now
	for run, until := range w.until {
		if now.After(until) {
			delete(w.until, run)
		}
	}
	return late
}

// release moves the kept notices of a run, or of everyRun, to late.
func (w *watchers) release(run string, late map[state.RunID]*kept) {
	for _, notices := range []map[state.RunID]*kept{w.recent, w.old} {
		if run == everyRun {
			for id, k := range notices {
				k.add(id, late)
			}
			clear(notices)
		} else if k, ok := notices[state.RunID(run)]; ok {
			k.add(state.RunID(run), late)
			delete(notices, state.RunID(run))
		}
	}
}

// add adds a notice to those of the same run.
func (k *kept) add(run state.RunID, all map[state.RunID]*kept) {
	if other, ok := all[run]; ok {
		k.From, k.To = min(k.From, other.From), max(k.To, other.To)
	}
	all[run] = k
}
