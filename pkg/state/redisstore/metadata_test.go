package redisstore_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// indexed stores a run with metadata that its tenant indexes.
func indexed(t *testing.T, s *redisstore.Store, agent string, metadata map[string]string, keys ...string) state.RunID {
	t.Helper()
	run := newRun(t)
	run.Tenant, run.Agent, run.Metadata = "acme", agent, metadata
	if _, err := s.Create(t.Context(), state.NewRun{State: run, Indexed: keys, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// The first page has all runs with an indexed value, however many others are newer; without the index it has
// none of them. Runs from before the index follow on later pages. Of several keys List uses the one with the
// fewest runs, or the list of an agent if that is shorter still.
func TestListByIndexedMetadata(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), fmt.Sprint("indexed", time.Now().UnixNano()))
	user := map[string]string{"user": "42", "channel": "web"}
	before := indexed(t, s, "rare", user)
	first := indexed(t, s, "rare", user, "user", "channel")
	second := indexed(t, s, "a", user, "user", "channel")
	for range 1_100 {
		indexed(t, s, "a", map[string]string{"user": "7", "channel": "web"}, "user", "channel")
	}
	f := state.Filter{Metadata: map[string]string{"user": "42"}, Limit: 10}
	page, err := s.List(t.Context(), f)
	if err != nil || len(page.Runs) != 0 {
		t.Errorf("without the index the first page has %d runs, %v: more than 1,000 are newer", len(page.Runs), err)
	}
	f.Tenant, f.Indexed = "acme", map[string]state.RunID{"user": first, "channel": first}
	for _, tt := range []struct {
		f    state.Filter
		want []state.RunID
	}{
		{f, []state.RunID{second, first, before}},
		{state.Filter{Metadata: user}, []state.RunID{second, first, before}},
		{state.Filter{Metadata: user, Agent: "a"}, []state.RunID{second}},
		{state.Filter{Metadata: map[string]string{"channel": "web"}, Agent: "rare"}, []state.RunID{first, before}},
		{state.Filter{Metadata: map[string]string{"user": "nobody"}}, nil},
	} {
		tt.f.Tenant, tt.f.Indexed = f.Tenant, f.Indexed
		page, err := s.List(t.Context(), tt.f)
		var got []state.RunID
		for _, r := range page.Runs {
			got = append(got, r.ID)
		}
		if err != nil || !slices.Equal(got, tt.want) || page.Next != "" {
			t.Errorf("List(%v) = %v, %v, next %q; want %v on one page", tt.f, got, err, page.Next, tt.want)
		}
	}
}

// The index takes at most 0.2 KB for each key of a run, whatever the value, and nothing for runs of tenants
// without one.
func TestIndexedMetadataMemory(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	rdb := raw(t, p.URL)
	const runs = 2_000
	value := strings.Repeat("v", 1_000)
	taken := func(prefix string, keys ...string) int64 {
		s := openAt(t, p.URL, prefix)
		indexed(t, s, "a", nil)
		before := used(t, rdb)
		for i := range runs {
			v := value + strconv.Itoa(i)
			indexed(t, s, "a", map[string]string{"a": v, "b": v, "c": v, "d": v}, keys...)
		}
		return used(t, rdb) - before
	}
	taken("warm", "a") // buffers of the server
	without := taken("none")
	with := taken("four", "a", "b", "c", "d")
	each := float64(with-without) / (4 * runs)
	t.Logf("%d runs take %d bytes, and %.0f bytes more for each indexed key", runs, without, each)
	if each > 200 {
		t.Errorf("an indexed key of a run takes %.0f bytes, want at most 200", math.Ceil(each))
	}
}

func used(t *testing.T, rdb *redis.Client) (n int64) {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	if n, err = strconv.ParseInt(info["Memory"]["used_memory"], 10, 64); err != nil {
		t.Fatal(err)
	}
	return n
}
