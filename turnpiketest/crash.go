package turnpiketest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Point is a step of a turn at which a worker can die.
type Point string

// The points, in the order in which a turn passes them. A turn does not pass all of them, and passes some more than
// once: a response is stored before the turn ends only if tool calls or hooks follow it, the start of a call only if
// the tool is not idempotent, and a small result that no other work follows is stored with the turn.
const (
	Claimed         Point = "claimed"          // the store has the worker's claim
	ModelAnswered   Point = "model_answered"   // the worker has a response that it stores before the turn ends
	ModelJournaled  Point = "model_journaled"  // the store has the response
	CallStarted     Point = "call_started"     // the store has the start of a call; the tool is not called yet
	CallReturned    Point = "call_returned"    // the worker has a result that it stores before the turn ends
	ResultJournaled Point = "result_journaled" // the store has that result
	TurnDecided     Point = "turn_decided"     // the worker is about to commit
	TurnCommitted   Point = "turn_committed"   // the store has the turn
	TurnPublished   Point = "turn_published"   // the bus has the message of the next turn
)

// points has all points in order.
var points = []Point{Claimed, ModelAnswered, ModelJournaled, CallStarted, CallReturned, ResultJournaled, TurnDecided, TurnCommitted, TurnPublished}

// errCrashed is the error that store and bus return to a crashed worker. It makes the worker give up its turns at once.
var errCrashed = fmt.Errorf("turnpiketest: the worker has crashed: %w", state.ErrFenced)

// CrashAt makes the worker die when it passes a point for the nth time, from 1, counted over all workers of the Kit.
// The worker is then cut off from store and bus, its contexts end, and another worker starts. CrashAt fails the test if
// p is not a Point or nth is below 1. It has no effect if the point has already been passed that often.
func (k *Kit) CrashAt(p Point, nth int) {
	k.t.Helper()
	if !slices.Contains(points, p) || nth < 1 {
		k.t.Fatalf("turnpiketest: CrashAt(%q, %d): use a Point and a number from 1", p, nth)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.crash[p] == nil {
		k.crash[p] = map[int]bool{}
	}
	k.crash[p][nth] = true
}

// life is one worker, from its start to its end or its crash.
type life struct {
	kit    *Kit
	worker *turnpike.Worker

	mu   sync.Mutex
	dead bool
}

// begin starts a worker.
func (k *Kit) begin() error {
	l := &life{kit: k}
	o := k.o
	o.Store, o.Bus = store{k.store, l}, wire{k.bus, l}
	d, err := turnpike.Open(context.Background(), o)
	if err != nil {
		return err
	}
	if l.worker, err = d.NewWorker(turnpike.WorkerOptions{}); err != nil {
		return errors.Join(err, d.Close())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return d.Close()
	}
	k.life = l
	k.lives.Go(func() {
		if err := errors.Join(l.worker.Run(context.WithValue(context.Background(), lifeKey{}, l)), d.Close()); err != nil && l.alive() == nil {
			k.t.Errorf("turnpiketest: the worker ends: %v", err)
		}
	})
	return nil
}

// alive returns errCrashed after a crash, else nil.
func (l *life) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errCrashed
	}
	return nil
}

// pass counts a passage of p, and returns errCrashed if the worker dies there or is already dead.
func (l *life) pass(p Point) error {
	if err := l.alive(); err != nil {
		return err
	}
	k := l.kit
	k.mu.Lock()
	k.passed[p]++
	dies := k.crash[p][k.passed[p]] && !k.closed
	k.mu.Unlock()
	if !dies {
		return nil
	}
	l.end()
	return errCrashed
}

// end cuts the worker off, and starts another one, which takes over the turns when it finds this worker dead.
func (l *life) end() {
	l.mu.Lock()
	twice := l.dead
	l.dead = true
	l.mu.Unlock()
	if twice {
		return
	}
	k := l.kit
	k.lives.Go(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.worker.Stop(now)
	})
	k.lives.Go(func() {
		if err := k.begin(); err != nil {
			k.t.Errorf("turnpiketest: start another worker: %v", err)
		}
	})
}

// lifeKey is the key of a worker's life in the contexts of its calls.
type lifeKey struct{}

// CrashHere makes the worker that calls a tool die inside the call, and ends the goroutine of the tool: it does not
// return. ctx is the context of the tool. Another worker starts, and calls the tool again if it is idempotent, or if
// its probe finds that the call had no effect; a tool that always calls CrashHere kills that worker too. CrashHere
// panics outside a call by a worker of a Kit.
func CrashHere(ctx context.Context) {
	l, ok := ctx.Value(lifeKey{}).(*life)
	if !ok {
		panic("turnpiketest: CrashHere was called outside a tool call of a Kit: pass it the context of the tool's function")
	}
	l.end()
	runtime.Goexit()
}

// Open starts a Kit: it is [New] with the test of one run of EachCrash.
type Open func(turnpike.Options) *Kit

// EachCrash runs f without a crash, and then once for each time that the first run passed a point, with a crash at that
// time. Each run is a subtest in a bubble of testing/synctest: waits take no real time, and f must not use the network.
// f must call open exactly once, and must end in the same way every time. If the first run fails, EachCrash makes no
// others.
func EachCrash(t *testing.T, f func(t *testing.T, open Open)) {
	t.Helper()
	passed := map[Point]int{}
	run := func(name string, p Point, nth int) bool {
		return t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var k *Kit
				f(t, func(o turnpike.Options) *Kit {
					if k != nil {
						t.Fatal("turnpiketest: open was called twice: call it once in each test")
					}
					k = New(t, o)
					if nth > 0 {
						k.CrashAt(p, nth)
					}
					return k
				})
				if k == nil {
					t.Fatal("turnpiketest: open was not called: call it once in each test")
				}
				k.mu.Lock()
				defer k.mu.Unlock()
				if nth == 0 {
					for p, n := range k.passed {
						passed[p] = n
					}
				} else if k.passed[p] < nth {
					t.Logf("turnpiketest: no crash: this time the worker passed %s only %d times", p, k.passed[p])
				}
			})
		})
	}
	if !run("no crash", "", 0) {
		return
	}
	for _, p := range points {
		for n := 1; n <= passed[p]; n++ {
			run(fmt.Sprintf("%s %d", p, n), p, n)
		}
	}
}
