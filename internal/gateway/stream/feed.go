package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// These bound the cost of GET /v1/events for each tenant with readers.
const (
	// readInterval is the time between two reads of the runs that have a notice. A run that
	// changes more often is read once.
	readInterval = 200 * time.Millisecond

	// maxRead is the maximum number of runs that one such read includes, and concurrentReads how many of them are read
	// at once.
	maxRead         = 100
	concurrentReads = 8

	// maxPending is the maximum number of runs with a notice that wait to be read. If there are more, readers must
	// request their lists again.
	maxPending = 4096

	// feedLinger bounds how long a feed continues without readers, so that a reader that resumes misses nothing.
	feedLinger = time.Minute

	// listInterval is the time between two checks for changes without a notice. Each check reads the newest runs, and
	// one page of older ones, down to listDepth runs in turn.
	listInterval = 2 * time.Second
	listNewest   = 50
	listPage     = 200
	listDepth    = 1000
)

// Feeds has the latest changes of the runs of each tenant that has readers, or had one within feedLinger. Notices from
// the bus name the runs that have changed, and Feeds reads their values from the store; it may omit a value that
// changes again soon. If a notice is lost, Feeds can find the change later, but only among about the newest 1,000 runs
// of a tenant (listDepth). Feeds is safe for concurrent use.
type Feeds struct {
	store Store
	bus   Bus
	log   *slog.Logger
	quit  <-chan struct{}

	subscribing sync.Mutex // acquired before mu; held while subscribing, which may take long
	stop        func()     // ends the subscriptions; nil: there are none

	mu    sync.Mutex
	feeds map[string]*feed // by tenant
}

// NewFeeds returns the feeds of all tenants. A feed starts with its first reader. All end when quit is closed.
func NewFeeds(store Store, b Bus, log *slog.Logger, quit <-chan struct{}) *Feeds {
	return &Feeds{store: store, bus: b, log: log, quit: quit, feeds: map[string]*feed{}}
}

// feed has the latest changes of one tenant's runs. Readers read them independently of each other.
type feed struct {
	feeds  *Feeds
	tenant string
	name   string // unique among the feeds of all processes

	mu      sync.Mutex
	readers int
	idle    time.Time            // when the last reader left
	pending []state.RunID        // runs with a notice, to be read
	waiting map[state.RunID]bool // the runs in pending; true: a notice says that the run was deleted
	lost    bool                 // there were more than maxPending runs
	seen    map[state.RunID]mark // runs as the feed sent them last
	since   time.Time            // a run that is not in seen and was updated before has not changed since the feed began
	changes history
	cursor  string // where the next check of older runs begins
	depth   int    // number of older runs that were checked in this turn
}

// mark identifies a value of a run: it differs if the run has changed.
type mark struct {
	version int64
	status  state.Status
}

// deletedRun is the mark of a deleted run. It is newer than any value, so that one that was read late is ignored.
var deletedRun = mark{version: math.MaxInt64}

// follow returns the feed of a tenant, which ends when quit is closed, or some time after all callers have called
// leave, but not with ctx. The error is a *service.BusError if the bus refuses the subscription.
func (fs *Feeds) follow(ctx context.Context, tenant string) (f *feed, leave func(), err error) {
	fs.subscribing.Lock()
	defer fs.subscribing.Unlock()
	if fs.stop == nil {
		if fs.stop, err = fs.subscribe(context.WithoutCancel(ctx)); err != nil {
			return nil, nil, &service.BusError{Err: err}
		}
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.feeds[tenant]
	if f == nil {
		f = &feed{
			feeds: fs, tenant: tenant, name: rand.Text(), waiting: map[state.RunID]bool{}, seen: map[state.RunID]mark{}, changes: history{grown: make(chan struct{})}, since: time.Now().Add(-state.MaxSkew),
		}
		fs.feeds[tenant] = f
		go f.run() // ends after feedLinger without readers, or when quit is closed
	}
	f.mu.Lock()
	f.readers++
	f.mu.Unlock()
	return f, sync.OnceFunc(f.leave), nil
}

func (fs *Feeds) subscribe(ctx context.Context) (stop func(), err error) {
	changed, err := fs.bus.WatchAll(ctx, fs.Changed)
	if err != nil {
		return nil, err
	}
	deleted, err := fs.bus.WatchDeleted(ctx, fs.deleted)
	if err != nil {
		changed()
		return nil, err
	}
	return func() { changed(); deleted() }, nil
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers--
	f.idle = time.Now()
}

// end removes a feed that has been idle for feedLinger, or any feed if quit is true, and reports whether it did. It
// ends the subscriptions with the last feed.
func (fs *Feeds) end(f *feed, quit bool) bool {
	if !fs.remove(f, quit) {
		return false
	}
	fs.subscribing.Lock()
	defer fs.subscribing.Unlock()
	fs.mu.Lock()
	last := len(fs.feeds) == 0
	fs.mu.Unlock()
	if last && fs.stop != nil {
		fs.stop()
		fs.stop = nil
	}
	return true
}

func (fs *Feeds) remove(f *feed, quit bool) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !quit && (f.readers > 0 || time.Since(f.idle) <= feedLinger) {
		return false
	}
	delete(fs.feeds, f.tenant)
	return true
}

// Changed records a notice that a run of a tenant may have changed. It does not block. The feed reads the run from the
// store, and sends a change only if it finds one. Without a feed of the tenant Changed does nothing.
func (fs *Feeds) Changed(tenant string, id state.RunID) { fs.note(tenant, id, false) }

// deleted records a notice that a run of a tenant was deleted. The feed verifies that in the store.
func (fs *Feeds) deleted(tenant string, id state.RunID) { fs.note(tenant, id, true) }

func (fs *Feeds) note(tenant string, id state.RunID, deleted bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.feeds[tenant]; f != nil {
		f.note(id, deleted)
	}
}

func (f *feed) note(id state.RunID, deleted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, waits := f.waiting[id]
	switch {
	case waits:
		f.waiting[id] = before || deleted
	case len(f.pending) >= maxPending:
		f.lost = true
	default:
		f.pending, f.waiting[id] = append(f.pending, id), deleted
	}
}

// run reads the runs with a notice, and checks for changes without one, until the feed ends.
func (f *feed) run() {
	tick := time.NewTicker(readInterval)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-tick.C:
		case <-f.feeds.quit:
			f.feeds.end(f, true)
			return
		}
		if f.feeds.end(f, false) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), listInterval)
		f.read(ctx)
		if time.Since(looked) >= listInterval {
			f.look(ctx)
			looked = time.Now()
		}
		cancel()
	}
}

// read reads up to maxRead pending runs and adds their changes.
func (f *feed) read(ctx context.Context) {
	f.mu.Lock()
	lost := f.lost
	if lost {
		f.pending, f.waiting, f.lost = nil, map[state.RunID]bool{}, false
	}
	ids := f.pending[:min(len(f.pending), maxRead)]
	f.pending = f.pending[len(ids):]
	deleted := make([]bool, len(ids)) // whether their notices say so
	for i, id := range ids {
		deleted[i] = f.waiting[id]
		delete(f.waiting, id)
	}
	f.mu.Unlock()
	if lost {
		f.lose()
		return
	}
	var group errgroup.Group
	group.SetLimit(concurrentReads)
	states, errs := make([]state.State, len(ids)), make([]error, len(ids))
	for i, id := range ids {
		group.Go(func() error {
			errs[i] = service.Guarded(f.feeds.log, func() (err error) {
				states[i], err = f.feeds.store.Load(ctx, id)
				return err
			})()
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	for i, id := range ids {
		st := &states[i]
		switch {
		case errors.Is(errs[i], state.ErrNotFound):
			f.remove(id, deleted[i])
		case errors.Is(errs[i], state.ErrFormat): // a gateway of a newer build can read the run
		case errs[i] != nil:
			f.note(id, deleted[i]) // read it again later
		case st.ID != "":
			if st.Tenant == f.tenant {
				f.add(st)
			}
		}
	}
}

// look finds changes without a notice: of the newest runs, and of one page of older ones.
func (f *feed) look(ctx context.Context) {
	only := state.Filter{Tenant: f.tenant, Limit: listNewest, Bytes: service.ListBytes}
	newest, err := f.feeds.store.List(ctx, only)
	if err != nil {
		return // the next check follows soon
	}
	f.miss(only, newest)
	if f.cursor == "" || f.depth >= listDepth {
		f.cursor, f.depth = newest.Next, 0
	}
	found := newest.Runs
	if f.cursor != "" {
		only = state.Filter{Tenant: f.tenant, Limit: listPage, Cursor: f.cursor, Bytes: service.ListBytes}
		older, err := f.feeds.store.List(ctx, only)
		if err == nil {
			f.miss(only, older)
			f.cursor, f.depth = older.Next, f.depth+len(older.Runs)
			found = append(found[:len(found):len(found)], older.Runs...)
		}
	}
	for i := len(found) - 1; i >= 0; i-- {
		f.add(&found[i])
	}
}

// miss records notices for runs that the feed has sent and that are missing on the page where they belong: they may be
// deleted.
func (f *feed) miss(only state.Filter, page state.RunPage) {
	there := make(map[state.RunID]bool, len(page.Runs))
	for i := range page.Runs {
		there[page.Runs[i].ID] = true
	}
	f.mu.Lock()
	var missing []state.RunID
	for id, m := range f.seen {
		above := only.Cursor == "" || string(id) < only.Cursor
		if m != deletedRun && !there[id] && above && string(id) >= page.Next {
			missing = append(missing, id)
		}
	}
	f.mu.Unlock()
	for _, id := range missing {
		f.note(id, false)
	}
}

// newest returns the number of the last change.
func (f *feed) newest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes.last
}

// after calls history.after.
func (f *feed) after(n int64) ([]change, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes.after(n)
}

// add appends a change if the run differs from the value that was sent last.
func (f *feed) add(st *state.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	m := mark{st.Version, st.Status}
	before, known := f.seen[st.ID]
	if before == m || before.version > m.version {
		return
	}
	f.see(st.ID, m, now)
	if !known && st.UpdatedAt.Before(f.since) {
		return // it has not changed since the feed began
	}
	run := api.RunOf(*st, now).Summary()
	k := newChange(api.Change{Type: api.RunChanged, At: state.At(now), Run: &run})
	k.run = state.State{ID: st.ID, Tenant: st.Tenant, Agent: st.Agent, Loop: st.Loop, Parent: st.Parent, Batch: st.Batch, Metadata: st.Metadata}
	for name, value := range st.Metadata {
		k.size += len(name) + len(value)
	}
	f.changes.keep(k)
}

// remove appends the deletion of a run that the feed has sent, or whose notice says that it was deleted.
func (f *feed) remove(id state.RunID, deleted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known := f.seen[id]
	if before == deletedRun || !known && !deleted {
		return
	}
	now := time.Now()
	f.see(id, deletedRun, now)
	f.changes.keep(newChange(api.Change{Type: api.RunDeleted, At: state.At(now), RunID: string(id)}))
}

// lose appends the event that tells all readers that changes are lost.
func (f *feed) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes.keep(newChange(api.Change{Type: api.ChangesLost, At: state.At(time.Now())}))
}

// see records the mark of a run that is sent. The caller holds f.mu.
func (f *feed) see(id state.RunID, m mark, now time.Time) {
	if len(f.seen) >= keptChanges+listDepth {
		clear(f.seen)
		f.since = now.Add(-state.MaxSkew)
	}
	f.seen[id] = m
}
