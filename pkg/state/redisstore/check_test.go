package redisstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// A server whose memory is full refuses deletions as well, so the remedy begins with more memory.
func TestFullServerDeletesNothing(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--maxmemory-policy", "noeviction")
	s, run := openAt(t, server.URL, "p"), newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, s, state.State{ID: run.ID, Version: 1}, "t")
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{"100kb", "0"} {
		if err := raw(t, server.URL).ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
		full := limit != "0"
		if err := s.Delete(t.Context(), run.ID); (err != nil) != full {
			t.Errorf("maxmemory %s: Delete = %v", limit, err)
		}
		for _, f := range s.Check(t.Context()) {
			if f.Name == "redis: writes" && (f.OK == full || full && !strings.HasPrefix(f.Remedy, "raise maxmemory first")) {
				t.Errorf("maxmemory %s: %+v", limit, f)
			}
		}
	}
}

// A server whose memory is full answers reads. The store is not ready then, and Check names the limit, although
// doctor may not write.
func TestFullServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		maxmemory string
		ok        bool
	}{{"0", true}, {"100kb", false}} {
		s := testbed.RedisProcess(t, "--maxmemory", c.maxmemory, "--maxmemory-policy", "noeviction")
		store, err := redisstore.Open(t.Context(), redisstore.Config{URL: s.URL, Prefix: "p"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		if err := store.Ready(t.Context()); (err == nil) != c.ok || err != nil && !errors.Is(err, check.ErrNoWrites) {
			t.Errorf("maxmemory %s: Ready = %v", c.maxmemory, err)
		}
		findings := store.Check(t.Context())
		i := slices.IndexFunc(findings, func(f state.Finding) bool { return f.Name == "redis: writes" })
		if i < 0 || findings[i].OK != c.ok || check.Failed(findings[i:i+1]) == c.ok {
			t.Errorf("maxmemory %s: findings %+v", c.maxmemory, findings)
		}
	}
}
