package logcache_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/logcache"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func entries(n int) []state.Entry {
	list := make([]state.Entry, n)
	for i := range list {
		list[i] = state.Entry{Seq: int64(i + 1)}
	}
	return list
}

func length(c *logcache.Cache, run state.RunID) int {
	return len(c.Get(run).Entries)
}

func TestPut(t *testing.T) {
	t.Parallel()
	c := logcache.New(1 << 20)
	if got := c.Get("r"); got.Entries != nil || got.Sum != "" || got.Header.Commit != "" {
		t.Errorf("Get from an empty cache = %+v", got)
	}
	// The last one is shorter: a failover rolled the run back, or a caller was late.
	for _, n := range []int{2, 3, 1} {
		last := []byte{byte(n)}
		log := entries(n)
		h := logcache.Header{Commit: fmt.Sprint("c", n), State: &state.State{Turn: n, Log: log}}
		c.Put("r", log, last, h)
		got := c.Get("r")
		if len(got.Entries) != n || got.Sum != logcache.Sum(last) || got.Header.Commit != h.Commit || got.Header.State.Turn != n {
			t.Errorf("Get = %d entries, %q, turn %d of commit %s; want %d", len(got.Entries), got.Sum, got.Header.State.Turn, got.Header.Commit, n)
		}
		if &got.Header.State.Log[0] != &got.Entries[0] {
			t.Error("the header keeps a log in addition to the cached one")
		}
	}
}

// Appending to the result of Get writes neither into the cache nor into the result of another caller.
func TestGetSharesNoTail(t *testing.T) {
	t.Parallel()
	c := logcache.New(1 << 20)
	c.Put("r", append(make([]state.Entry, 0, 9), entries(2)...), []byte("b"), logcache.Header{})
	one, two := c.Get("r").Entries, c.Get("r").Entries
	if cap(one) != 9 || cap(two) != 2 {
		t.Errorf("the callers get capacity for %d and %d entries, want 9 and 2", cap(one), cap(two))
	}
	one, two = append(one, state.Entry{Seq: 10}), append(two, state.Entry{Seq: 20})
	if one[2].Seq != 10 || two[2].Seq != 20 {
		t.Errorf("two readers write into the same log: %d, %d", one[2].Seq, two[2].Seq)
	}
}

// The state that continues an eagerly claimed run has the cached log, and the capacity behind it unless an earlier
// caller has that.
func TestResumeSharesNoTail(t *testing.T) {
	t.Parallel()
	for _, earlier := range []bool{false, true} {
		c := logcache.New(1 << 20)
		log := append(make([]state.Entry, 0, 9), entries(2)...)
		c.Put("r", log, []byte("b"), logcache.Header{Commit: "c", EagerClaim: "t", State: &state.State{Turn: 4, Log: log}})
		want := 9
		if earlier {
			want = 2
			c.Get("r")
		}
		known, ok := c.Resume("r", "t")
		s := known.Header.State
		if !ok || s.Turn != 4 || len(s.Log) != 2 || cap(s.Log) != want || cap(known.Entries) != want {
			t.Errorf("after another caller: %t. Resume = turn %d, a log with capacity for %d entries, and for %d; want 4, %d and %d", earlier, s.Turn, cap(s.Log), cap(known.Entries), want, want)
		}
		if _, ok := c.Resume("r", "t"); ok {
			t.Error("a run is resumed twice")
		}
	}
}

// said returns a log of n entries of slightly more than 10,000 bytes each.
func said(n int) []state.Entry {
	list := entries(n)
	for i := range list {
		list[i].Message = &state.Message{Parts: []state.Part{{Type: state.PartText, Text: strings.Repeat("x", 10_000)}}}
	}
	return list
}

func put(c *logcache.Cache, n int, runs ...state.RunID) {
	for _, run := range runs {
		c.Put(run, said(n), nil, logcache.Header{})
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := logcache.New(1)
		put(one, 9, "a")
		if length(one, "a") != 9 {
			t.Error("a log above the limit is not cached, although it is the only one")
		}
		time.Sleep(2 * time.Second)
		put(one, 9, "b")
		if length(one, "a") != 0 || length(one, "b") != 9 {
			t.Error("a log above the limit is cached next to others, or not at all")
		}

		c := logcache.New(35_000)
		put(c, 1, "a", "b")
		time.Sleep(2 * time.Second)
		c.Get("a")
		put(c, 1, "c", "d") // b was used the longest ago
		if length(c, "b") != 0 || length(c, "a") != 1 || length(c, "c") != 1 || length(c, "d") != 1 {
			t.Errorf("a, b, c, d have %d, %d, %d, %d entries; want 1, 0, 1, 1", length(c, "a"), length(c, "b"), length(c, "c"), length(c, "d"))
		}
		// A log that is put again is not counted twice, nor is its beginning.
		for range 9 {
			put(c, 1, "d")
		}
		if length(c, "a") != 1 {
			t.Error("putting a log again evicted another")
		}
		time.Sleep(2 * time.Second)
		put(c, 2, "d")
		if length(c, "a")+length(c, "c") != 1 || length(c, "d") != 2 {
			t.Errorf("a, c, d have %d, %d, %d entries; want one of a and c, and d", length(c, "a"), length(c, "c"), length(c, "d"))
		}
	})
}

// If more runs than fit are used in turn, the cached ones stay, because they are used again as soon as the
// others.
func TestRunsInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := logcache.New(105_000) // for nine of twelve
		found := 0
		for range 10 {
			for i := range 12 {
				run := state.RunID(fmt.Sprint("r", i))
				if length(c, run) > 0 {
					found++
				}
				put(c, 1, run)
				time.Sleep(100 * time.Millisecond)
			}
		}
		if want := 9 * 9; found != want {
			t.Errorf("%d logs were found, want %d", found, want)
		}
		// A log that has grown above the limit is dropped, and its memory is freed.
		put(c, 9, "r0")
		if n := length(c, "r0"); n != 0 {
			t.Errorf("a log of %d entries is cached above the limit", n)
		}
	})
}

func TestDrop(t *testing.T) {
	t.Parallel()
	c := logcache.New(25_000)
	put(c, 1, "a", "b")
	c.Drop("a")
	c.Drop("a")
	put(c, 1, "c")
	if length(c, "a") != 0 || length(c, "b") != 1 || length(c, "c") != 1 {
		t.Errorf("a, b, c have %d, %d, %d entries; want 0, 1, 1", length(c, "a"), length(c, "b"), length(c, "c"))
	}
}

// Concurrent turns of a few runs each keep the log that they got.
// An unused log leaves the memory, although the cache has room for it.
func TestUnusedLogsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := logcache.New(1 << 20)
		c.Put("waits", entries(3), []byte("a"), logcache.Header{})
		time.Sleep(20 * time.Second)
		c.Put("continues", entries(3), []byte("b"), logcache.Header{})
		time.Sleep(11 * time.Second)
		if length(c, "waits") != 0 || length(c, "continues") != 3 {
			t.Errorf("31 s after its last use, a log has %d entries, and one that was used 11 s ago has %d; want 0 and 3", length(c, "waits"), length(c, "continues"))
		}
		time.Sleep(60 * time.Second)
		if n := length(c, "continues"); n != 0 {
			t.Errorf("60 s after its last use, a log has %d entries, want 0", n)
		}
		c.Put("continues", entries(3), []byte("b"), logcache.Header{}) // the timer of an empty cache starts again
		time.Sleep(60 * time.Second)
		if n := length(c, "continues"); n != 0 {
			t.Errorf("60 s after it was put again, a log has %d entries, want 0", n)
		}
	})
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	c := logcache.New(4000)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				run := state.RunID(fmt.Sprint("r", (w+i)%7))
				list := c.Get(run).Entries
				s := state.State{Log: list}
				for range 3 {
					s = s.Append(state.Entry{Type: state.EntryTransition, Turn: w})
				}
				for i, e := range s.Log[len(list):] {
					if e.Seq != int64(len(list)+i+1) || e.Turn != w {
						t.Errorf("entry %d of worker %d has number %d and is of worker %d", len(list)+i+1, w, e.Seq, e.Turn)
					}
				}
				if len(s.Log) < 30 {
					c.Put(run, s.Log, []byte("x"), logcache.Header{})
				} else {
					c.Put(run, entries(1), []byte("x"), logcache.Header{})
				}
			}
		})
	}
	wg.Wait()
}
