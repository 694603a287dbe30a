package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// concurrentFeeds is the number of runs published concurrently.
	concurrentFeeds = 16

	// maxFed bounds the cache of published offsets. For a run that is not in the cache, the worker
	// reads the offset from the feed.
	maxFed = 4096

	// fedFor is the lifetime of a cached offset. Another worker may publish more of the run, and
	// the bus stops detecting duplicates once it has dropped their ids.
	fedFor = time.Minute

	// feedPage is the number of entries read and published at a time.
	feedPage = 256
)

// Feed publishes the logs of runs as events after the commits of their turns. With a Feed, a run that waits or has
// ended is finalized only when its events are stored, so a crash loses none; events that are too large for the bus are
// left out. No store keeps how much of a log is published: the bus returns the last event of each run. A Feed is safe
// for concurrent use.
type Feed struct {
	store feedStore
	bus   feedBus
	log   *slog.Logger
	wake  chan struct{}

	mu      sync.Mutex
	pending map[state.RunID]wanted
	locks   map[state.RunID]*feedLock
	fed     map[state.RunID]fed
}

type feedStore interface {
	LogPage(ctx context.Context, run state.RunID, after int64, limit, bytes int) (state.LogPage, error)
	Load(ctx context.Context, run state.RunID) (state.State, error)
}

type feedBus interface {
	bus.Feed

	// PurgeRun is the method of bus.Intake.
	PurgeRun(ctx context.Context, tenant string, run state.RunID, letters bool) error
}

// wanted is the offset through which a run must be published.
type wanted struct {
	tenant string
	upTo   int64
}

// fed is a published offset, in entries, and the time at which the worker learned it.
type fed struct {
	entries int64
	at      time.Time
}

// feedLock lets one goroutine at a time publish a run. Its owner holds it across calls of store and
// bus, so waiting for it must respect the context.
type feedLock struct {
	token chan struct{} // holds a token while a goroutine publishes
	users int
}

// NewFeed returns the feed of the runs in store.
func NewFeed(store feedStore, b feedBus, log *slog.Logger) *Feed {
	return &Feed{
		store: store, bus: b, log: log, wake: make(chan struct{}, 1),
		pending: map[state.RunID]wanted{}, locks: map[state.RunID]*feedLock{}, fed: map[state.RunID]fed{},
	}
}

// Grown schedules the entries of a run through upTo for publication.
func (f *Feed) Grown(tenant string, run state.RunID, upTo int64) {
	f.mu.Lock()
	f.pending[run] = wanted{tenant, max(f.pending[run].upTo, upTo)}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run publishes the entries that Grown schedules, until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	for {
		select {
		case <-f.wake:
			f.FlushAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// FlushAll publishes the entries of all earlier calls of Grown. It logs failures: those events are
// published with the run's next turn, or when the run waits or ends.
func (f *Feed) FlushAll(ctx context.Context) {
	f.mu.Lock()
	pending := f.pending
	f.pending = map[state.RunID]wanted{}
	f.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(concurrentFeeds)
	for run, w := range pending {
		group.Go(func() error {
			if err := f.Flush(ctx, w.tenant, run, w.upTo); err != nil && ctx.Err() == nil {
				f.log.Warn("events of a run not published; a worker publishes them when the run continues, waits or ends", "error", err, "run_id", run, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
			}
			return nil
		})
	}
	_ = group.Wait() // each has logged its own
}

// Flush publishes the first upTo entries of a run, except those that the feed has, and returns when they are
// stored. It leaves no events of a deleted run, and returns nil then.
func (f *Feed) Flush(ctx context.Context, tenant string, run state.RunID, upTo int64) error {
	unlock, err := f.lock(ctx, run)
	if err != nil {
		return err
	}
	defer unlock()
	after, err := f.published(ctx, tenant, run)
	began := after
	for err == nil && after < upTo {
		var page state.LogPage
		if page, err = f.store.LogPage(ctx, run, after, int(min(upTo-after, feedPage)), pageBytes); err != nil || len(page.Entries) == 0 {
			break
		}
		if err = f.publish(ctx, tenant, run, page.Entries); err == nil {
			after += int64(len(page.Entries))
			f.note(run, after)
		}
	}
	if errors.Is(err, state.ErrDeleted) || after > began {
		return cmp.Or(f.Recheck(ctx, tenant, run), ignoreDeleted(err))
	}
	return err
}

// Recheck removes the events of a run if it was deleted: the deletion may have purged the feed before they were
// stored. It retries a store that does not answer, and returns nil without a check if ctx ends first. The error
// is that of the bus.
func (f *Feed) Recheck(ctx context.Context, tenant string, run state.RunID) error {
	_, err := f.store.Load(ctx, run)
	for err != nil && !errors.Is(err, state.ErrNotFound) && clock.Pause(ctx, storePause) {
		_, err = f.store.Load(ctx, run)
	}
	if !errors.Is(err, state.ErrDeleted) {
		return nil
	}
	f.mu.Lock()
	delete(f.fed, run)
	f.mu.Unlock()
	if err := f.bus.PurgeRun(ctx, tenant, run, false); err != nil {
		return fmt.Errorf("remove events of deleted run %s: %w", run, err)
	}
	return nil
}

func ignoreDeleted(err error) error {
	if errors.Is(err, state.ErrDeleted) {
		return nil
	}
	return err
}

func (f *Feed) publish(ctx context.Context, tenant string, run state.RunID, entries []state.Entry) error {
	events := make([]bus.Event, len(entries))
	for i, e := range entries {
		data, err := api.EncodeEvent(run, e)
		if err != nil {
			return fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
		events[i] = bus.Event{Seq: e.Seq, Type: e.Type, At: e.At, Data: data}
	}
	return f.bus.PublishEvents(ctx, tenant, run, events)
}

// published returns the number of entries of a run that the feed has.
func (f *Feed) published(ctx context.Context, tenant string, run state.RunID) (int64, error) {
	f.mu.Lock()
	known, ok := f.fed[run]
	f.mu.Unlock()
	if ok && time.Since(known.at) < fedFor {
		return known.entries, nil
	}
	return f.bus.LastEvent(ctx, tenant, run)
}

func (f *Feed) note(run state.RunID, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fed) >= maxFed {
		clear(f.fed)
	}
	f.fed[run] = fed{n, time.Now()}
}

// lock waits until no other goroutine publishes a run, and keeps others out until unlock. The error is that of
// ctx.
func (f *Feed) lock(ctx context.Context, run state.RunID) (unlock func(), err error) {
	f.mu.Lock()
	l := f.locks[run]
	if l == nil {
		l = &feedLock{token: make(chan struct{}, 1)}
		f.locks[run] = l
	}
	l.users++
	f.mu.Unlock()
	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(f.locks, run)
		}
	}
	select {
	case l.token <- struct{}{}:
		return func() { <-l.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
