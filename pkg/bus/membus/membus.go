// Package membus is a bus in memory, for tests and simulation. It loses what it
// holds when it is closed, and nothing before.
package membus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Bus is a bus.Bus in memory.
type Bus struct {
	// AckWait is how long a delivery may stay unacknowledged; New sets 30 s. Set it
	// before the bus is used.
	AckWait time.Duration

	mu     sync.Mutex
	closed chan struct{}
	lanes  map[bus.Lane]*queue
	submit *queue
	aborts *queue
	seen   map[string]bool
	events map[string]bool
	dead   []bus.DeadLetter
	subs   map[string]map[int]func(any)
	nextID int

	// Replies are kept for tests to look at.
	replies map[string][][]byte
}

var _ bus.Bus = (*Bus)(nil)

// New returns an empty bus.
func New() *Bus {
	b := &Bus{
		AckWait: 30 * time.Second, closed: make(chan struct{}), lanes: map[bus.Lane]*queue{}, seen: map[string]bool{}, events: map[string]bool{},
		subs: map[string]map[int]func(any){}, replies: map[string][][]byte{},
	}
	for _, l := range bus.Lanes() {
		b.lanes[l] = newQueue(b)
	}
	b.submit, b.aborts = newQueue(b), newQueue(b)
	return b
}

func (b *Bus) open() error {
	select {
	case <-b.closed:
		return bus.ErrClosed
	default:
		return nil
	}
}

// first reports whether id is new in set.
func (b *Bus) first(set map[string]bool, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if set[id] {
		return false
	}
	set[id] = true
	return true
}

// PublishTurn implements bus.Turns.
func (b *Bus) PublishTurn(_ context.Context, t bus.Turn, id string) error {
	if err := b.open(); err != nil {
		return err
	}
	q := b.lanes[t.Lane()]
	if q == nil {
		return fmt.Errorf("publish turn: no lane %q", t.Lane())
	}
	if id == "" || b.first(b.seen, id) {
		q.push(&item{turn: t})
	}
	return nil
}

// Turns implements bus.Turns.
func (b *Bus) Turns(_ context.Context, lane bus.Lane) (bus.TurnQueue, error) {
	if b.lanes[lane] == nil {
		return nil, fmt.Errorf("no lane %q", lane)
	}
	h, err := b.handle(b.lanes[lane])
	return turns{h}, err
}

// Lag implements bus.Turns.
func (b *Bus) Lag(context.Context) (int64, error) {
	var n int64
	for _, q := range b.lanes {
		q.mu.Lock()
		n += int64(len(q.items))
		q.mu.Unlock()
	}
	return n, nil
}

// subscribe registers fn under a subject.
func (b *Bus) subscribe(subject string, fn func(any)) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs[subject] == nil {
		b.subs[subject] = map[int]func(any){}
	}
	b.nextID++
	id := b.nextID
	var mu sync.Mutex
	stopped := false
	b.subs[subject][id] = func(v any) {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			fn(v)
		}
	}
	return func() {
		b.mu.Lock()
		delete(b.subs[subject], id)
		b.mu.Unlock()
		mu.Lock()
		stopped = true
		mu.Unlock()
	}, nil
}

func (b *Bus) send(subject string, v any) {
	b.mu.Lock()
	ids := make([]int, 0, len(b.subs[subject]))
	for id := range b.subs[subject] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	fns := make([]func(any), len(ids))
	for i, id := range ids {
		fns[i] = b.subs[subject][id]
	}
	b.mu.Unlock()
	for _, fn := range fns {
		fn(v)
	}
}

// Announce implements bus.Events.
func (b *Bus) Announce(_ context.Context, run state.RunID, events []bus.Event) error {
	if err := b.open(); err != nil {
		return err
	}
	for _, e := range events {
		if b.first(b.events, string(run)+":"+strconv.FormatInt(e.Seq, 10)) {
			b.send("events."+string(run), e)
		}
	}
	return nil
}

// Tell implements bus.Events.
func (b *Bus) Tell(ctx context.Context, run state.RunID, events []bus.Event) func(context.Context) error {
	err := b.Announce(ctx, run, events)
	return func(context.Context) error { return err }
}

// Live implements bus.Events.
func (b *Bus) Live(run state.RunID, data []byte) {
	b.send("events."+string(run), bus.Event{Data: data})
}

// Watch implements bus.Events.
func (b *Bus) Watch(_ context.Context, run state.RunID, fn func(bus.Event)) (func(), error) {
	return b.subscribe("events."+string(run), func(v any) { fn(v.(bus.Event)) }) //nolint:forcetypeassert // only Announce and Live send
}

// PublishAbort implements bus.Control.
func (b *Bus) PublishAbort(_ context.Context, a bus.Abort) error {
	if err := b.open(); err != nil {
		return err
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode abort: %w", err)
	}
	b.aborts.push(&item{key: string(a.Run), headers: map[string]string{bus.HeaderApplied: "1"}, data: data})
	b.send("aborts", a)
	return nil
}

// Aborts implements bus.Control.
func (b *Bus) Aborts(_ context.Context, fn func(bus.Abort)) (func(), error) {
	return b.subscribe("aborts", func(v any) { fn(v.(bus.Abort)) }) //nolint:forcetypeassert // only PublishAbort sends
}

// Submit puts a submission into the intake, as a service would.
func (b *Bus) Submit(agent string, data []byte, headers map[string]string) {
	b.submit.push(&item{key: agent, data: data, headers: headers})
}

// Submissions implements bus.Intake.
func (b *Bus) Submissions(context.Context) (bus.Queue, error) {
	h, err := b.handle(b.submit)
	return messages{h}, err
}

// AbortRequests implements bus.Intake.
func (b *Bus) AbortRequests(context.Context) (bus.Queue, error) {
	h, err := b.handle(b.aborts)
	return messages{h}, err
}

// Reply implements bus.Intake.
func (b *Bus) Reply(_ context.Context, subject string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replies[subject] = append(b.replies[subject], data)
	return nil
}

// Replies returns what was sent to a subject.
func (b *Bus) Replies(subject string) [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.replies[subject])
}

// DeadLetter implements bus.Intake.
func (b *Bus) DeadLetter(_ context.Context, d bus.DeadLetter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Kind == bus.DeadPoisoned && slices.ContainsFunc(b.dead, func(o bus.DeadLetter) bool { return o.Kind == d.Kind && o.Run == d.Run && o.Version == d.Version }) {
		return nil
	}
	d.Seq = uint64(len(b.dead) + 1)
	b.dead = append(b.dead, d)
	return nil
}

// DeadLetters implements bus.Intake.
func (b *Bus) DeadLetters(_ context.Context, after uint64, limit int) ([]bus.DeadLetter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after >= uint64(len(b.dead)) {
		return nil, nil
	}
	rest := b.dead[after:]
	return slices.Clone(rest[:min(limit, len(rest))]), nil
}

// Beat implements bus.Presence.
func (b *Bus) Beat(beat bus.Beat) { b.send("beats", beat) }

// Beats implements bus.Presence.
func (b *Bus) Beats(_ context.Context, fn func(bus.Beat)) (func(), error) {
	return b.subscribe("beats", func(v any) { fn(v.(bus.Beat)) }) //nolint:forcetypeassert // only Beat sends
}

// Ready implements bus.Bus.
func (b *Bus) Ready(context.Context) error { return b.open() }

// Close implements bus.Bus.
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open() == nil {
		close(b.closed)
	}
	return nil
}
