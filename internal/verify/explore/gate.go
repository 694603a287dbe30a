package explore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// outcome is how a call ends.
type outcome string

const (
	done        outcome = "done"
	refused     outcome = "refused"
	unheard     outcome = "done, but the answer is lost"
	crashBefore outcome = "the process dies before"
	crashAfter  outcome = "the process dies after"
	asleep      outcome = "the process sleeps before, beyond its lease"
	slow        outcome = "it takes longer than a lease"
	stopped     outcome = "the process is told to stop meanwhile"
	vanished    outcome = "the message is lost"
	doubled     outcome = "the message is doubled"
	unheardOf   outcome = "its heartbeats are not heard"
)

// The outcomes of calls other than done. For other calls, the death of a process after a read equals its death
// before its next request.
var (
	reads     = []outcome{refused, crashBefore, asleep}
	writes    = []outcome{refused, unheard, crashBefore, crashAfter, asleep}
	publishes = []outcome{refused, unheard, crashBefore, crashAfter, asleep, vanished, doubled}
	replies   = []outcome{refused, unheard, crashBefore, crashAfter, asleep}
	hearings  = []outcome{vanished}
	all       = []outcome{refused, unheard, crashBefore, crashAfter, asleep, slow, stopped, vanished, doubled}
	works     = []outcome{crashBefore, crashAfter, asleep, slow, stopped}
)

const (
	// nap is the time that a process sleeps, and a slow call takes: beyond the lease, and beyond
	// the ack wait of the bus.
	nap = 45017 * time.Millisecond

	// far is a time after all waits.
	far = 100 * 365 * 24 * time.Hour
)

var (
	errCut  = errors.New("explore: no answer")
	errOver = errors.Join(errors.New("explore: it is over"), state.ErrFenced, state.ErrNotFound, bus.ErrClosed)
)

// process is one life of a gateway, a worker or a person. It has many fields because each is something that a
// death of the process ends or changes.
type process struct {
	s      *deployment
	name   string // of this life
	worker bool
	index  int             // its position among the processes that could continue
	ctx    context.Context //nolint:containedctx // its life
	end    context.CancelFunc

	// All below is guarded by s.mu.
	dead       bool
	leaves     bool          // it was told to stop
	gone       chan struct{} // closed at its death
	sleeps     time.Time     // the time until which it does nothing
	woken      chan struct{} // closed when it wakes up earlier
	unheard    time.Time     // the time until which others do not receive its heartbeats
	told       uint64        // hash of all answers that it got, with their times
	overheard  uint64        // hash of the events outside its calls, in any order within a moment
	aborts     []func(bus.Abort)
	heartbeats []func(bus.Heartbeat)
	aborted    map[state.RunID]bool // runs of whose abort it knows
	rng        *rand.ChaCha8
}

// passes blocks dead processes at a port without choices, and sleeping ones until they wake up.
func (p *process) passes() {
	for {
		p.s.mu.Lock()
		dead, awake, until, woken := p.dead, p.awake(), p.sleeps, p.woken
		p.s.mu.Unlock()
		if dead {
			<-p.s.over
		}
		if dead || awake {
			return
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-t.C:
		case <-woken:
		case <-p.gone:
		case <-p.s.over:
			t.Stop()
			return
		}
		t.Stop()
	}
}

// Read is the process's source of randomness.
func (p *process) Read(b []byte) (int, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.rng.Read(b)
}

// awake reports whether the process does anything at all; the caller holds s.mu.
func (p *process) awake() bool { return !p.dead && !time.Now().Before(p.sleeps) }

// hears records an answer to the process; the caller holds s.mu.
func (p *process) hears(what string, answer any, err error) {
	p.told = p.after(p.told, what, answer, err)
}

// overhears records events besides the calls. Events of several goroutines at one moment come in
// any order.
func (p *process) overhears(what string, answer any, err error) {
	p.overheard += p.after(0, what, answer, err)
}

// after returns a hash of the previous sum and an answer to a process.
func (*process) after(before uint64, what string, answer any, err error) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_ = binary.Write(&h, binary.LittleEndian, before)
	_ = binary.Write(&h, binary.LittleEndian, time.Now().UnixNano())
	_, _ = h.WriteString(what)
	if err != nil {
		_, _ = h.WriteString(err.Error())
	}
	if answer != nil {
		b, e := json.Marshal(answer)
		if e != nil {
			panic(fmt.Sprintf("encode answer of %s: %v", what, e)) // a bug in this package
		}
		_, _ = h.Write(b)
	}
	return h.Sum64()
}

var seed = maphash.MakeSeed()

// call is a request of a process to the outside.
type call struct {
	p      *process
	name   string
	can    []outcome   // in addition to done
	ready  func() bool // nil: at once
	again  bool        // a lost answer only causes a repetition
	since  int         // the step in which it arrived
	not    time.Time   // it does not continue before
	will   bool        // it may stay undone
	person bool
	quiet  func() bool // reports whether the order of the call does not matter; nil: it matters

	effect func() (any, error) // executes the call
	answer chan answer
}

type answer struct {
	value any
	err   error
}

// request describes a call, apart from its effect.
type request struct {
	name   string
	can    []outcome
	ready  func() bool
	quiet  func() bool
	again  bool
	will   bool
	person bool
}

// ask makes a call and waits until the explorer lets it continue.
func ask[T any](ctx context.Context, p *process, r request, effect func() (T, error)) (T, error) {
	var none T
	s := p.s
	c := &call{
		p: p, name: r.name, can: r.can, ready: r.ready, quiet: r.quiet, again: r.again, will: r.will, person: r.person,
		effect: func() (any, error) { return effect() }, answer: make(chan answer, 1),
	}
	s.enter(c)
	select {
	case a := <-c.answer:
		if a.err != nil {
			if v, ok := a.value.(T); ok {
				return v, a.err
			}
			return none, a.err
		}
		return a.value.(T), nil //nolint:forcetypeassert // the effect made it
	case <-ctx.Done():
		if s.withdraw(c) {
			return none, context.Cause(ctx)
		}
	case <-s.over:
	}
	<-s.over // the dead go nowhere
	return none, errOver
}

func ask0(ctx context.Context, p *process, r request, effect func() error) error {
	_, err := ask(ctx, p, r, func() (struct{}, error) { return struct{}{}, effect() })
	return err
}

// enter records a waiting call.
func (s *deployment) enter(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.p.dead {
		return
	}
	c.since = s.step
	s.pending = append(s.pending, c)
	s.wake()
}

// withdraw reports whether the caller may give up a call.
func (s *deployment) withdraw(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
		return false
	default:
	}
	if c.p.dead {
		return false
	}
	s.remove(c)
	c.p.hears(c.name+" given up", nil, nil)
	s.wake()
	return true
}

func (s *deployment) remove(c *call) {
	for i, have := range s.pending {
		if have == c {
			s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
			return
		}
	}
}

// wake tells the explorer that there is something new.
func (s *deployment) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}
