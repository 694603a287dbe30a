package explore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Result is the result of an exploration.
type Result struct {
	Executions, Cut int // all, and those that reached a visited state
	States, Steps   int
	Faults          map[string]int // by kind
	Longest         int            // choices of one execution
	Took            time.Duration

	// Effects are the tools' effects in the last execution.
	Effects []string

	// Violation is the violation found, or nil; Trace is the path to it.
	Violation error
	Trace     []string
}

// String returns the result as text.
func (r Result) String() string {
	s := fmt.Sprintf("%d executions (%d cut short), %d states, %d steps, %d faults, up to %d choices, %s",
		r.Executions, r.Cut, r.States, r.Steps, total(r.Faults), r.Longest, r.Took.Round(time.Millisecond))
	if r.Violation != nil {
		s += fmt.Sprintf("\n%v:\n  %s", r.Violation, strings.Join(r.Trace, "\n  "))
	}
	return s
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// explorer is an exploration in progress.
type explorer struct {
	t     *testing.T
	sc    *Scenario
	seen  map[uint64][]Bound // visited states, with the bounds left at each visit
	stack []*node
	bound Bound
	last  []string // trace
	Result
}

// Explore follows every execution of a scenario within each of the bounds, until one violates an invariant.
func Explore(t *testing.T, sc Scenario, bounds ...Bound) Result {
	t.Helper()
	began := time.Now()
	e := &explorer{t: t, sc: &sc, seen: map[uint64][]Bound{}, Result: Result{Faults: map[string]int{}}}
	for _, b := range bounds {
		e.bound = b
		e.stack = []*node{nil}
		for len(e.stack) > 0 && e.Violation == nil {
			n := e.stack[len(e.stack)-1]
			e.stack = e.stack[:len(e.stack)-1]
			e.follow(n, e.decide)
		}
	}
	e.States = len(e.seen)
	e.Took = time.Since(began)
	return e.Result
}

// Wander follows executions with random choices, until one violates an invariant.
func Wander(t *testing.T, sc Scenario, b Bound, rng *rand.Rand, n int) Result {
	t.Helper()
	began := time.Now()
	e := &explorer{t: t, sc: &sc, seen: map[uint64][]Bound{}, bound: b, Result: Result{Faults: map[string]int{}}}
	for range n {
		if e.Violation == nil {
			e.follow(nil, func(x *execution, options []option) int {
				if rng.IntN(6) > 0 {
					return 0
				}
				chosen := rng.IntN(len(options))
				if _, ok := x.left.less(options[chosen].cost); !ok {
					return 0
				}
				return chosen
			})
		}
	}
	e.Took = time.Since(began)
	return e.Result
}

// follow runs one execution.
func (e *explorer) follow(n *node, decide func(*execution, []option) int) {
	e.t.Helper()
	var x *execution
	var err error
	synctest.Test(e.t, func(*testing.T) {
		x = &execution{deployment: newDeployment(e.sc), prefix: n.list(), left: e.bound, decide: decide}
		err = x.run()
	})
	e.Executions++
	e.last, e.Effects = x.trace, nil
	for _, f := range x.effects {
		e.Effects = append(e.Effects, f.name+" of "+x.short(f.run))
	}
	e.Steps += x.steps
	for o, n := range x.faults {
		e.Faults[string(o)] += n
	}
	e.Longest = max(e.Longest, depthOf(x.at))
	e.Cut += count(x.cut)
	if err != nil {
		e.Violation, e.Trace = err, x.trace
	}
}

// decide takes the default beyond a prefix, and records the alternatives.
func (e *explorer) decide(x *execution, options []option) int {
	key := x.key()
	for _, b := range e.seen[key] {
		if x.left.within(b) {
			return -1
		}
	}
	e.seen[key] = append(e.seen[key], x.left)
	for i := len(options) - 1; i > 0; i-- {
		if _, ok := x.left.less(options[i].cost); ok {
			e.stack = append(e.stack, &node{before: x.at, option: i, depth: depthOf(x.at) + 1, saw: x.saw})
		}
	}
	return 0
}

// Replay follows one execution: the default, except for the named choices, each as soon as a choice of that
// name exists.
func Replay(t *testing.T, sc Scenario, names ...string) Result {
	t.Helper()
	e := &explorer{t: t, sc: &sc, seen: map[uint64][]Bound{}, bound: Bound{len(names), len(names)}, Result: Result{Faults: map[string]int{}}}
	e.follow(nil, func(_ *execution, options []option) int {
		for i, o := range options {
			if len(names) > 0 && o.name == names[0] {
				names = names[1:]
				return i
			}
		}
		return 0
	})
	if len(names) > 0 && e.Violation == nil {
		e.Violation = fmt.Errorf("there was never a choice %q", names[0])
		e.Trace = e.last
	}
	return e.Result
}
