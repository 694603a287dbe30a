package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// How GET /v1/events bounds what it costs, for each tenant whose changes somebody reads.
const (
	// changesEvery is how often the runs are read of which something was heard. A run that
	// changes more often is read once.
	changesEvery = 200 * time.Millisecond

	// changesRead is how many are read each time.
	changesRead = 100

	// changesReads is how many of them are read at a time.
	changesReads = 8

	// changesHeard is how many may wait to be read. If there are more, readers ask for their
	// lists anew.
	changesHeard = 4096

	// changesKept is how many changes are kept for readers that are slow, or come back, and
	// changesBytes how large they may be together.
	changesKept  = 2048
	changesBytes = 4 << 20

	// changesLinger is how long a feed goes on without readers, so that one which comes back
	// misses nothing.
	changesLinger = time.Minute

	// changesLook is how often lists are looked at for changes of which nothing was heard:
	// the newest runs each time, and in turn a page of the others down to changesDepth.
	changesLook   = 2 * time.Second
	changesNewest = 50
	changesPage   = 200
	changesDepth  = 1000
)

// changes are the feeds of tenants. The bus says which runs have changed, and the store how
// they stand: a hint that is lost delays a change, and no more.
type changes struct {
	g *Gateway

	listening sync.Mutex // before mu: to begin to listen may take long
	stop      func()     // ends listening; nil: it has not begun

	mu    sync.Mutex
	feeds map[string]*changeFeed // by tenant
}

// changeFeed has the latest changes of one tenant's runs. Readers follow it each at its own
// pace.
type changeFeed struct {
	c      *changes
	tenant string
	name   string // of this feed among all that there ever were

	mu      sync.Mutex
	readers int
	idle    time.Time // since when there are none
	heard   []state.RunID
	waiting map[state.RunID]bool // those in heard: whether it was said that they are deleted
	lost    bool                 // there were more than may wait
	seen    map[state.RunID]mark // as they were sent last
	since   time.Time            // what is older was there before the feed, if it was not seen
	kept    []change
	bytes   int
	last    int64         // number of the last change
	grown   chan struct{} // closed when there is another
	cursor  string        // where the next look goes on
	depth   int           // how far it has come
}

// mark is by what one can tell that a run has changed.
type mark struct {
	version int64
	status  state.Status
}

// deletedRun is that of a run that is gone: nothing that is read late of it is newer.
var deletedRun = mark{version: math.MaxInt64}

// change is one event of a feed. Without a run it is for all readers.
type change struct {
	n     int64
	at    time.Time
	run   state.State // as far as filters look at it
	frame []byte      // without its id
	size  int
}

// follow returns the feed of a tenant, which listens, until leave is called.
func (c *changes) follow(ctx context.Context, tenant string) (f *changeFeed, leave func(), err error) {
	c.listening.Lock()
	defer c.listening.Unlock()
	if c.stop == nil {
		if c.stop, err = c.listen(context.WithoutCancel(ctx)); err != nil {
			return nil, nil, &service.BusError{Err: err}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f = c.feeds[tenant]
	if f == nil {
		f = &changeFeed{
			c: c, tenant: tenant, name: rand.Text(), waiting: map[state.RunID]bool{}, seen: map[state.RunID]mark{}, grown: make(chan struct{}), since: time.Now().Add(-state.MaxSkew),
		}
		c.feeds[tenant] = f
		go f.run() // until nobody has read for a while, or the gateway ends
	}
	f.mu.Lock()
	f.readers++
	f.mu.Unlock()
	return f, sync.OnceFunc(f.leave), nil
}

func (c *changes) listen(ctx context.Context) (stop func(), err error) {
	changed, err := c.g.bus.WatchAll(ctx, c.changed)
	if err != nil {
		return nil, err
	}
	deleted, err := c.g.bus.WatchDeleted(ctx, c.deleted)
	if err != nil {
		changed()
		return nil, err
	}
	return func() { changed(); deleted() }, nil
}

func (f *changeFeed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers--
	f.idle = time.Now()
}

// end takes the feed away if nobody reads it, and reports whether it has. With the last one
// the listening ends.
func (c *changes) end(f *changeFeed, quit bool) bool {
	if !c.remove(f, quit) {
		return false
	}
	c.listening.Lock()
	defer c.listening.Unlock()
	c.mu.Lock()
	last := len(c.feeds) == 0
	c.mu.Unlock()
	if last && c.stop != nil {
		c.stop()
		c.stop = nil
	}
	return true
}

func (c *changes) remove(f *changeFeed, quit bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !quit && (f.readers > 0 || time.Since(f.idle) <= changesLinger) {
		return false
	}
	delete(c.feeds, f.tenant)
	return true
}

// changed takes the hint that a run of a tenant has changed. The feed reads the store for
// what it publishes.
func (c *changes) changed(tenant string, id state.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feeds[tenant]; f != nil {
		f.hear(id, false)
	}
}

// deleted takes the word that a run of a tenant is deleted. The store is asked whether it is.
func (c *changes) deleted(tenant string, id state.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feeds[tenant]; f != nil {
		f.hear(id, true)
	}
}

func (f *changeFeed) hear(id state.RunID, deleted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	said, waits := f.waiting[id]
	switch {
	case waits:
		f.waiting[id] = said || deleted
	case len(f.heard) >= changesHeard:
		f.lost = true
	default:
		f.heard, f.waiting[id] = append(f.heard, id), deleted
	}
}

// run reads what was heard, and looks for what was not.
func (f *changeFeed) run() {
	tick := time.NewTicker(changesEvery)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-tick.C:
		case <-f.c.g.quit:
			f.c.end(f, true)
			return
		}
		if f.c.end(f, false) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), changesLook)
		f.read(ctx)
		if time.Since(looked) >= changesLook {
			f.look(ctx)
			looked = time.Now()
		}
		cancel()
	}
}

// read reads runs of which something was heard.
func (f *changeFeed) read(ctx context.Context) {
	f.mu.Lock()
	lost := f.lost
	if lost {
		f.heard, f.waiting, f.lost = nil, map[state.RunID]bool{}, false
	}
	ids := f.heard[:min(len(f.heard), changesRead)]
	f.heard = f.heard[len(ids):]
	deleted := make([]bool, len(ids)) // whether it was said
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
	group.SetLimit(changesReads)
	states, errs := make([]state.State, len(ids)), make([]error, len(ids))
	for i, id := range ids {
		group.Go(func() error {
			errs[i] = service.Guarded(f.c.g.log, func() (err error) {
				states[i], err = f.c.g.store.Load(ctx, id)
				return err
			})()
			return nil
		})
	}
	_ = group.Wait() // says nothing
	for i, id := range ids {
		st := &states[i]
		switch {
		case errors.Is(errs[i], state.ErrNotFound):
			f.remove(id, deleted[i])
		case errors.Is(errs[i], state.ErrFormat): // for a newer gateway to tell
		case errs[i] != nil:
			f.hear(id, deleted[i]) // later
		case st.ID != "":
			if st.Tenant == f.tenant {
				f.add(st)
			}
		}
	}
}

// look finds changes of which nothing was heard: those of the newest runs, and of one page
// of older ones.
func (f *changeFeed) look(ctx context.Context) {
	only := state.Filter{Tenant: f.tenant, Limit: changesNewest, Bytes: service.ListBytes}
	newest, err := f.c.g.store.List(ctx, only)
	if err != nil {
		return // the next look comes soon
	}
	f.miss(only, newest)
	if f.cursor == "" || f.depth >= changesDepth {
		f.cursor, f.depth = newest.Next, 0
	}
	found := newest.Runs
	if f.cursor != "" {
		only = state.Filter{Tenant: f.tenant, Limit: changesPage, Cursor: f.cursor, Bytes: service.ListBytes}
		older, err := f.c.g.store.List(ctx, only)
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

// miss has the runs read that were seen once and are not on the page where they would be.
func (f *changeFeed) miss(only state.Filter, page state.RunPage) {
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
		f.hear(id, false)
	}
}

// newest is the number of the last change.
func (f *changeFeed) newest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// changesPart is how many changes a reader takes at once.
const changesPart = 64

// after returns the changes that follow number n, some of them, and what is closed when there
// are more. To a reader that has missed some it says so instead.
func (f *changeFeed) after(n int64) ([]change, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.last - int64(len(f.kept)) + 1
	if n+1 < first || n > f.last {
		now := time.Now()
		return []change{{n: f.last, at: now, frame: sse.Append(nil, eventOf(api.Change{Type: api.ChangesLost, At: state.At(now)}, ""))}}, f.grown
	}
	rest := f.kept[n+1-first:]
	return slices.Clone(rest[:min(len(rest), changesPart)]), f.grown
}

// add keeps a change of a run for the readers, if it is one.
func (f *changeFeed) add(st *state.State) {
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
		return // it was so before
	}
	run := api.RunOf(*st, now).Summary()
	k := newChange(api.Change{Type: api.RunChanged, At: state.At(now), Run: &run})
	k.run = state.State{ID: st.ID, Tenant: st.Tenant, Agent: st.Agent, Loop: st.Loop, Parent: st.Parent, Batch: st.Batch, Metadata: st.Metadata}
	for name, value := range st.Metadata {
		k.size += len(name) + len(value)
	}
	f.keep(k)
}

// remove keeps for the readers that a run of the tenant is gone: one that was seen, or of which
// it was said.
func (f *changeFeed) remove(id state.RunID, said bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known := f.seen[id]
	if before == deletedRun || !known && !said {
		return
	}
	now := time.Now()
	f.see(id, deletedRun, now)
	f.keep(newChange(api.Change{Type: api.RunDeleted, At: state.At(now), RunID: string(id)}))
}

// lose tells the readers that some changes are lost.
func (f *changeFeed) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(newChange(api.Change{Type: api.ChangesLost, At: state.At(time.Now())}))
}

// see notes how a run was sent; f.mu is held, as in keep.
func (f *changeFeed) see(id state.RunID, m mark, now time.Time) {
	if len(f.seen) >= changesKept+changesDepth {
		clear(f.seen)
		f.since = now.Add(-state.MaxSkew)
	}
	f.seen[id] = m
}

func newChange(c api.Change) change {
	k := change{at: c.At.Time, frame: sse.Append(nil, eventOf(c, ""))}
	k.size = len(k.frame)
	return k
}

func (f *changeFeed) keep(k change) {
	f.last++
	k.n = f.last
	f.kept = append(f.kept, k)
	f.bytes += k.size
	for len(f.kept) > changesKept || f.bytes > changesBytes && len(f.kept) > 1 {
		f.bytes -= f.kept[0].size
		f.kept[0] = change{}
		f.kept = f.kept[1:]
	}
	close(f.grown)
	f.grown = make(chan struct{})
}
