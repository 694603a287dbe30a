package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// pair is a primary and a replica that follows it.
type pair struct{ primary, replica *testbed.RedisServer }

func newPair(t *testing.T) pair {
	t.Helper()
	options := []string{"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"}
	p := pair{primary: testbed.RedisProcess(t, options...)}
	p.replica = testbed.RedisProcess(t, append(options, "--replicaof", "127.0.0.1 "+port(p.primary.URL))...)
	for within(t) {
		info, err := raw(t, p.primary.URL).InfoMap(t.Context(), "replication").Result()
		if err == nil && strings.Contains(info["Replication"]["slave0"], "state=online") {
			return p
		}
	}
	t.Fatal("the replica is not in step")
	return p
}

// within yields briefly, and reports false once the test has waited for too long.
func within(t *testing.T) bool {
	t.Helper()
	select {
	case <-time.After(5 * time.Millisecond):
		return true
	case <-t.Context().Done():
		return false
	}
}

func port(url string) string {
	return strings.TrimSuffix(url[strings.LastIndexByte(url, ':')+1:], "/0")
}

func (p pair) open(t *testing.T, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	cfg.URL = p.primary.URL
	if cfg.Prefix == "" {
		cfg.Prefix = "test-" + ulid.Make().String()
	}
	s, err := redisstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fail promotes the replica after the primary is gone.
func (p pair) fail(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	if err := raw(t, p.replica.URL).ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
}

// A store with replica confirmation passes the suite, with and without batching.
func TestStoreConfirmed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprint("alone=", alone), func(t *testing.T) {
			statetest.Exercise(t, func(t *testing.T) state.Store {
				t.Helper()
				return p.open(t, redisstore.Config{Confirm: "replicas:1", NoBatching: alone})
			})
		})
	}
}

// take executes one turn of a run that waits for nothing, and commits it.
func take(ctx context.Context, s *redisstore.Store, run state.State) error {
	c, err := s.Claim(ctx, claimOf(run.ID, "t"))
	if err != nil || c.Outcome != state.Claimed {
		return errors.Join(err, fmt.Errorf("claim: %s", c.Outcome))
	}
	next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, c.Lease, state.Commit{ID: "t", State: &next, From: c.Base, RedeliveryDelay: time.Hour})
	return err
}

// With replica confirmation, acknowledged writes survive the sudden death of the primary (I1).
func TestConfirmedFailover(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		p := newPair(t)
		s := p.open(t, redisstore.Config{Prefix: "p", Confirm: "replicas:1", NoBatching: alone})
		var acknowledged sync.Map // of runs: the version
		var count atomic.Int64
		var all sync.WaitGroup
		var failed atomic.Bool
		enough := make(chan struct{})
		for range 16 {
			all.Go(func() {
				// On a busy machine a replica may confirm a write too late: nothing more is acknowledged only
				// after the failover.
				for !failed.Load() {
					run := newRun(t)
					if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
						continue
					}
					acknowledged.Store(run.ID, int64(1))
					if err := take(t.Context(), s, run); err != nil {
						continue
					}
					acknowledged.Store(run.ID, int64(2))
					if count.Add(1) == 500 {
						close(enough)
					}
				}
			})
		}
		<-enough
		p.fail(t)
		failed.Store(true)
		all.Wait()
		fresh := openAt(t, p.replica.URL, "p")
		acknowledged.Range(func(id, version any) bool {
			st, err := fresh.Load(t.Context(), id.(state.RunID))
			if err != nil || st.Version < version.(int64) {
				t.Errorf("run %s: version %d, %v; version %d was acknowledged", id, st.Version, err, version)
			}
			return true
		})
	}
}

// A write that no replica has is not acknowledged, however often it is repeated, also by another process, and
// the error has the remedy. When the replica is back, the write is acknowledged. Without the setting, the same
// write is acknowledged and lost (I1).
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		p := newPair(t)
		cfg := redisstore.Config{Prefix: "p", Confirm: "replicas:1", ConfirmWithin: 20 * time.Millisecond, NoBatching: alone}
		s := p.open(t, cfg)
		if err := syscall.Kill(p.replica.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		run := newRun(t)
		create := func(s *redisstore.Store) error {
			_, err := s.Create(t.Context(), state.NewRun{State: run, Key: "k", Fingerprint: "f", RedeliveryDelay: time.Hour})
			return err
		}
		for _, s := range []*redisstore.Store{s, s, p.open(t, cfg)} {
			err := create(s)
			if _, ok := errors.AsType[*state.UnconfirmedError](err); !ok || !strings.Contains(err.Error(), "0 of the 1 required replicas") || !strings.Contains(err.Error(), "turnpike doctor") {
				t.Errorf("Create while no replica answers = %v", err)
			}
		}
		if err := s.Ready(t.Context()); err == nil {
			t.Error("a store whose writes no replica confirms is ready")
		}
		if err := syscall.Kill(p.replica.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for create(s) != nil && within(t) {
		}
		// A busy machine takes longer to confirm a write than the 20 ms of s.
		patient := p.open(t, redisstore.Config{Prefix: "p", Confirm: "replicas:1", ConfirmWithin: 2 * time.Second, NoBatching: alone})
		if err := take(t.Context(), patient, run); err != nil {
			t.Errorf("a turn when the replica is back: %v", err)
		}
		if err := syscall.Kill(p.replica.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		lost := newRun(t)
		if _, err := p.open(t, redisstore.Config{Prefix: "p"}).Create(t.Context(), state.NewRun{State: lost, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		p.primary.Kill()
		if err := syscall.Kill(p.replica.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(t.Context()); err == nil {
			t.Error("a store without a server is ready")
		}
	}
}

func TestCheckConfirm(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	found := func(confirm string) state.Finding {
		for _, f := range p.open(t, redisstore.Config{Confirm: confirm}).Check(t.Context()) {
			if f.Name == "redis: confirm" {
				return f
			}
		}
		t.Fatal("doctor does not mention TURNPIKE_REDIS_CONFIRM")
		return state.Finding{}
	}
	for _, c := range []struct {
		confirm string
		ok      bool
		says    string
	}{
		{"", true, "off, 1 replicas connected: a failover loses"},
		{"replicas:1", true, "replicas:1, 1 replicas connected"},
		{"replicas:2", false, "replicas:2, 1 replicas connected"},
		{"aof", false, "aof, 1 replicas connected, but"},
	} {
		f := found(c.confirm)
		if f.OK != c.ok || !strings.Contains(f.Detail, c.says) || !f.OK && f.Remedy == "" {
			t.Errorf("%q: %+v", c.confirm, f)
		}
	}
}

func TestConfirmSetting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		confirm string
		within  time.Duration
	}{{"1", 0}, {"replicas", 0}, {"replicas:0", 0}, {"replicas:-1", 0}, {"replicas:x", 0}, {"aof:0", 0}, {"disk:1", 0}, {"replicas:1", time.Hour}} {
		_, err := redisstore.Open(t.Context(), redisstore.Config{URL: "redis://127.0.0.1/0", Confirm: c.confirm, ConfirmWithin: c.within})
		if err == nil || !strings.Contains(err.Error(), "set 1ms to") && !strings.Contains(err.Error(), "write replicas:1") {
			t.Errorf("Open with %q within %s = %v", c.confirm, c.within, err)
		}
	}
}

// A pipeline asks for confirmation if any of its calls needs that, and only those calls fail without it. A call that
// the server refuses keeps that error, and does not fail others.
func TestConfirmationOfOneOfMany(t *testing.T) {
	t.Parallel()
	url := testbed.Redis(t) // without replicas
	gone, leave := context.WithCancel(t.Context())
	leave()
	refused := errors.New("the server refuses the call")
	unconfirmed := errors.New("no replica confirms the write")
	type call struct {
		ctx     context.Context //nolint:containedctx // of the caller
		promise bool
		command string
		want    error
	}
	done := call{t.Context(), false, "incr", nil}
	lost := call{t.Context(), true, "incr", unconfirmed}
	wrong := call{t.Context(), true, "lpush", refused}
	left := call{gone, true, "incr", context.Canceled}
	for name, calls := range map[string][]call{
		"the first": {lost, done}, "the last": {done, lost}, "all": {lost, lost}, "none": {done, done}, "one in the middle": {done, lost, done},
		"refused": {done, wrong}, "refused, without a confirmation": {done, {t.Context(), false, "lpush", refused}}, "left": {left, done}, "all have left": {left, left},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := "test-" + ulid.Make().String()
			s, err := redisstore.Open(t.Context(), redisstore.Config{URL: url, Prefix: prefix, Confirm: "replicas:1", ConfirmWithin: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			var sent []*redisstore.Together
			executed := 0
			for _, c := range calls {
				sent = append(sent, &redisstore.Together{Ctx: c.ctx, Promise: c.promise, Args: []any{c.command, prefix + ":n"}})
				if c.command == "lpush" {
					sent[len(sent)-1].Args = append(sent[len(sent)-1].Args, "x")
				} else if c.ctx != gone {
					executed++
				}
			}
			if err := s.SendTogether(sent...); err != nil {
				t.Errorf("the server does not answer: %v", err)
			}
			for i, c := range calls {
				err := sent[i].Err
				switch _, ok := errors.AsType[*state.UnconfirmedError](err); {
				case ok:
					err = unconfirmed
				case err != nil && !errors.Is(err, context.Canceled):
					err = refused
				}
				if !errors.Is(err, c.want) {
					t.Errorf("call %d: %v, want %v", i, sent[i].Err, c.want)
				}
			}
			if n, err := raw(t, url).Get(t.Context(), prefix+":n").Int(); n != executed || executed > 0 && err != nil {
				t.Errorf("%d calls are executed, %v; want %d", n, err, executed)
			}
		})
	}
}
