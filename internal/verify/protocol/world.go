// Package protocol explores the turn protocol: all orders in which two workers, the
// sweeper, a gateway, a person and a number of faults can meet over one run, step by
// step, and what must be true in each of them.
//
// What decides in the product decides here: the store is [record.Record], of which
// the stores are written, and the loop is the react loop. The steps of a worker are
// written again, in the order of pkg/worker/turn.go; whoever changes that order
// changes it here, and the exploration says what it means. Time is nobody's: a lease
// lapses and a schedule comes due whenever that is possible.
package protocol

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/record"
)

const (
	runID = state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")
	lease = 25 * time.Second
	grace = 5 * time.Second
)

// epoch is always now.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Faults is how many of each kind may happen.
type Faults struct {
	Crashes   int // of a worker between two steps, or of a publisher before it publishes
	Losses    int // of a message
	Doubles   int // of a message
	Pauses    int // of a worker, beyond its lease and the queue's patience
	Rollbacks int // of the store, to any copy of before
	Silences  int // of the store, which has made a commit and says nothing
	Aborts    int // by the person; no fault, but not for ever either
	Remarks   int // messages of the person, at any moment; no faults either
}

// world is everything at one moment. It is a value: moves copy it, and slices in it
// are never written to.
type world struct {
	Store store
	Saved *store // the copy that a failover would bring back

	Queue     []message
	Published []string // ids that the server remembers, sorted
	Out       []message
	Events    int64 // announced entries that watchers have, from the first without a gap
	Effects   []effect
	Workers   [2]worker
	Aborted   bool

	RolledBack bool
	Left       Faults

	Tokens, Messages int // given out so far
}

// store is the checkpoint store.
type store struct {
	Record record.Record
	Log    history
	Claims int // what a counter in the store would say
}

// history is a log that knows a sum of each of its beginnings, because a world is
// told from others far more often than a log grows.
type history struct {
	entries []state.Entry
	sums    []uint64
}

func (h history) add(entries ...state.Entry) history {
	for _, e := range entries {
		text, err := json.Marshal(e)
		if err != nil {
			panic(fmt.Sprintf("encode entry: %v", err)) // a mistake in this package
		}
		h.entries = append(slices.Clip(h.entries), e)
		h.sums = append(slices.Clip(h.sums), maphash.Bytes(seedA, binary.LittleEndian.AppendUint64(text, h.sum())))
	}
	return h
}

func (h history) first(n int64) history {
	return history{slices.Clip(h.entries[:n]), slices.Clip(h.sums[:n])}
}

func (h history) len() int64 { return int64(len(h.entries)) }

func (h history) sum() uint64 {
	if len(h.sums) == 0 {
		return 0
	}
	return h.sums[len(h.sums)-1]
}

// MarshalJSON stands for the whole.
func (h history) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]uint64{uint64(len(h.sums)), h.sum()})
}

// message is a hint to look at the run.
type message struct {
	Name      string // of this message and no other
	ID        string // for the server, which keeps one of each id; empty is an id of its own
	Version   int64
	Announced bool // as the sender says
	Holder    int  // 1 + the worker that has it in hand; 0 is nobody
}

// effect is what a tool did outside.
type effect struct {
	Turn      int
	Call      string
	Tool      string
	Arguments string
}

// key identifies a world. Names are given anew in the order in which it mentions
// them, and workers change places, so that worlds that differ in nothing else are
// one.
func (w *world) key() [2]uint64 {
	c := *w
	c.Tokens, c.Messages = 0, 0
	slices.SortFunc(c.Workers[:], func(a, b worker) int { return cmp.Compare(a.order(), b.order()) })
	c.Queue = slices.Clone(w.Queue)
	slices.SortFunc(c.Queue, func(a, b message) int { return cmp.Compare(a.order(), b.order()) })
	known := map[string]string{"": ""}
	rename := func(name *string) {
		short, ok := known[*name]
		if !ok {
			short = fmt.Sprint(len(known))
			known[*name] = short
		}
		*name = short
	}
	c.Store.rename(rename)
	if c.Saved != nil {
		saved := *c.Saved
		saved.rename(rename)
		c.Saved = &saved
	}
	for i := range c.Workers {
		k := &c.Workers[i]
		rename(&k.Message)
		rename(&k.Token)
		rename(&k.Keep)
		rename(&k.Kept.Token)
		k.Claim.Lease.Token = ""
	}
	for i := range c.Queue {
		rename(&c.Queue[i].Name)
		c.Queue[i].Holder = min(c.Queue[i].Holder, 1) // which worker it is, the workers say
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("encode world: %v", err)) // a mistake in this package
	}
	return [2]uint64{maphash.Bytes(seedA, text), maphash.Bytes(seedB, text)}
}

var seedA, seedB = maphash.MakeSeed(), maphash.MakeSeed()

func (s *store) rename(rename func(*string)) {
	rename(&s.Record.Token)
	rename(&s.Record.EagerToken)
	rename(&s.Record.CommitID)
}

func (m message) order() string { return fmt.Sprint(m.Holder, m.Version, m.Announced, m.ID) }

// publish puts a message into the queue, unless the server has had its id.
func (w *world) publish(m message) {
	if m.ID != "" {
		at, known := slices.BinarySearch(w.Published, m.ID)
		if known {
			return
		}
		w.Published = slices.Insert(slices.Clone(w.Published), at, m.ID)
	}
	w.Messages++
	m.Name = fmt.Sprintf("msg-%d", w.Messages)
	w.Queue = append(slices.Clip(w.Queue), m)
}

// drop takes a message off the queue.
func (w *world) drop(name string) {
	w.Queue = slices.DeleteFunc(slices.Clone(w.Queue), func(m message) bool { return m.Name == name })
}

// hold notes who has a message in hand.
func (w *world) hold(name string, holder int) {
	w.Queue = slices.Clone(w.Queue)
	for i := range w.Queue {
		if w.Queue[i].Name == name {
			w.Queue[i].Holder = holder
		}
	}
}

// canonical is the id of a turn's message, whoever publishes it.
func canonical(version int64) string { return fmt.Sprintf("v%d", version) }

// lapse ends the lease in force.
func (s *store) lapse() {
	if s.Record.Status == state.Running {
		s.Record.LeaseEnd = state.At(epoch.Add(-time.Second))
	}
}

// due says that the sweeper's moment has come.
func (s *store) due() { s.Record.Due = state.At(epoch) }

// settle forgets how often the run was swept: it changes times, which nobody has
// here.
func (s *store) settle() {
	if s.Record.Sweeps > 0 {
		s.Record.Sweeps = 1
	}
	if !s.Record.Due.IsZero() {
		s.Record.Due = state.At(epoch.Add(grace))
	}
}
