package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A commit skips fields that already have their value. If one has another value, it writes it.
func TestCommitWritesFieldsThatDiffer(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t)
	rdb, s := raw(t, p.URL), openAt(t, p.URL, "fields")
	for field, want := range map[string]struct{ before, eager, queued, ended string }{
		"cst":  {"waiting", "queued", "queued", "completed"},
		"aw":   {`["a"]`, "", "", ""},
		"pz":   {"2", "0", "0", "0"},
		"sw":   {"3", "0", "0", "0"},
		"wake": {"123", "0", "0", "0"},
		"f":    {"0", "1", "1", "1"},
		"att":  {"4", "1", "0", "0"},
		"own":  {"another", "w", "", ""},
		"ab":   {`{"kind":"cancel"}`, "", `{"kind":"cancel"}`, ""},
	} {
		for end, value := range map[string]string{"eager": want.eager, "queued": want.queued, "ended": want.ended} {
			run := newRun(t)
			if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprintf("fields:{s%03d}:run:%s", run.ID.Shard(), run.ID)
			for version := int64(1); version <= 3; version++ {
				token := fmt.Sprint(version)
				c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: version, Token: token, Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
				if err != nil || c.Outcome != state.Claimed {
					t.Fatal(c.Outcome, err)
				}
				why, commit := state.NextTurn, state.Commit{ID: token, From: c.State.LogLen(), RedeliveryDelay: time.Hour}
				if version < 3 || end == "eager" {
					commit.EagerClaim = fmt.Sprint(version + 1)
				}
				if version == 3 {
					if end == "ended" {
						why = state.EndCompleted
					}
					if end != "eager" || field != "ab" { // an abort prevents the claim
						rdb.HSet(t.Context(), key, field, want.before)
					}
					if end == "ended" && field != "cst" { // the run had ended before, and a message continued it
						rdb.HSet(t.Context(), key, "cst", "completed")
					}
				}
				next, err := c.State.Move(why, state.Entry{At: state.At(time.Now())})
				if err != nil {
					t.Fatal(err)
				}
				commit.State = &next
				if _, err := s.Commit(t.Context(), c.Lease, commit); err != nil {
					t.Fatal(err)
				}
			}
			if got := rdb.HGet(t.Context(), key, field).Val(); got != value {
				t.Errorf("%s, %s: is %q after the commit, want %q", end, field, got, value)
			}
		}
	}
}
