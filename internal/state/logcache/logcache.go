package logcache

import (
	"container/list"
	"crypto/sha1" //nolint:gosec // tells entries apart, guards nothing
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// recent is the time after its last use in which a log is not displaced. The runs that queue for a worker's slots
// take their turns one after the other: if each displaced the least recently used log, every log would be displaced
// before its run's next turn. So a cache that is full of recently used logs keeps them, and refuses others.
const recent = 2 * time.Second

// unused is the time after its last use in which a log is dropped. The run probably waits for a person or a timer, or has
// moved to another process. Every garbage collection reads all cached logs: with 64 MiB of such logs, collections took
// 18 % of a worker's processor time instead of 4 %.
const unused = 30 * time.Second

// Cache is a bounded set of logs. A new log displaces the least recently used ones, except those used within the last 2
// s: if these leave no room, the new log is not cached. A log is dropped when it was not used for 30 to 60 s. The cache
// is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	limit int64
	size  int64
	order *list.List // of *log, the latest first
	logs  map[state.RunID]*list.Element

	expiring bool // a timer calls expire
}

// Known is the cached part of a run: its log from a checkpoint on, or from its beginning. The zero value means nothing.
type Known struct {
	Entries []state.Entry
	Sum     string // of the last entry, as Sum gives it
	Header  Header
}

// Header is the header that a commit of this process wrote. It is the zero value if the cached log does
// not end with such a commit.
type Header struct {
	Commit string       // the id of the commit
	State  *state.State // as a store decodes it, with the entries as its log; it must not be changed
	Bytes  int          // the approximate size of State

	EagerClaim string // the token under which the commit has claimed the next turn; empty if it has not
}

type log struct {
	run     state.RunID
	entries []state.Entry
	sum     string
	header  Header
	bytes   int64 // of the entries
	used    time.Time
}

func (l *log) known() Known {
	return Known{Entries: l.entries, Sum: l.sum, Header: l.header}
}

func (l *log) size() int64 {
	return l.bytes + int64(l.header.Bytes)
}

// New returns a cache of logs that take at most about limit bytes of memory. An empty cache
// also takes one log that is larger.
func New(limit int64) *Cache {
	return &Cache{limit: limit, order: list.New(), logs: map[state.RunID]*list.Element{}}
}

// Sum identifies an encoded entry. Two logs with the same entry at the same place
// are the same up to there: entries carry their time and their ids.
func Sum(encoded []byte) string {
	s := sha1.Sum(encoded) //nolint:gosec // as above
	return hex.EncodeToString(s[:])
}

// Get returns the cached part of a run, and the zero Known if there is none. The caller must
// not modify the entries; appending to them is safe. The first caller after a Put also gets
// the capacity behind them, so that the log of a continuing run is not copied at every turn.
func (c *Cache) Get(run state.RunID) Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.logs[run]
	if e == nil {
		return Known{}
	}
	return c.use(e)
}

func (c *Cache) use(e *list.Element) Known {
	c.order.MoveToFront(e)
	l := e.Value.(*log) //nolint:forcetypeassert // the list holds nothing else
	l.used = time.Now()
	known := l.known()
	l.entries = slices.Clip(l.entries)
	return known
}

// Resume returns the same as Get if the cached commit has eagerly claimed the next turn under token.
// It succeeds once. The log of Known.Header.State is Known.Entries.
func (c *Cache) Resume(run state.RunID, token string) (Known, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.logs[run]
	if e == nil || token == "" {
		return Known{}, false
	}
	l := e.Value.(*log) //nolint:forcetypeassert // the list holds nothing else
	if l.header.EagerClaim != token {
		return Known{}, false
	}
	l.header.EagerClaim = ""
	known := c.use(e)
	if s := known.Header.State; cap(s.Log) != cap(known.Entries) { // an earlier caller has the capacity
		clipped := *s
		clipped.Log = known.Entries
		known.Header.State = &clipped
	}
	return known, true
}

// Put caches a run's log, whose encoded last entry is last, and the header of the commit that wrote
// it, or the zero Header; the log of h.State is entries. The caller must not change h.State, nor use
// the capacity behind the entries, afterwards. A late caller may put an older log, which is still a
// prefix of the run's. If there is no capacity for the log, the cache has no log of the run
// afterwards. Put ignores an empty log.
func (c *Cache) Put(run state.RunID, entries []state.Entry, last []byte, h Header) {
	if len(entries) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &log{run: run, entries: entries, sum: Sum(last), used: time.Now()}
	if h.Commit != "" {
		l.header = h
	}
	counted := 0
	if l.header.State != nil && l.header.State.LogBytes > 0 {
		l.bytes, counted = l.header.State.LogBytes, len(entries) // without reading a long log in each turn
	}
	if e := c.logs[run]; e != nil {
		old := e.Value.(*log) //nolint:forcetypeassert // the list holds nothing else
		if counted == 0 && len(old.entries) <= len(entries) && old.entries[0].Seq == entries[0].Seq {
			l.bytes, counted = old.bytes, len(old.entries)
		}
		c.drop(e)
	}
	for i := range entries[counted:] {
		l.bytes += entries[counted+i].Weight()
	}
	for back := c.order.Back(); back != nil && c.size+l.size() > c.limit; back = c.order.Back() {
		if l.used.Sub(back.Value.(*log).used) < recent { //nolint:forcetypeassert // the list holds nothing else
			return
		}
		c.drop(back)
	}
	c.logs[run] = c.order.PushFront(l)
	c.size += l.size()
	if !c.expiring {
		c.expiring = true
		time.AfterFunc(unused, c.expire)
	}
}

// expire drops the logs that were not used for a while, and calls itself again while the cache has others.
func (c *Cache) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for back := c.order.Back(); back != nil && now.Sub(back.Value.(*log).used) >= unused; back = c.order.Back() { //nolint:forcetypeassert // as above
		c.drop(back)
	}
	if c.expiring = c.order.Len() > 0; c.expiring {
		time.AfterFunc(unused, c.expire)
	}
}

// Drop removes a run's log: the run has ended, and probably does not continue soon.
func (c *Cache) Drop(run state.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.logs[run]; e != nil {
		c.drop(e)
	}
}

func (c *Cache) drop(e *list.Element) {
	l := e.Value.(*log) //nolint:forcetypeassert // as above
	c.order.Remove(e)
	delete(c.logs, l.run)
	c.size -= l.size()
}
