package redisstore_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Scripts that the client repeats after a lost reply apply once (I1).
func TestLostReplies(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, strings.TrimSuffix(strings.TrimPrefix(testbed.Redis(t), "redis://"), "/0"))
	s := open(t, "redis://"+proxy.addr+"/0")
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for v := int64(1); v <= 10; v++ {
		proxy.dropReply()
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: v, Token: fmt.Sprint("t", v), Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
		if err != nil || c.Outcome != state.Claimed || c.Attempt != 1 {
			t.Fatalf("version %d: Claim = %s, attempt %d, %v", v, c.Outcome, c.Attempt, err)
		}
		e := state.Entry{Type: state.EntryModel, Turn: int(v), At: state.At(time.Now()), Message: &state.Message{Role: state.RoleAssistant}}
		next := c.State.Append(e)
		proxy.dropReply()
		if _, err := s.Record(t.Context(), c.Lease, state.Record{From: c.Base, Entries: next.Log[c.Base:]}); err != nil {
			t.Fatalf("version %d: Record: %v", v, err)
		}
		next, err = next.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		proxy.dropReply()
		done, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: c.Lease.Token, State: &next, From: c.Base + 1, RedeliveryDelay: time.Hour})
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

// proxy forwards TCP and can drop one reply, with its connection.
type proxy struct {
	addr    string
	drop    atomic.Int64 // the reply that is lost, counted from the next; 0: none
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
					if p.drop.Load() > 0 && p.drop.Add(-1) == 0 {
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

func (p *proxy) dropReply() { p.drop.Store(1) }

// Acknowledged writes survive kill -9 of the server (I1).
func TestKilledServer(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	s := open(t, server.URL)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
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

// A server that answers reads but rejects writes is not ready.
func TestReadyMeansWritable(t *testing.T) {
	t.Parallel()
	s := open(t, testbed.RedisProcess(t, "--save", "", "--maxmemory", "100kb", "--maxmemory-policy", "noeviction").URL)
	if err := s.Ready(t.Context()); err == nil {
		t.Error("a server without memory is ready")
	}
}

// A caller that dies between taking its key and creating the run leaves a key without a run. The retry, with
// another id, creates the run that the key names.
func TestCreateRepairsItself(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb := openAt(t, server.URL, "p"), raw(t, server.URL)
	create := func() (state.State, bool) {
		run := newRun(t)
		run.Tenant = "acme"
		made, err := s.Create(t.Context(), state.NewRun{State: run, Key: "k", Fingerprint: "f", RedeliveryDelay: time.Hour})
		if err != nil {
			t.Fatalf("Create: %v", err)
		}
		return made.State, made.Existing
	}
	first, _ := create()
	all, err := rdb.Keys(t.Context(), "p:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range all {
		if strings.HasPrefix(key, "p:idem:") {
			continue
		}
		if err := rdb.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []bool{false, true} {
		if st, existing := create(); st.ID != first.ID || existing != want {
			t.Errorf("Create = %s, existing %v; want %s, %v", st.ID, existing, first.ID, want)
		}
	}
	for _, tenant := range []string{"", "acme"} {
		page, err := s.List(t.Context(), state.Filter{Tenant: tenant})
		if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != first.ID {
			t.Errorf("List of tenant %q = %d runs, %v", tenant, len(page.Runs), err)
		}
	}
	if due, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil || len(due) != 0 {
		t.Errorf("Sweep = %+v, %v; want nothing before the delay", due, err)
	}
}

// A sweep works after a server restart that loses its scripts.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s := open(t, server.URL)
	for range 3 {
		if _, err := s.Create(t.Context(), state.NewRun{State: newRun(t)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := raw(t, server.URL).ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if due, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil || len(due) != 3 {
		t.Errorf("Sweep = %d runs, %v; want 3", len(due), err)
	}
}

// A corrupt run does not keep others from being swept (I2).
func TestSweepPassesOverDamage(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s := openAt(t, server.URL, "p")
	bad, good := newRun(t), newRun(t)
	for _, run := range []state.State{bad, good} {
		if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
	}
	header := fmt.Sprintf("p:{s%03d}:run:%s", bad.ID.Shard(), bad.ID)
	if err := raw(t, server.URL).Set(t.Context(), header, "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if due, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil || len(due) != 1 || due[0].Run != good.ID {
		t.Errorf("Sweep = %+v, %v; want the good run", due, err)
	}
	if _, err := s.Sweep(t.Context(), 10, time.Hour, nil); err == nil || !strings.Contains(err.Error(), string(bad.ID)) {
		t.Errorf("Sweep with only corrupt runs = %v, want the run named", err)
	}
}

// After a failover that lost writes, a claim returns the server's log, not the cached one (I3).
func TestRolledBackLog(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb := openAt(t, server.URL, "p"), raw(t, server.URL)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	key := func(kind string) string { return fmt.Sprintf("p:{s%03d}:%s:%s", run.ID.Shard(), kind, run.ID) }
	before, err := rdb.Dump(t.Context(), key("run")).Result()
	if err != nil {
		t.Fatal(err)
	}
	claim := func(token string, version int64) *state.Claim {
		c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: version, Token: token, Lease: time.Hour, RedeliveryDelay: time.Hour})
		if err != nil || c.Outcome != state.Claimed {
			t.Fatalf("Claim = %s, %v", c.Outcome, err)
		}
		return c
	}
	commit := func(c *state.Claim, detail string) {
		next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now()), Detail: detail})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: c.Lease.Token, State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	commit(claim("t1", 1), "lost")
	if err := errors.Join(rdb.RestoreReplace(t.Context(), key("run"), 0, before).Err(), rdb.LTrim(t.Context(), key("log"), 0, 0).Err()); err != nil {
		t.Fatal(err)
	}
	c := claim("t2", 1)
	if c.State.LogLen() != 1 {
		t.Errorf("the log after the failover has %d entries, want 1", c.State.LogLen())
	}
	commit(c, "kept")
	if c := claim("t3", 2); c.State.LogLen() != 2 || c.State.Log[1].Detail != "kept" {
		t.Errorf("log = %+v", c.State.Log)
	}
}
