package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// History records what clients did to one run, as they observed it.
type History struct {
	// Faults returns the number of faults so far. If a client's library retries requests without a
	// reply, an operation during a fault may happen twice, and the second time late.
	Faults func() int64

	// Done, if not nil, is called after each operation.
	Done func()

	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// NewHistory returns an empty history.
func NewHistory(faults func() int64) *History {
	return &History{Faults: faults, began: time.Now()}
}

// Do calls c on a store and records the answer.
func (h *History) Do(ctx context.Context, client int, s state.Store, c Call) Answer {
	c.At = time.Now()
	faults, call := h.Faults(), time.Since(h.began).Nanoseconds()
	a := ask(ctx, s, c)
	if h.Done != nil {
		defer h.Done()
	}
	back := time.Since(h.began).Nanoseconds()
	if a.Unknown {
		a = Answer{Unknown: true}
		back = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	reads := c.Load || c.Log || c.ByKey != nil
	if !a.Unknown || !reads {
		h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: call, Output: a, Return: back})
	}
	if !a.Unknown && !reads && h.Faults() != faults {
		h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: call, Output: Answer{Unknown: true}, Return: math.MaxInt64})
	}
	return a
}

// Len is the number of operations.
func (h *History) Len() (ops, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		if o.Output.(Answer).Unknown {
			unknown++
		}
	}
	return len(h.ops), unknown
}

// Check looks for an order that explains the history.
func (h *History) Check(limit time.Duration) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops)
	var last int64
	known := map[string]int64{} // the time at which an operation was first known to be done
	for _, o := range ops {
		if o.Output.(Answer).Unknown {
			continue
		}
		last = max(last, o.Return)
		if once := o.Input.(Call).once(); once != "" && o.Output.(Answer).Err == nil && (known[once] == 0 || o.Return < known[once]) {
			known[once] = o.Return
		}
	}
	// An operation that can succeed once, and is known to have succeeded, does not succeed later:
	// an attempt without an answer comes before that, or has no effect. Without this bound the
	// search does not terminate.
	for i, o := range ops {
		if back := known[o.Input.(Call).once()]; o.Output.(Answer).Unknown && back > o.Call {
			ops[i].Return, ops[i].Output = back, Answer{Unknown: true, bounded: true}
		}
	}
	end := porcupine.Operation{Input: Call{over: true}, Call: last + 1, Output: Answer{}, Return: last + 2}
	return porcupine.CheckOperationsVerbose(Model(), append(ops, end), limit)
}

// ask executes c. After an error that the store does not promise, it is unknown whether c happened.
func ask(ctx context.Context, s state.Store, c Call) (a Answer) {
	switch {
	case c.Create != nil:
		var made state.Created
		made, a.Err = s.Create(ctx, *c.Create)
		a.State, a.Existing = made.State, made.Existing
	case c.Load:
		a.State, a.Err = s.Load(ctx, c.Run)
	case c.ByKey != nil:
		a.State, a.Err = s.LoadByKey(ctx, c.ByKey.State.Tenant, c.ByKey.Key, c.ByKey.Fingerprint)
	case c.Log:
		a.Log, a.Err = s.Log(ctx, c.Run, 0, 0)
	case c.Claim != nil:
		var claim *state.Claim
		if claim, a.Err = s.Claim(ctx, *c.Claim); a.Err == nil {
			a.Claim = *claim
		}
	case c.Record != nil:
		_, a.Err = s.Record(ctx, c.Lease, *c.Record)
	case c.Commit != nil:
		a.Committed, a.Err = s.Commit(ctx, c.Lease, *c.Commit)
	case c.Release:
		a.Err = s.Release(ctx, c.Lease, 0)
	case c.Signal != nil:
		a.Wake, a.Err = s.Signal(ctx, c.Run, *c.Signal, time.Second)
	case c.Abort != nil:
		a.Wake, a.Err = s.Abort(ctx, c.Run, state.Abort{Reason: *c.Abort}, time.Second)
	}
	var closed *state.NotWaitingError
	var ended *state.TerminalError
	promised := errors.Is(a.Err, state.ErrFenced) || errors.Is(a.Err, state.ErrNotFound) || errors.As(a.Err, &closed) || errors.As(a.Err, &ended)
	a.Unknown = a.Err != nil && !promised
	a.log = encodeLog(a.Log)
	if s := a.Claim.State; s != nil {
		a.log += encodeLog(s.Log)
	}
	return a
}

// Stuck describes the longest partial order: its last steps, and the operations that cannot follow
// them.
func (h *History) Stuck(info porcupine.LinearizationInfo) string {
	h.mu.Lock()
	all := slices.Clone(h.ops)
	h.mu.Unlock()
	var best []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	done := map[string]bool{}
	key := func(o porcupine.Operation) string { return fmt.Sprint(o.ClientId, o.Call, o.Return) }
	m := Model()
	s := m.Init()
	var b strings.Builder
	for i, o := range best {
		done[key(o)] = true
		_, s = m.Step(s, o.Input, o.Output)
		if i > len(best)-20 {
			fmt.Fprintf(&b, "%3d client %d, %v to %v: %s\n      %s\n", i, o.ClientId, time.Duration(o.Call), time.Duration(o.Return), describe(o.Input.(Call), o.Output.(Answer)), m.DescribeState(s))
		}
	}
	b.WriteString("left:\n")
	slices.SortFunc(all, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	for n, o := range all {
		if !done[key(o)] && n < len(best)+20 {
			fmt.Fprintf(&b, "    client %d, %v to %v: %s\n", o.ClientId, time.Duration(o.Call), time.Duration(o.Return), describe(o.Input.(Call), o.Output.(Answer)))
		}
	}
	return b.String()
}
