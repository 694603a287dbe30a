package redisstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// A call whose reply was lost counts once in a rate limit (A17).
func TestLostRepliesOfQuotas(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	proxy := newProxy(t, strings.TrimSuffix(strings.TrimPrefix(server.URL, "redis://"), "/0"))
	now := time.Now()
	s := redisstore.QuotaAt{Store: openAt(t, "redis://"+proxy.addr+"/0", "p"), Now: func() time.Time { return now }}
	limit := state.Quota{Requests: 60, Tokens: 6000}
	use := func(key string, lose func()) (answers []state.Taken) {
		for n := range 8 {
			now = now.Add(time.Millisecond)
			lose()
			taken, err := s.Take(t.Context(), key, state.Take{Quota: limit, Tokens: 100})
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, taken)
			lose()
			if err := s.Correct(t.Context(), key, limit, int64(10*n)); err != nil {
				t.Fatal(err)
			}
		}
		return answers
	}
	began := now
	use("warm", func() {})
	now = began
	plain := use("plain", func() {})
	now = began
	lost := use("lost", proxy.dropReply)
	if diff := cmp.Diff(plain, lost); diff != "" {
		t.Errorf("answers to calls whose replies were lost:\n%s", diff)
	}
	rdb := raw(t, server.URL)
	buckets := map[string]map[string]string{}
	for _, key := range []string{"plain", "lost"} {
		var err error
		if buckets[key], err = rdb.HGetAll(t.Context(), "p:quota:{"+key+"}").Result(); err != nil || len(buckets[key]) == 0 {
			t.Fatal(buckets[key], err)
		}
	}
	if diff := cmp.Diff(buckets["plain"], buckets["lost"]); diff != "" {
		t.Errorf("the bucket of calls whose replies were lost:\n%s", diff)
	}
	if n := proxy.dropped.Load(); n != 16 {
		t.Errorf("%d replies were lost, want 16", n)
	}
	kept, err := rdb.Keys(t.Context(), "p:quota:*:call:*").Result()
	if err != nil || len(kept) != 48 {
		t.Fatalf("%d calls are remembered, want 48; %v", len(kept), err)
	}
	for _, key := range kept {
		if ttl, err := rdb.PTTL(t.Context(), key).Result(); err != nil || ttl <= 0 || ttl > 30*time.Second {
			t.Errorf("a call is remembered for %s, %v", ttl, err)
		}
	}
}

// An agent gets one version for a definition, whichever reply is lost.
func TestLostRepliesOfAgents(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	proxy := newProxy(t, strings.TrimSuffix(strings.TrimPrefix(server.URL, "redis://"), "/0"))
	s := openAt(t, "redis://"+proxy.addr+"/0", "p")
	for n := range 12 {
		if n > 0 { // the first detects that the server lacks the script
			proxy.drop.Store(int64(1 + n%2)) // of the list of agents, or of the version
		}
		v, err := s.PutAgent(t.Context(), state.DefaultTenant, "a", json.RawMessage(fmt.Sprint(n)), false)
		if err != nil || v.Version != n+1 {
			t.Fatalf("PutAgent = version %d, %v; want %d", v.Version, err, n+1)
		}
		got, err := s.Agent(t.Context(), state.DefaultTenant, "a", 0)
		v.Guard = got.Guard // PutAgent does not return it
		if err != nil || cmp.Diff(v, got) != "" {
			t.Fatalf("Agent = %+v, %v; want %+v", got, err, v)
		}
	}
	if n := proxy.dropped.Load(); n != 11 {
		t.Errorf("%d replies were lost, want 11", n)
	}
}

// The deletion of an agent succeeds once, whichever reply is lost.
func TestLostRepliesOfDeletedAgents(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	proxy := newProxy(t, strings.TrimSuffix(strings.TrimPrefix(server.URL, "redis://"), "/0"))
	s := openAt(t, "redis://"+proxy.addr+"/0", "p")
	const n = 7
	for i := range n {
		name := fmt.Sprint("a", i)
		if _, err := s.PutAgent(t.Context(), state.DefaultTenant, name, json.RawMessage("1"), false); err != nil {
			t.Fatal(err)
		}
		if i > 0 { // the first detects that the server lacks the script
			proxy.dropReply()
		}
		if err := s.DeleteAgent(t.Context(), state.DefaultTenant, name); err != nil {
			t.Errorf("DeleteAgent, whose reply was lost: %v", err)
		}
		if err := s.DeleteAgent(t.Context(), state.DefaultTenant, name); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("DeleteAgent of a deleted agent = %v, want ErrNotFound", err)
		}
	}
	if got := proxy.dropped.Load(); got != n-1 {
		t.Errorf("%d replies were lost, want %d", got, n-1)
	}
}
