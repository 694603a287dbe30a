package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

func open(tb testing.TB, url string) *redisstore.Store {
	tb.Helper()
	return openAt(tb, url, "test-"+ulid.Make().String())
}

func openAt(tb testing.TB, url, prefix string) *redisstore.Store {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), redisstore.Config{URL: url, Prefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// raw returns a client that bypasses the store.
func raw(tb testing.TB, url string) *redis.Client {
	tb.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		tb.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func newRun(tb testing.TB) state.State {
	tb.Helper()
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Priority: state.Normal, Limits: state.Limits{MaxTurns: 9}}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		tb.Fatal(err)
	}
	return run
}

func TestStore(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	statetest.Exercise(t, func(t *testing.T) state.Store { t.Helper(); return open(t, url) })
	statetest.Heartbeats(t, open(t, url))
	statetest.SmallSignals(t, open(t, url))
	statetest.ManySignals(t, open(t, url))
	shared := "test-" + ulid.Make().String()
	statetest.Checkpoint(t, openAt(t, url, shared), openAt(t, url, shared))
}

// The scripts and internal/state/record implement the same protocol.
func TestAgreesWithModel(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	statetest.Agree(t,
		func(t *testing.T) state.Store { t.Helper(); return open(t, url) },
		func(*testing.T) state.Store { return memstore.New(memstore.Config{}) })
}

// The quota script and internal/state/quota implement the same arithmetic.
func TestQuotasAgreeWithModel(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	statetest.AgreeQuotas(t,
		func(t *testing.T, now func() time.Time) state.Quotas {
			t.Helper()
			return redisstore.QuotaAt{Store: open(t, url), Now: now}
		},
		func(_ *testing.T, now func() time.Time) state.Quotas {
			return memstore.New(memstore.Config{Now: now})
		})
}

func TestPausedKeys(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	statetest.PausedKeys(t, func(t *testing.T, now func() time.Time) state.Quotas {
		t.Helper()
		return redisstore.QuotaAt{Store: open(t, url), Now: now}
	})
}

// Unused quotas expire.
func TestQuotasExpire(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	prefix := "test-" + ulid.Make().String()
	s := openAt(t, url, prefix)
	if _, err := s.Take(t.Context(), "k", state.Take{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(t.Context(), "k", time.Minute); err != nil {
		t.Fatal(err)
	}
	rdb := raw(t, url)
	keys, err := rdb.Keys(t.Context(), prefix+":*").Result()
	if err != nil || len(keys) != 4 {
		t.Fatalf("keys %v, %v; want the bucket, the list and two calls", keys, err)
	}
	for _, key := range keys {
		if ttl, err := rdb.TTL(t.Context(), key).Result(); err != nil || ttl <= 0 || ttl > 24*time.Hour {
			t.Errorf("%s lives %s, %v", key, ttl, err)
		}
	}
}

// Without its batcher a store passes the suite.
func TestStoreWithoutBatcher(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	statetest.Exercise(t, func(t *testing.T) state.Store {
		t.Helper()
		s, err := redisstore.Open(t.Context(), redisstore.Config{URL: url, Prefix: "test-" + ulid.Make().String(), NoBatching: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}

// Without its log cache a store passes the suite.
func TestStoreWithoutCache(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	statetest.Exercise(t, func(t *testing.T) state.Store {
		t.Helper()
		s, err := redisstore.Open(t.Context(), redisstore.Config{URL: url, Prefix: "test-" + ulid.Make().String(), CacheBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := testbed.RedisProcess(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction")
	for _, f := range open(t, good.URL).Check(t.Context()) {
		if !f.OK || f.Name == "redis: appendonly" && !strings.Contains(f.Detail, "appendfsync everysec") {
			t.Errorf("%+v", f)
		}
	}
	volatile := testbed.RedisProcess(t, "--appendonly", "no", "--maxmemory-policy", "noeviction")
	for _, require := range []bool{false, true} {
		s, err := redisstore.Open(t.Context(), redisstore.Config{URL: volatile.URL, RequireAOF: require})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := check.Err(s.Check(t.Context())); (err != nil) != require {
			t.Errorf("Check without an append-only file, required %v = %v", require, err)
		}
	}
	bad := testbed.RedisProcess(t, "--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
	if err := check.Err(open(t, bad.URL).Check(t.Context())); err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("Check of an evicting server = %v", err)
	}
	if err := check.Err(open(t, "redis://127.0.0.1:1/0").Check(t.Context())); err == nil || !strings.Contains(err.Error(), "TURNPIKE_REDIS_URL") {
		t.Errorf("Check without a server = %v", err)
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	if _, err := redisstore.Open(t.Context(), redisstore.Config{URL: "redis://127.0.0.1/0", Prefix: "{a}"}); err == nil {
		t.Error("a prefix with a hash tag is accepted")
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "localhost:6379", "redis://:secret@127.0.0.1:bad/0", "redis://127.0.0.1/0?turbo=1",
		"redis://127.0.0.1/0?sentinel_password=secret", "redis://127.0.0.1/0?master_name=%zz"} {
		_, err := redisstore.Open(t.Context(), redisstore.Config{URL: url})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q) = %v", url, err)
		}
	}
}

func BenchmarkTurn(b *testing.B) { statetest.Benchmark(b, open(b, testbed.Redis(b))) }

// BenchmarkClaimUnknown claims a run that is not cached, at its start and after 200 turns.
func BenchmarkClaimUnknown(b *testing.B) {
	for _, turns := range []int{1, 200} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			s, err := redisstore.Open(b.Context(), redisstore.Config{URL: testbed.Redis(b), Prefix: "test-" + ulid.Make().String(), CacheBytes: 1})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			// The cache can hold one run: claiming two in turn misses each time.
			runs := [2]state.State{longRun(b, turns), longRun(b, turns)}
			for _, run := range runs {
				if _, err := s.Create(b.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
					b.Fatal(err)
				}
			}
			i := 0
			for b.Loop() {
				run := runs[i%2]
				i++
				c, err := s.Claim(b.Context(), state.ClaimRequest{Run: run.ID, Version: run.Version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
				if err != nil || len(c.State.Log) != len(run.Log) {
					b.Fatalf("claim has %d entries, %v", len(c.State.Log), err)
				}
			}
		})
	}
}

// longRun returns a run with a model response, a tool result and a transition in each turn.
func longRun(tb testing.TB, turns int) state.State {
	tb.Helper()
	run, at := newRun(tb), state.At(time.Now())
	for i := range turns {
		id := fmt.Sprint("call_", i)
		call := state.Message{ID: ulid.Make().String(), Role: state.RoleAssistant, Turn: i + 1, At: at, Model: "m", Parts: []state.Part{
			{Type: state.PartToolCall, ID: id, Name: "noop", Arguments: `{"text":"` + strings.Repeat("x", 400) + `"}`},
		}}
		result := state.ToolResult(id, strings.Repeat("y", 400), false)
		result.ID, result.Turn, result.At = ulid.Make().String(), i+1, at
		run = run.Append(state.Entry{Type: state.EntryModel, Turn: i + 1, Attempt: 1, At: at, Message: &call, StopReason: "tool_calls", Usage: &state.Usage{ModelCalls: 1}})
		run = run.Append(state.Entry{Type: state.EntryTool, Turn: i + 1, Attempt: 1, At: at, Message: &result, CallID: id, Name: "noop"})
		next, err := run.Move(state.NextTurn, state.Entry{At: at, Worker: "w", Attempt: 1})
		if err != nil {
			tb.Fatal(err)
		}
		run = next
	}
	return run
}
