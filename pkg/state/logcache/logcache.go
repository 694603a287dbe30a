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

// New returns a cache of at most limit bytes of encoded entries.
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

// Put remembers a run's log. last is its last entry encoded, and added the size of
// what is new since the last Put.
func (c *Cache) Put(run state.RunID, entries []state.Entry, last []byte, added int64) {
	if len(entries) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &log{run: run, entries: entries, sum: Sum(last), bytes: added}
	if e := c.logs[run]; e != nil {
		old := e.Value.(*log) //nolint:forcetypeassert // as above
		if len(old.entries) > len(entries) {
			return // a slower reader came late
		}
		l.bytes += old.bytes
		c.size -= old.bytes
		c.order.Remove(e)
	}
	c.logs[run] = c.order.PushFront(l)
	c.size += l.bytes
	for c.size > c.limit && c.order.Len() > 1 {
		c.drop(c.order.Back())
	}
}

// Drop forgets a run.
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
	c.size -= l.bytes
}
