package protocol

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/record"
)

// Rules are ways of getting the protocol wrong. The zero value is the protocol.
type Rules struct {
	NoJournal     bool // tools start before the response is written down
	NoStartMarks  bool // nobody notes that a tool was started
	CounterTokens bool // leases are told apart by a number that the store counts
	NoSweeper     bool
	SweeperOwnID  bool // the sweeper publishes under the turn's own message id
	NoInboxCheck  bool // a turn that waits does not look for signals that have come
	AckFirst      bool // a message is acknowledged when it is taken
	PublishFirst  bool // the next turn is published before this one is announced
	FencedAcks    bool // a worker that has lost its lease acknowledges its message
	AnyProof      bool // every message vouches that the run's past was announced

	// Ahead is how workers do it that have nothing else at its end: they publish the
	// next turn with the events of this one, and it vouches for nothing. It breaks
	// nothing.
	Ahead bool

	// Keep is how workers do it that can: a commit claims the next turn, too, and the
	// worker goes on with it from memory when its message comes. It breaks nothing.
	Keep bool
}

// Result is what an exploration has found.
type Result struct {
	States, Moves int

	// Violation is what must not be, or nil; Trace is how it came about, one line a
	// move.
	Violation error
	Trace     []string
}

// move is one step of anybody.
type move struct {
	name  string
	to    world
	err   error // what it violates
	fault bool
}

type explorer struct {
	rules Rules
	loop  loop.Loop

	known map[[2]uint64]int32
	from  []int32 // how each state was reached first
	by    []string
	good  [][]int32 // predecessors by moves that are no faults
	goal  []int32
	moves int
}

// Explore visits every state that the protocol can come into under these faults, at
// most limit of them, and checks each, and that from each the run can still come to
// its end without any further fault (I2).
func Explore(rules Rules, faults Faults, limit int) (Result, error) {
	a, l, err := compile()
	if err != nil {
		return Result{}, err
	}
	m := &explorer{rules: rules, loop: l, known: map[[2]uint64]int32{}}
	s := state.State{ID: runID, Agent: a.Name, AgentVersion: 1, Loop: "react", Limits: a.Tighten(state.Limits{}, now())}
	said := state.UserText("hello")
	said.ID = "msg_1_0"
	s, err = s.Move(state.Submitted, state.Entry{At: now(), Messages: []state.Message{said}})
	if err != nil {
		return Result{}, err
	}
	first := world{Store: store{Record: record.New(s, epoch, grace), Log: history{}.add(s.Log...)}, Left: faults}
	first.Store.Record.Header.Log = nil
	first.Out = []message{{ID: canonical(1), Version: 1}}

	type todo struct {
		id int32
		w  world
	}
	id, _ := m.enter(&first, -1, "submit")
	queue := []todo{{id, first}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at.w.over() {
			m.goal = append(m.goal, at.id)
		}
		for _, next := range m.next(at.w) {
			m.moves++
			next.to.forget()
			err := next.err
			if err == nil {
				err = next.to.check()
			}
			if err != nil {
				return m.result(err, at.id, next.name), nil
			}
			id, fresh := m.enter(&next.to, at.id, next.name)
			if !next.fault {
				m.good[id] = append(m.good[id], at.id)
			}
			if fresh {
				queue = append(queue, todo{id, next.to})
			}
		}
		if len(m.from) > limit {
			return Result{}, fmt.Errorf("more than %d states", limit)
		}
	}
	if stuck := m.stuck(); stuck >= 0 {
		return m.result(fmt.Errorf("I2: the run cannot end any more"), stuck, ""), nil
	}
	return m.result(nil, -1, ""), nil
}

// enter numbers a state.
func (m *explorer) enter(w *world, from int32, by string) (id int32, fresh bool) {
	key := w.key()
	if id, ok := m.known[key]; ok {
		return id, false
	}
	id = int32(len(m.from)) //nolint:gosec // bounded by the limit
	m.known[key] = id
	m.from, m.by, m.good = append(m.from, from), append(m.by, by), append(m.good, nil)
	return id, true
}

// stuck returns a state from which no end can be reached without faults, or -1.
func (m *explorer) stuck() int32 {
	reaches := make([]bool, len(m.from))
	list := slices.Clone(m.goal)
	for _, id := range list {
		reaches[id] = true
	}
	for len(list) > 0 {
		id := list[len(list)-1]
		list = list[:len(list)-1]
		for _, p := range m.good[id] {
			if !reaches[p] {
				reaches[p] = true
				list = append(list, p)
			}
		}
	}
	return int32(slices.Index(reaches, false)) //nolint:gosec // bounded by the limit
}

func (m *explorer) result(err error, at int32, last string) Result {
	r := Result{States: len(m.from), Moves: m.moves, Violation: err}
	if err == nil {
		return r
	}
	for ; at >= 0; at = m.from[at] {
		r.Trace = append(r.Trace, m.by[at])
	}
	slices.Reverse(r.Trace)
	if last != "" {
		r.Trace = append(r.Trace, last)
	}
	return r
}

// String is the trace for people.
func (r Result) String() string {
	if r.Violation == nil {
		return fmt.Sprintf("%d states, %d moves", r.States, r.Moves)
	}
	return fmt.Sprintf("%v, after %d states:\n  %s", r.Violation, r.States, strings.Join(r.Trace, "\n  "))
}

// over reports whether the run has ended and everybody knows.
func (w *world) over() bool {
	return w.Store.Record.Status.Terminal() && (w.RolledBack || w.Events == w.Store.Log.len())
}

// next returns every move that somebody can make.
func (m *explorer) next(w world) []move {
	var moves []move
	add := func(name string, to world, fault bool) { moves = append(moves, move{name, to, nil, fault}) }
	for i := range w.Workers {
		if w.Workers[i].At == idle {
			if i > 0 && w.Workers[i-1].At == idle && w.Workers[i-1].order() == w.Workers[i].order() {
				continue // it would do what its neighbour does
			}
			for _, msg := range w.Queue {
				if msg.Holder == 0 {
					to := w
					to.hold(msg.Name, i+1)
					k := &to.Workers[i]
					k.Message, k.Version, k.Told = msg.Name, msg.Version, msg.Announced
					if k.Kept.Token != "" && k.Kept.Committed.Version == msg.Version {
						moves = append(moves, m.resume(to, i)...)
						moves = append(moves, m.claim(to, i, k.Kept.Token)...) // as if it were not in memory
					}
					moves = append(moves, m.claim(to, i, "")...) // as if it had forgotten
				}
			}
			continue
		}
		moves = append(moves, m.work(w, i)...)
		if w.Aborted && !w.Workers[i].Heard && w.Workers[i].holds() {
			to := w
			to.Workers[i].Heard = true
			add(fmt.Sprintf("worker %d: hear of the abort", i+1), to, false)
		}
	}
	moves = append(moves, m.others(w)...)
	return append(moves, m.faults(w)...)
}

// others are the moves of the gateway, the person and the sweeper.
func (m *explorer) others(w world) []move {
	var moves []move
	add := func(name string, to world, err error) { moves = append(moves, move{name, to, err, false}) }
	if len(w.Out) > 0 {
		to := w
		to.Out = w.Out[1:]
		to.publish(w.Out[0])
		add(fmt.Sprintf("gateway: publish %d", w.Out[0].Version), to, nil)
	}
	r := w.Store.Record
	if slices.Contains(r.Awaits, state.AwaitCall(state.NeedResult, "c3")) {
		to := w
		wake, err := to.Store.Record.Signal(runID, state.Signal{ID: "s", At: now(), ToolResults: []state.SignalResult{{CallID: "c3", Content: "it"}}}, epoch, grace)
		if err == nil {
			if wake.Publish {
				to.Out = append(slices.Clip(w.Out), message{ID: canonical(wake.Version), Version: wake.Version})
			}
			to.Store.settle()
			add("person: send the tool's result", to, nil)
		}
	}
	if w.Left.Aborts > 0 && !r.Status.Terminal() {
		to := w
		to.Aborted = true
		to.Left.Aborts--
		if wake, err := to.Store.Record.RequestAbort(runID, "enough", epoch, grace); err == nil {
			if wake.Publish {
				to.Out = append(slices.Clip(w.Out), message{Version: wake.Version})
			}
			to.Store.settle()
			add("person: abort", to, nil)
		}
	}
	if w.Left.Remarks > 0 && !r.Status.Terminal() {
		to := w
		to.Left.Remarks--
		said := state.UserText("by the way")
		wake, err := to.Store.Record.Signal(runID, state.Signal{ID: fmt.Sprint("m", w.Left.Remarks), At: now(), Message: &said}, epoch, grace)
		if err == nil {
			if wake.Publish {
				to.Out = append(slices.Clip(w.Out), message{ID: canonical(wake.Version), Version: wake.Version})
			}
			to.Store.settle()
			add("person: say something", to, nil)
		}
	}
	if r.Status == state.Running && r.LeaseEnd.After(epoch) && !w.renewed() {
		to := w
		to.Store.lapse()
		add("time: the lease of a worker that is gone lapses", to, nil)
	}
	if to, err, ok := m.sweep(w); ok {
		add("sweeper: sweep", to, err)
	}
	return moves
}

// renewed reports whether somebody keeps the lease in force, or will have used it before
// it ends.
func (w *world) renewed() bool {
	r := w.Store.Record
	return r.Status == state.Running && r.LeaseEnd.After(epoch) && slices.ContainsFunc(w.Workers[:], func(k worker) bool {
		return k.holds() && k.Token == r.Token || k.Kept.Token == r.Token && w.queued(r.Version)
	})
}

// queued reports whether there is a message for a version, or will be.
func (w *world) queued(version int64) bool {
	return slices.ContainsFunc(w.Queue, func(m message) bool { return m.Version == version }) ||
		slices.ContainsFunc(w.Workers[:], func(k worker) bool { return k.At != idle && k.Committed.Version == version })
}

// forget forgets what was kept and can be of no use any more.
func (w *world) forget() {
	for i := range w.Workers {
		if k := &w.Workers[i]; k.Kept.Token != "" && k.Kept.Token != w.Store.Record.Token && !w.queued(k.Kept.Committed.Version) {
			k.Kept = kept{}
		}
	}
}

// longestQueue is how many messages there may be before the sweeper waits: more of
// them say nothing new.
const longestQueue = 1

// sweep is the sweeper's turn, if the run is due.
func (m *explorer) sweep(w world) (to world, err error, ok bool) { //nolint:revive // the error is a violation, a result among others
	r := &w.Store.Record
	if m.rules.NoSweeper || r.Due.IsZero() || len(w.Queue) >= longestQueue {
		return w, nil, false
	}
	if w.renewed() {
		return w, nil, false
	}
	w.Store.lapse()
	w.Store.due()
	d, ok := r.Sweep(runID, epoch, grace)
	w.Store.settle()
	if !ok {
		return w, nil, false
	}
	if d.Finalize {
		err = w.rest(0)
	}
	if d.Turn {
		// One that nobody has taken is as good as another.
		if slices.ContainsFunc(w.Queue, func(m message) bool { return m.Holder == 0 && m.Version == d.Version && !m.Announced }) {
			return w, err, true
		}
		msg := message{Version: d.Version}
		if m.rules.SweeperOwnID {
			msg.ID = canonical(d.Version)
		}
		w.publish(msg)
	}
	return w, err, true
}

// faults are the moves of the world.
func (m *explorer) faults(w world) []move {
	var moves []move
	add := func(name string, to world) { moves = append(moves, move{name, to, nil, true}) }
	if w.Left.Crashes > 0 {
		for i, k := range w.Workers {
			if k.At != idle {
				to := w
				to.Left.Crashes--
				to.hold(k.Message, 0)
				to.Workers[i] = worker{}
				add(fmt.Sprintf("worker %d: crash before: %s", i+1, k.At), to)
			}
		}
		if len(w.Out) > 0 {
			to := w
			to.Left.Crashes--
			to.Out = w.Out[1:]
			add("gateway: crash before it publishes", to)
		}
	}
	for _, msg := range w.Queue {
		if msg.Holder != 0 {
			continue
		}
		if w.Left.Losses > 0 {
			to := w
			to.Left.Losses--
			to.drop(msg.Name)
			add(fmt.Sprintf("queue: lose the message for %d", msg.Version), to)
		}
		if w.Left.Doubles > 0 {
			to := w
			to.Left.Doubles--
			to.publish(message{Version: msg.Version, Announced: msg.Announced})
			add(fmt.Sprintf("queue: double the message for %d", msg.Version), to)
		}
	}
	if w.Left.Pauses > 0 {
		for i, k := range w.Workers {
			if (k.holds() && k.Token == w.Store.Record.Token || k.At == idle && k.Kept.Token != "" && k.Kept.Token == w.Store.Record.Token) && w.Store.Record.LeaseEnd.After(epoch) {
				to := w
				to.Left.Pauses--
				to.Store.lapse()
				to.hold(k.Message, 0)
				add(fmt.Sprintf("worker %d: pause beyond its lease before: %s", i+1, k.At), to)
			}
		}
	}
	if w.Left.Rollbacks > 0 {
		to := w
		if w.Saved == nil {
			kept := w.Store
			to.Saved = &kept
			add("store: keep a copy", to)
		} else {
			to.Left.Rollbacks--
			to.RolledBack = true
			to.Store, to.Saved = *w.Saved, nil
			add("store: fail over to the copy", to)
		}
	}
	return moves
}
