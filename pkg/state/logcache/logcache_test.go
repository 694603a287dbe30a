package logcache_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/logcache"
)

func entries(n int) []state.Entry {
	list := make([]state.Entry, n)
	for i := range list {
		list[i] = state.Entry{Seq: int64(i + 1)}
	}
	return list
}

func length(c *logcache.Cache, run state.RunID) int {
	list, _ := c.Get(run)
	return len(list)
}

func TestPut(t *testing.T) {
	t.Parallel()
	c := logcache.New(1000)
	if list, sum := c.Get("r"); list != nil || sum != "" {
		t.Errorf("Get from an empty cache = %v, %q", list, sum)
	}
	c.Put("r", entries(2), 0, []byte("b"), 10)
	if list, sum := c.Get("r"); len(list) != 2 || sum != logcache.Sum([]byte("b")) {
		t.Errorf("Get = %d entries, %q", len(list), sum)
	}
	c.Put("r", entries(3), 2, []byte("c"), 10)
	if list, sum := c.Get("r"); len(list) != 3 || sum != logcache.Sum([]byte("c")) {
		t.Errorf("Get = %d entries, %q", len(list), sum)
	}
	// Who comes late changes nothing.
	c.Put("r", entries(4), 2, []byte("late"), 10)
	c.Put("gone", entries(4), 2, []byte("late"), 10)
	if length(c, "r") != 3 || length(c, "gone") != 0 {
		t.Errorf("r has %d entries, gone has %d; want 3 and 0", length(c, "r"), length(c, "gone"))
	}
	// A log that was read anew replaces a longer one: a failover rolled the run back.
	c.Put("r", entries(1), 0, []byte("a"), 5)
	if list, sum := c.Get("r"); len(list) != 1 || sum != logcache.Sum([]byte("a")) {
		t.Errorf("Get = %d entries, %q", len(list), sum)
	}
}

// Appending to what Get returns does not write into the cache.
func TestGetSharesNoTail(t *testing.T) {
	t.Parallel()
	c := logcache.New(1000)
	c.Put("r", append(make([]state.Entry, 0, 9), entries(2)...), 0, []byte("b"), 10)
	one, _ := c.Get("r")
	two, _ := c.Get("r")
	one, two = append(one, state.Entry{Seq: 10}), append(two, state.Entry{Seq: 20})
	if one[2].Seq != 10 || two[2].Seq != 20 {
		t.Errorf("two readers write into one log: %d, %d", one[2].Seq, two[2].Seq)
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	c := logcache.New(100)
	put := func(run state.RunID, n int, known, size int64) { c.Put(run, entries(n), known, []byte(run), size) }
	put("a", 1, 0, 40)
	put("b", 1, 0, 40)
	c.Get("a")
	put("c", 1, 0, 40) // b was used the longest ago
	if length(c, "a") != 1 || length(c, "b") != 0 || length(c, "c") != 1 {
		t.Errorf("a, b, c have %d, %d, %d entries; want 1, 0, 1", length(c, "a"), length(c, "b"), length(c, "c"))
	}
	put("c", 2, 1, 40) // 40 + 80 are too many
	if length(c, "a") != 0 || length(c, "c") != 2 {
		t.Errorf("a, c have %d, %d entries; want 0, 2", length(c, "a"), length(c, "c"))
	}
	// Reading a log anew does not count it twice.
	for range 9 {
		put("c", 2, 0, 80)
	}
	put("d", 1, 0, 20)
	if length(c, "c") != 2 || length(c, "d") != 1 {
		t.Errorf("c, d have %d, %d entries; want 2, 1", length(c, "c"), length(c, "d"))
	}
	put("huge", 1, 0, 500)
	if length(c, "huge") != 1 || length(c, "c") != 0 || length(c, "d") != 0 {
		t.Error("a log above the bound is kept beside others, or not at all")
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	c := logcache.New(50)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				run := state.RunID(fmt.Sprint("r", (w+i)%7))
				list, _ := c.Get(run)
				known := int64(len(list))
				c.Put(run, append(list, state.Entry{Seq: known + 1}), known, []byte("x"), 5)
				if known > 3 {
					c.Put(run, entries(1), 0, []byte("x"), 5)
				}
				for i, e := range list {
					if e.Seq != int64(i+1) {
						t.Errorf("entry %d has number %d", i+1, e.Seq)
					}
				}
			}
		})
	}
	wg.Wait()
}
