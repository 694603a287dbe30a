package state

import (
	"errors"
	"slices"
	"testing"
)

// The table of moves agrees with an independent statement of its rules: a run moves only from where a claim can
// find it, only a user's message moves an ended run, only creation moves a missing one, and nothing leads to
// Running.
func TestMoveLegality(t *testing.T) {
	t.Parallel()
	legalFrom := func(e edge, from Status) bool {
		switch {
		case from == Running:
			return false // claims do that, not the machine
		case from == "":
			return e.reason == Submitted || e.reason == Forked || e.reason == WaitingSchedule
		case e.reason == Submitted || e.reason == Forked:
			return false
		case e.reason == Replayed:
			return from == Failed
		case from.Terminal():
			return e.reason == UserMessage
		default:
			return true
		}
	}
	for _, e := range edges {
		if e.to == Running || !slices.Contains(Statuses(), e.to) {
			t.Errorf("%s leads to %q", e.reason, e.to)
		}
		for _, from := range append(Statuses(), "") {
			before := State{Status: from, Version: 7, Waiting: &Wait{}, Output: new(string)}
			s, err := before.Move(e.reason, Entry{Detail: "why"})
			if legalFrom(e, from) {
				if err != nil || s.Status != e.to || s.Version != 8 || s.LogLen() != 1 {
					t.Errorf("Move(%q from %q) = %q, version %d, %v; want %q, 8", e.reason, from, s.Status, s.Version, err, e.to)
				}
				continue
			}
			var illegal *TransitionError
			if !errors.As(err, &illegal) || illegal.From != from || illegal.Reason != e.reason {
				t.Errorf("Move(%q from %q) = %q, %v; want a TransitionError", e.reason, from, s.Status, err)
			}
		}
	}
	for _, r := range []Reason{"", "no_such_reason", Recovered} {
		if _, err := (State{Status: Queued}).Move(r, Entry{}); err == nil {
			t.Errorf("Move(%q) is legal", r)
		}
		if _, ok := r.Status(); ok || r.Terminal() {
			t.Errorf("%q is a move", r)
		}
	}
}

// Each reason has one meaning.
func TestReasonsAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[Reason]bool{}
	for _, e := range edges {
		if seen[e.reason] {
			t.Errorf("%s is in the table twice", e.reason)
		}
		seen[e.reason] = true
		if e.reason.Terminal() != e.to.Terminal() {
			t.Errorf("%s.Terminal() = %v, but it leads to %s", e.reason, e.reason.Terminal(), e.to)
		}
	}
}
