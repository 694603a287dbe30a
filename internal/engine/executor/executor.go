package executor

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Executor runs steps. It is safe for concurrent use.
type Executor interface {
	// Run returns when step has returned; a panic of step becomes a panic of the caller. step must not call
	// Run, because all goroutines could then wait for each other, and must not wait for people, models or
	// tools, because that would delay other steps.
	Run(step func())

	// Close lets idle goroutines end. It must be called once. Steps may still be run.
	Close()
}

// Inline runs each step on the goroutine of its caller.
type Inline struct{}

// Run implements Executor.
func (Inline) Run(step func()) { step() }

// Close implements Executor.
func (Inline) Close() {}

// size is the maximum number of goroutines of a pool, and so of its steps in progress. The store has fewer
// connections.
const size = 128

// Pool is an Executor with its own goroutines. Its panics have the stack of the step as text.
type Pool struct {
	few  func() bool // whether turns in flight are so few that their stacks do not matter
	jobs chan job
	made chan struct{} // holds a token for each goroutine
	quit chan struct{}
	done sync.Pool // of channels that jobs are answered on
}

// NewPool returns a pool. While few returns true, steps run on the goroutine of their caller, because handing a step
// to another goroutine costs about a twentieth of the time of a turn. few is called for each step, concurrently.
func NewPool(few func() bool) *Pool {
	return &Pool{few: few, jobs: make(chan job), made: make(chan struct{}, size), quit: make(chan struct{})}
}

type job struct {
	do   func()
	done chan *panicked
}

// panicked is a panic in transit to the goroutine that requested the step.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) String() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// Run implements Executor.
func (s *Pool) Run(step func()) {
	if s.few() {
		step()
		return
	}
	done, _ := s.done.Get().(chan *panicked)
	if done == nil {
		done = make(chan *panicked, 1)
	}
	j := job{step, done}
	select {
	case s.jobs <- j:
	default:
		select {
		case s.jobs <- j:
		case s.made <- struct{}{}:
			go s.serve(j) // ends with Close
		}
	}
	p := <-done
	s.done.Put(done)
	if p != nil {
		panic(p)
	}
}

func (s *Pool) serve(j job) {
	defer func() { <-s.made }()
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
	// However this goroutine ends, a caller waits for it.
	defer func() {
		if value := recover(); value != nil {
			p = &panicked{value, debug.Stack()}
		}
		j.done <- p
	}()
	j.do()
}

// Close implements Executor.
func (s *Pool) Close() { close(s.quit) }
