package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/state/logcache"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// A claim by the process that made the last commit, which skips reading the header, equals one that reads
// everything; commits of others are read (I1).
func TestKnownHeader(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	here, there := openAt(t, url, prefix), openAt(t, url, prefix)
	run := newRun(t)
	run.Metadata = map[string]string{"k": "v"}
	if _, err := here.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	claim := func(s *redisstore.Store, version int64, token string) *state.Claim {
		t.Helper()
		return claimed(t, s, state.State{ID: run.ID, Version: version}, token)
	}
	for v := int64(1); v <= 6; v++ {
		committer := here
		if v%3 == 0 {
			committer = there
		}
		a := claim(here, v, fmt.Sprint("a", v))
		if v == 4 { // remains of an attempt, not of a commit
			text := state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: "lost"}}}
			left := a.State.Append(state.Entry{Type: state.EntryModel, At: state.At(time.Now()), Message: &text})
			if _, err := here.Record(t.Context(), a.Lease, state.Record{From: a.Base, Entries: left.Log[a.Base:]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := here.Release(t.Context(), a.Lease, 0); err != nil {
			t.Fatal(err)
		}
		again := claim(here, v, fmt.Sprint("b", v))
		if err := here.Release(t.Context(), again.Lease, 0); err != nil {
			t.Fatal(err)
		}
		b := claim(openAt(t, url, prefix), v, fmt.Sprint("c", v))
		if diff := cmp.Diff(b, again, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(state.Claim{}, "Lease", "Now", "Busy", "LogRead"),
			cmp.Comparer(func(x, y state.Time) bool { return x.Equal(y.Time) })); diff != "" {
			t.Errorf("version %d: the claim with a cached header differs from one that reads it:\n%s", v, diff)
		}
		call := state.Part{Type: state.PartToolCall, ID: fmt.Sprint("c", v), Name: "t", Arguments: `{"a":1}`}
		next := b.State.Append(state.Entry{
			Type: state.EntryModel, Turn: int(v), At: state.At(time.Now()), Usage: &state.Usage{InputTokens: 1, CostUSD: new(state.MicroUSD)},
			Message: &state.Message{Role: state.RoleAssistant, Parts: []state.Part{call}},
		})
		next, err := next.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := committer.Commit(t.Context(), b.Lease, state.Commit{ID: b.Lease.Token, State: &next, From: b.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
}

// A claim that is served from memory equals the stored one, and appending to its log does not affect other
// claims (I1).
func TestEagerClaimFromMemory(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	here := openAt(t, url, prefix)
	run := newRun(t)
	run.Metadata = map[string]string{"k": "v"}
	if _, err := here.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, here, run, "first")
	for range 3 {
		next, err := c.State.Append(state.Entry{
			Type: state.EntryModel, Turn: int(c.State.Version), At: state.At(time.Now()), Usage: &state.Usage{InputTokens: 1, CostUSD: new(state.MicroUSD)},
			Message: &state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: "so"}}},
		}).Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		token := ulid.Make().String()
		done, err := here.Commit(t.Context(), c.Lease, state.Commit{
			ID: c.Lease.Token, State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour, EagerClaim: token,
		})
		if err != nil || !done.Claimed {
			t.Fatalf("Commit = %+v, %v", done, err)
		}
		eager := claimed(t, here, state.State{ID: run.ID, Version: done.Version}, token)
		beside := claimed(t, here, state.State{ID: run.ID, Version: done.Version}, ulid.Make().String())
		if err := here.Release(t.Context(), beside.Lease, 0); err != nil {
			t.Fatal(err)
		}
		c = claimed(t, openAt(t, url, prefix), state.State{ID: run.ID, Version: done.Version}, ulid.Make().String())
		if diff := cmp.Diff(c, eager, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(state.Claim{}, "Lease", "Now", "Busy", "LogRead"),
			cmp.Comparer(func(x, y state.Time) bool { return x.Equal(y.Time) })); diff != "" {
			t.Errorf("memory differs from the store:\n%s", diff)
		}
		if eager.LogRead != 0 || beside.LogRead != 0 || c.LogRead != c.LogLen {
			t.Errorf("entries read: %d, %d, and %d of %d by another process; want 0, 0 and all", eager.LogRead, beside.LogRead, c.LogRead, c.LogLen)
		}
		a, b := eager.State.Append(state.Entry{Detail: "a"}), beside.State.Append(state.Entry{Detail: "b"})
		if n := len(eager.State.Log); a.Log[n].Detail != "a" || b.Log[n].Detail != "b" {
			t.Error("two turns write to the same memory")
		}
	}
}

func claimed(t *testing.T, s *redisstore.Store, run state.State, token string) *state.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: run.Version, Token: token, Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, %v", c.Outcome, err)
	}
	return c
}

// A claim returns the whole log, however much of it is new, whether within the claim or in a separate read, and
// cached entries are not read again.
func TestLongLogs(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	writer, late := openAt(t, url, prefix), openAt(t, url, prefix)
	rdb := raw(t, url)
	for _, turns := range []int{10, 11, 40} { // 31, 34 and 121 entries
		run := longRun(t, turns)
		if _, err := writer.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		for _, more := range []int{0, 1, 5, 50} {
			for range more { // another process's turns
				c := claimed(t, writer, run, ulid.Make().String())
				next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now()), Detail: "a \"quoted\"\nword"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := writer.Commit(t.Context(), c.Lease, state.Commit{ID: c.Lease.Token, State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
					t.Fatal(err)
				}
				run = next
			}
			for range 2 {
				for _, s := range []*redisstore.Store{late, openAt(t, url, prefix)} {
					c := claimed(t, s, run, ulid.Make().String())
					if diff := cmp.Diff(run.Log, c.State.Log, cmpopts.EquateEmpty(), cmp.Comparer(func(x, y state.Time) bool { return x.Equal(y.Time) })); diff != "" {
						t.Fatalf("%d turns and %d: the log of a claim differs:\n%s", turns, more, diff)
					}
					last, err := rdb.LIndex(t.Context(), fmt.Sprintf("%s:{s%03d}:log:%s", prefix, run.ID.Shard(), run.ID), -1).Bytes()
					if err != nil {
						t.Fatal(err)
					}
					if n, sum := s.Known(run.ID); n != len(run.Log) || sum != logcache.Sum(last) {
						t.Errorf("%d turns and %d: %d entries are cached, up to %s; want %d, up to %s", turns, more, n, sum, len(run.Log), logcache.Sum(last))
					}
					if err := s.Release(t.Context(), c.Lease, 0); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// An ended run is removed from the cache.
func TestEndedRunIsForgotten(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), "test-"+ulid.Make().String())
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, s, run, "first")
	if n, _ := s.Known(run.ID); n == 0 {
		t.Error("a log that was read is not cached")
	}
	end, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: c.Lease.Token, State: &end, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if n, _ := s.Known(run.ID); n != 0 {
		t.Errorf("%d entries of an ended run are cached", n)
	}
}
