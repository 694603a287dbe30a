package worker

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// maxStacks bounds what a worker does at a time beside waiting. The store has fewer
// connections.
const maxStacks = 128

// fewTurns is how many turns may be under way with stacks of their own: changing the
// goroutine twice for each step costs a twentieth of a turn's time, and this many take
// some 8 MiB more.
const fewTurns = 512

// stacks runs the steps of turns that need a deep stack on goroutines which keep
// theirs. The goroutine of a turn itself only waits, for the most part, and there may
// be thousands of them: a stack that has grown once stays until the garbage collector
// finds it mostly empty, and 32 KiB each is more than all else that a turn holds.
type stacks struct {
	few  func() bool  // whether the stacks of all turns under way are no matter
	busy atomic.Int64 // steps that are being run
	jobs chan job
	room chan struct{} // holds a token for each goroutine
	quit chan struct{}
	done sync.Pool // of channels that jobs are answered on
}

type job struct {
	do   func()
	done chan *panicked
}

// panicked is a panic on its way to the goroutine that asked for the step.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) String() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

func newStacks(few func() bool) *stacks {
	return &stacks{few: few, jobs: make(chan job), room: make(chan struct{}, maxStacks), quit: make(chan struct{})}
}

// run returns when do has; a panic of do is the caller's. do must not call run: all
// goroutines could be waiting for one more. What waits for people,
// models or tools does not belong in it: it would hold up others.
func (s *stacks) run(do func()) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	if s.few() {
		do()
		return
	}
	done, _ := s.done.Get().(chan *panicked)
	if done == nil {
		done = make(chan *panicked, 1)
	}
	j := job{do, done}
	select {
	case s.jobs <- j:
	default:
		select {
		case s.jobs <- j:
		case s.room <- struct{}{}:
			go s.serve(j) // ends with close
		}
	}
	p := <-done
	s.done.Put(done)
	if p != nil {
		panic(p)
	}
}

func (s *stacks) serve(j job) {
	defer func() { <-s.room }()
	for {
		j.perform()
		select {
		case j = <-s.jobs:
		case <-s.quit:
			return
		}
	}
}

func (j job) perform() {
	var p *panicked
	// Whatever becomes of this goroutine, somebody waits.
	defer func() {
		if value := recover(); value != nil {
			p = &panicked{value, debug.Stack()}
		}
		j.done <- p
	}()
	j.do()
}

// close lets idle goroutines end. Steps may still be run.
func (s *stacks) close() { close(s.quit) }
