package redisstore_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/testbed"
	"github.com/turnpike-dev/turnpike/pkg/check"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
	"github.com/turnpike-dev/turnpike/pkg/state/statetest"
)

func open(tb testing.TB, url string) *redisstore.Store {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), redisstore.Config{URL: url, Prefix: "test-" + ulid.Make().String()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t)
	statetest.Exercise(t, func(t *testing.T) state.Store { t.Helper(); return open(t, url) })
}

// The scripts answer as pkg/state/record does, whatever is called in whatever order.
func TestAgreesWithModel(t *testing.T) {
	t.Parallel()
	statetest.Agree(t, open(t, testbed.Redis(t)), memstore.New(memstore.Config{}))
}

// Without its cache of logs a store does the same.
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

// I1: the client repeats scripts whose reply it lost; they apply once.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, strings.TrimSuffix(strings.TrimPrefix(testbed.Redis(t), "redis://"), "/0"))
	s := open(t, "redis://"+proxy.addr+"/0")
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Priority: state.Normal, Limits: state.Limits{MaxTurns: 9}}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Create(t.Context(), state.NewRun{State: run, Grace: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for v := int64(1); v <= 10; v++ {
		proxy.dropReply()
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: v, Token: fmt.Sprint("t", v), Worker: "w", Lease: time.Hour, Grace: time.Hour})
		if err != nil || c.Outcome != state.Claimed || c.Attempt != 1 {
			t.Fatalf("version %d: Claim = %s, attempt %d, %v", v, c.Outcome, c.Attempt, err)
		}
		e := state.Entry{Type: state.EntryModel, Turn: int(v), At: state.At(time.Now()), Message: &state.Message{Role: state.RoleAssistant}}
		next := c.State.Append(e)
		proxy.dropReply()
		if err := s.Record(t.Context(), c.Lease, state.Record{From: c.Base, Entries: next.Log[c.Base:]}); err != nil {
			t.Fatalf("version %d: Record: %v", v, err)
		}
		next, err = next.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		proxy.dropReply()
		done, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: c.Lease.Token, State: next, From: c.Base + 1, Grace: time.Hour})
		if err != nil || done.Version != v+1 {
			t.Fatalf("version %d: Commit = %+v, %v", v, done, err)
		}
	}
	log, err := s.Log(t.Context(), run.ID, 0, 0)
	if err != nil || len(log) != 21 {
		t.Fatalf("log has %d entries, %v; want 21", len(log), err)
	}
	if proxy.dropped.Load() == 0 {
		t.Error("no reply was lost: the test proves nothing")
	}
}

// proxy forwards TCP and can swallow one reply, with its connection.
type proxy struct {
	addr    string
	drop    atomic.Bool
	dropped atomic.Int64
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				return
			}
			closeBoth := func() { _ = in.Close(); _ = out.Close() }
			t.Cleanup(closeBoth)
			wg.Go(func() { defer closeBoth(); _, _ = io.Copy(out, in) })
			wg.Go(func() {
				defer closeBoth()
				buf := make([]byte, 64<<10)
				for {
					n, err := out.Read(buf)
					if err != nil {
						return
					}
					if p.drop.CompareAndSwap(true, false) {
						p.dropped.Add(1)
						return
					}
					if _, err := in.Write(buf[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return p
}

func (p *proxy) dropReply() { p.drop.Store(true) }

// What was acknowledged survives kill -9 of the server.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	s := open(t, server.URL)
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Create(t.Context(), state.NewRun{State: run, Grace: time.Hour}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), run.ID); err != nil || got.Status != state.Queued {
		t.Fatalf("Load = %s, %v", got.Status, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := testbed.RedisProcess(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction")
	for _, f := range open(t, good.URL).Check(t.Context()) {
		if !f.OK {
			t.Errorf("%+v", f)
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

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "localhost:6379", "redis://:secret@127.0.0.1:bad/0", "redis://127.0.0.1/0?turbo=1"} {
		_, err := redisstore.Open(t.Context(), redisstore.Config{URL: url})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q) = %v", url, err)
		}
	}
}

func BenchmarkTurn(b *testing.B) {
	s := open(b, testbed.Redis(b))
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := s.Create(b.Context(), state.NewRun{State: run, Grace: time.Hour}); err != nil {
		b.Fatal(err)
	}
	var v int64
	for b.Loop() {
		v++
		c, err := s.Claim(b.Context(), state.ClaimRequest{Run: run.ID, Version: v, Token: fmt.Sprint(v), Worker: "w", Lease: time.Hour, Grace: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Commit(b.Context(), c.Lease, state.Commit{ID: c.Lease.Token, State: next, From: c.Base, Grace: time.Hour}); err != nil {
			b.Fatal(err)
		}
	}
}
