package looptest

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// shadow is a copy of the run under test whose log begins with its latest checkpoint; the run itself keeps the whole
// log. Each event must lead to the same for both, with the exceptions of readsEarlier and decided.
type shadow struct {
	s, committed state.State
}

// checkpoint takes a checkpoint at the begin of a turn, as a worker does. The checkpoint of a log that begins with one
// must be that of the whole log.
func (r *run) checkpoint() {
	r.t.Helper()
	next, ok := loop.Checkpoint(r.s, r.agent, r.now)
	if !ok {
		return
	}
	if old := r.shadow; old != nil {
		want := next
		if next, ok = loop.Checkpoint(old.s, r.agent, r.now); !ok {
			r.t.Fatalf("the whole log can have a checkpoint, and the log from its last one cannot")
		}
		if diff := cmp.Diff(whole(want), whole(next), cmpopts.EquateEmpty()); diff != "" {
			r.t.Fatalf("the checkpoint differs from that of the whole log:\n%s", diff)
		}
	}
	e := next.Log[0]
	b, err := state.EncodeEntry(&e)
	if err != nil {
		r.t.Fatalf("encode checkpoint: %v", err)
	}
	stored, err := state.DecodeEntry(e.Seq, b)
	if err != nil {
		r.t.Fatalf("decode checkpoint: %v", err)
	}
	next.Log = []state.Entry{stored}
	if diff := cmp.Diff(e.Checkpoint, stored.Checkpoint, cmpopts.EquateEmpty()); diff != "" {
		r.t.Fatalf("the checkpoint does not survive its codec:\n%s", diff)
	}
	if diff := cmp.Diff(state.View(r.s.Log), state.View(next.Log), cmpopts.EquateEmpty()); diff != "" {
		r.t.Fatalf("the checkpoint has another view:\n%s", diff)
	}
	r.shadow = &shadow{next, r.committed}
	r.s = withCheckpoint(r.s, e)
	r.journal = len(r.s.Log)
}

// whole returns the checkpoint that a log begins with, without what depends on the part of the log that it was made
// from.
func whole(s state.State) state.Checkpoint {
	c := *s.Log[0].Checkpoint
	slices.Sort(c.Submitted)
	return c
}

// withCheckpoint appends a checkpoint to a log that stays whole.
func withCheckpoint(s state.State, e state.Entry) state.State {
	s.Log, s.Checkpoint, s.LogBytes = append(slices.Clip(s.Log), e), e.Seq, e.Weight()
	return s
}

// follow takes the shadow through an event whose decision for the whole log is d.
func (r *run) follow(ev loop.Event, d loop.Decision) {
	r.t.Helper()
	if r.shadow == nil {
		return
	}
	got := r.bind(r.agent).Step(r.shadow.s, ev)
	if r.readsEarlier(r.shadow.s, d, got) {
		r.shadow = nil // the difference is meant
		return
	}
	from := state.LogLen(r.shadow.s.Log)
	if diff := cmp.Diff(decided(r.t, *d.Next, from), decided(r.t, *got.Next, from)); diff != "" {
		r.t.Fatalf("with a checkpoint %T leads to another state:\n%s", ev, diff)
	}
	if diff := cmp.Diff(d.Effect, got.Effect, cmpopts.EquateEmpty()); diff != "" {
		r.t.Fatalf("with a checkpoint %T leads to another effect:\n%s", ev, diff)
	}
	if diff := cmp.Diff(d.Next.Accepts(), got.Next.Accepts()); diff != "" {
		r.t.Fatalf("with a checkpoint the run waits for something else:\n%s", diff)
	}
	if diff := cmp.Diff(state.EndFigures(d.Next), state.EndFigures(got.Next)); diff != "" {
		r.t.Fatalf("with a checkpoint the end has other figures:\n%s", diff)
	}
	if diff := cmp.Diff(state.Askers(nil, d.Next.Log), state.Askers(nil, got.Next.Log)); diff != "" {
		r.t.Fatalf("with a checkpoint others have requested something:\n%s", diff)
	}
	if full, cut := provenance.Seen(d.Next.Log), provenance.Seen(got.Next.Log); full != cut {
		r.t.Fatalf("with a checkpoint untrusted text was seen: %v, without: %v", cut, full)
	}
	if full, cut := provenance.Farthest(d.Next.Log), provenance.Farthest(got.Next.Log); full != cut {
		r.t.Fatalf("with a checkpoint the least trusted origin is %q, without %q", cut, full)
	}
	r.shadow.s = *got.Next
	if d.Effect == nil {
		r.shadow.committed = *got.Next
	}
}

// readsEarlier reports whether the decisions for the whole log and for the log that is cut at a checkpoint differ for a
// permitted reason: only the whole log has the result of an earlier call. Without that result, the loop makes an
// idempotent call again, or lets the worker read in the store a result that the model reads again.
func (r *run) readsEarlier(before state.State, whole, cut loop.Decision) bool {
	from := state.LogLen(before.Log)
	reused := slices.ContainsFunc(state.After(whole.Next.Log, from), func(e state.Entry) bool { return e.Type == state.EntryReused })
	same := cmp.Equal(whole.Effect, cut.Effect, cmpopts.EquateEmpty()) && whole.Next.LogLen() == cut.Next.LogLen()
	run, ok := cut.Effect.(loop.RunTools)
	return !same && ok && (reused || slices.ContainsFunc(run.Calls, func(o state.OpenCall) bool {
		spec := r.agent.Tool(o.Name)
		return spec != nil && spec.By == tool.ByHistory
	}))
}

// decided returns a state with the entries of its log after number from, as text. It omits what a checkpoint may answer
// with yes in doubt.
func decided(t fataler, s state.State, from int64) string {
	t.Helper()
	s.Log = slices.Clone(state.After(s.Log, from))
	s.Waiting = withoutSources(s.Waiting)
	for i := range s.Log {
		s.Log[i].Waiting = withoutSources(s.Log[i].Waiting)
	}
	return encode(t, s, 0)
}

func withoutSources(w *state.Wait) *state.Wait {
	if w == nil {
		return nil
	}
	again := *w
	again.Calls = slices.Clone(w.Calls)
	for i := range again.Calls {
		again.Calls[i].ArgsFromUntrusted, again.Calls[i].Sources = false, nil
	}
	return &again
}

// lose returns the shadow to what the store has: the journaled entries folded into its committed state.
func (h *shadow) lose(journaled []state.Entry) {
	h.s = h.committed
	for _, e := range journaled {
		h.s = h.s.Append(e)
	}
}
