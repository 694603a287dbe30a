package redisstore_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// info returns a number that the server reports about itself.
func info(t *testing.T, rdb *redis.Client, section, name string) int64 {
	t.Helper()
	text, err := rdb.Info(t.Context(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(text, "\n"+name+":")
	n, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]), 10, 64)
	if err != nil {
		t.Fatal(name, err)
	}
	return n
}

// A turn writes little more than its texts to the append-only file.
func TestWrittenBytes(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0") // a write that waits for a sync would be counted later
	rdb := raw(t, p.URL)
	for _, eager := range []bool{false, true} {
		s := openAt(t, p.URL, "turnpike")
		w := statetest.Written{Turns: 10, Eager: eager}
		w.Store(t, s, 0) // loads the scripts
		before := info(t, rdb, "persistence", "aof_current_size")
		payload, runs := int64(0), 20
		for i := range runs {
			payload += w.Store(t, s, uint64(i))
		}
		turns := int64(runs * (w.Turns + 1))
		written := info(t, rdb, "persistence", "aof_current_size") - before
		t.Logf("eager %t: a turn writes %d bytes, %d of them payload", eager, written/turns, payload/turns)
		most := int64(1900)
		if eager { // the claim of a turn and its commit are one write
			most = 1150
		}
		if more := (written - payload) / turns; more > most {
			t.Errorf("eager %t: a turn writes %d bytes beyond its payload, want %d at most", eager, more, most)
		}
	}
}
