// Package logcache keeps the logs of the runs that a store has lately read. Logs
// only grow, so a store need fetch no more than what came since (I12).
package logcache

import (
	"container/list"
	"crypto/sha1" //nolint:gosec // tells entries apart, guards nothing
	"encoding/hex"
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Cache is a bounded set of logs, the least recently used dropped first. It is
// safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	limit int64
	size  int64
	order *list.List // of *log, the latest first
	logs  map[state.RunID]*list.Element
}

type log struct {
	run     state.RunID
	entries []state.Entry
	sum     string
	bytes   int64
}

// New returns a cache of at most limit bytes of encoded entries. It keeps one log
// even if that alone is larger.
func New(limit int64) *Cache {
	return &Cache{limit: limit, order: list.New(), logs: map[state.RunID]*list.Element{}}
}

// Sum identifies an encoded entry. Two logs with the same entry at the same place
// are the same up to there: entries carry their time and their ids.
func Sum(encoded []byte) string {
	s := sha1.Sum(encoded) //nolint:gosec // as above
	return hex.EncodeToString(s[:])
}

// Get returns what is known of a run's log and the sum of its last entry. The
// caller must not modify the entries; appending to them is safe.
func (c *Cache) Get(run state.RunID) (entries []state.Entry, sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.logs[run]
	if e == nil {
		return nil, ""
	}
	c.order.MoveToFront(e)
	l := e.Value.(*log) //nolint:forcetypeassert // the list holds nothing else
	return l.entries[:len(l.entries):len(l.entries)], l.sum
}

// Put remembers a run's log, of which the first known entries came from Get. last
// is its last entry encoded, and size that of all entries after the known ones.
//
// With nothing known the log replaces what is held, which may be from before a
// failover. Otherwise it must continue what is held; who comes late, or after the
// log was dropped, changes nothing.
func (c *Cache) Put(run state.RunID, entries []state.Entry, known int64, last []byte, size int64) {
	if len(entries) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &log{run: run, entries: entries, sum: Sum(last), bytes: size}
	if e := c.logs[run]; e != nil {
		old := e.Value.(*log) //nolint:forcetypeassert // the list holds nothing else
		if known > 0 && int64(len(old.entries)) != known {
			return
		}
		if known > 0 {
			l.bytes += old.bytes
		}
		c.drop(e)
	} else if known > 0 {
		return
	}
	c.logs[run] = c.order.PushFront(l)
	c.size += l.bytes
	for c.size > c.limit && c.order.Len() > 1 {
		c.drop(c.order.Back())
	}
}

func (c *Cache) drop(e *list.Element) {
	l := e.Value.(*log) //nolint:forcetypeassert // as above
	c.order.Remove(e)
	delete(c.logs, l.run)
	c.size -= l.bytes
}
