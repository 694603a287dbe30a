package linear

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

var thorough = flag.Bool("thorough", false, "check many histories, for minutes")

func newID() state.RunID { return state.RunID(state.RunPrefix + ulid.Make().String()) }

// explained fails the test if no order explains the history. It reports false if the search took too long to
// decide.
func explained(t *testing.T, h *History) bool {
	t.Helper()
	return explainedWithin(t, h, 20*time.Second)
}

// explainedWithin is explained with another time limit.
func explainedWithin(t *testing.T, h *History, limit time.Duration) bool {
	t.Helper()
	result, info := h.Check(limit)
	if result == porcupine.Ok {
		return true
	}
	n, unknown := h.Len()
	if result == porcupine.Unknown {
		t.Logf("undecided: %d operations, %d without an answer", n, unknown)
		return false
	}
	t.Fatalf("no order explains these %d operations, %d without an answer:\n%s", n, unknown, h.Stuck(info))
	return true
}

// A correct store that loses replies has histories that can be explained; each incorrect one has a history that
// cannot.
func TestCatchesBugs(t *testing.T) {
	t.Parallel()
	load := Load{Workers: 3, People: 2, Readers: 1, Turns: 10, Lease: 20 * time.Millisecond, Timeout: time.Second, Tries: 4}
	for _, b := range append([]bug{none}, bugs...) {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				load := load
				load.Seed = seed
				h := NewHistory(func() int64 { return 0 })
				Work(t.Context(), h, newID(), []state.Store{&double{bug: b}}, load)
				if b == none {
					if !explainedWithin(t, h, 3*time.Minute) { // fast, except on a busy machine
						t.Fatal("undecided, without a fault")
					}
				} else if result, _ := h.Check(time.Minute); result == porcupine.Illegal {
					return
				}
			}
			if b != none {
				t.Error("it went unnoticed")
			}
		})
	}
}

// rounds returns the number of runs that are checked in sequence, each with a restart of the server.
func rounds() int {
	if *thorough {
		return 60
	}
	return 3
}

// explore works on one run after another while connections break and the server restarts.
func explore(t *testing.T, p *Proxy, oneIn int, faults func() int64, stores []state.Store, fresh func() state.Store, restart func()) {
	t.Helper()
	load := Load{Workers: 3, People: 2, Readers: 1, Turns: 6, Lease: 100 * time.Millisecond, Timeout: time.Second, Tries: 5}
	if *thorough {
		load.Turns = 10 // longer histories find more, but are sometimes too long to decide
	}
	ops, unknown, undecided, restarts := 0, 0, 0, 0
	for i := range rounds() {
		load.Seed = uint64(time.Now().UnixNano())
		id := newID()
		h := NewHistory(faults)
		done := make(chan struct{}, 1)
		h.Done = func() {
			select {
			case done <- struct{}{}:
			default:
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var storm sync.WaitGroup
		storm.Go(func() { p.Storm(ctx, done, oneIn) })
		if i%3 == 2 {
			storm.Go(func() {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
				p.Fault()
				restart()
				restarts++
				p.Fault()
			})
		}
		Work(t.Context(), h, id, stores, load)
		stop()
		storm.Wait()
		// A fresh client reads everything that was acknowledged.
		for _, c := range []Call{{Run: id, Load: true}, {Run: id, Log: true}} {
			for tries := 0; h.Do(t.Context(), 99, fresh(), c).Unknown; tries++ {
				if tries == 10 {
					t.Fatal("the store does not answer any more")
				}
			}
		}
		if !explained(t, h) {
			undecided++
		}
		n, u := h.Len()
		ops, unknown = ops+n, unknown+u
	}
	// The search is limited in time, and its progress depends on the machine; it must decide most histories.
	if undecided == rounds() || *thorough && undecided > 1+rounds()/10 {
		t.Errorf("%d histories of %d are undecided: reduce the faults or the operations", undecided, rounds())
	}
	t.Logf("%d runs, %d operations, %d of them without an answer, %d strikes at connections, %d restarts", rounds(), ops, unknown, p.Faults()/2-int64(restarts), restarts)
}

func proxied(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A Redis with an append-only file that is always synced is linearizable (I1, I3, I8).
func TestRedisIsLinearizable(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	addr := strings.TrimSuffix(strings.TrimPrefix(server.URL, "redis://"), "/0")
	p := proxied(t, addr)
	open := func(addr string) state.Store {
		s, err := redisstore.Open(t.Context(), redisstore.Config{URL: "redis://" + addr + "/0"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	stores := []state.Store{open(p.Addr), open(p.Addr), open(p.Addr)}
	direct := open(addr)
	// Its client library repeats requests without a reply.
	explore(t, p, 12, p.Faults, stores, func() state.Store { return direct }, func() {
		server.Kill()
		if err := server.Start(); err != nil {
			t.Error(err)
		}
	})
}

// A Redis that loses acknowledged writes is detected.
func TestCatchesRedisWithoutAOF(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--appendonly", "no", "--save", "")
	s, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h, id := NewHistory(func() int64 { return 0 }), newID()
	Work(t.Context(), h, id, []state.Store{s}, Load{Workers: 2, People: 1, Turns: 4, Lease: 20 * time.Millisecond, Timeout: 5 * time.Second, Tries: 1})
	explained(t, h)
	server.Kill()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for h.Do(t.Context(), 99, s, Call{Run: id, Load: true}).Unknown {
		if t.Context().Err() != nil {
			t.Fatal("the server does not answer")
		}
	}
	if result, _ := h.Check(time.Minute); result != porcupine.Illegal {
		t.Errorf("the history is %s", result)
	}
}

// JetStream with file storage is linearizable (I1, I3, I8).
func TestNATSIsLinearizable(t *testing.T) {
	t.Parallel()
	server := startNATS(t)
	p := proxied(t, server.addr)
	connect := func(addr string) *nats.Conn {
		nc, err := natsbus.Connect("nats://"+addr, "linear", nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(5*time.Millisecond, 5*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	open := func(nc *nats.Conn) state.Store {
		s, err := natsstore.Open(t.Context(), nc, natsstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	stores := []state.Store{open(connect(p.Addr)), open(connect(p.Addr)), open(connect(p.Addr))}
	direct := connect(server.addr)
	// A change is published once, on the condition that nothing came before it.
	explore(t, p, 12, func() int64 { return 0 }, stores, func() state.Store { return open(direct) }, func() {
		server.kill()
		if err := server.start(); err != nil {
			t.Error(err)
		}
	})
}
