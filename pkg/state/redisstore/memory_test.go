package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// An ended run takes little more memory than its texts, with the setting of deployments/redis.conf. A metadata
// key takes its own bytes.
func TestMemoryOfEndedRuns(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no", "--hash-max-listpack-value", "1024")
	rdb := raw(t, p.URL)
	s := openAt(t, p.URL, "turnpike")
	for _, keys := range []int{0, 4} {
		w := statetest.Written{Turns: 4, Eager: true, Key: true, Metadata: map[string]string{}}
		for i := range keys {
			w.Metadata[fmt.Sprint("customer", i)] = "8f14e45fceea167a"
		}
		const runs = 1000
		store := func(from, n int) (payload int64) {
			for i := range n {
				payload += w.Store(t, s, uint64(keys*1_000_000+from+i)) //nolint:gosec // small
			}
			return payload
		}
		store(0, 100) // creates the shards' own keys
		before := info(t, rdb, "memory", "used_memory")
		payload := store(100, runs)
		more := (info(t, rdb, "memory", "used_memory") - before - payload) / runs
		t.Logf("%d metadata keys: an ended run takes %d bytes beyond %d of payload", keys, more, payload/runs)
		if most := int64(3000); more > most {
			t.Errorf("%d metadata keys: an ended run takes %d bytes beyond its payload, want %d at most", keys, more, most)
		}
	}
}
