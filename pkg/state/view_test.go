package state_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// An outline refers to the messages of both views, in their order, whatever the log has hidden or replaced.
func TestOutline(t *testing.T) {
	t.Parallel()
	again := done("c1")
	m := *again.Message
	m.ID = "r-c1-again"
	again.Message = &m
	replaced := done("c1")
	replaced.Type = state.EntryReused
	cutOff := said("a1", "c1")
	cutOff.Type, cutOff.MessageIDs = state.EntryTombstoned, []string{"a0"}
	submitted := state.Entry{Type: state.EntrySubmitted, Messages: input("u1", "u2")}
	for name, c := range map[string]struct {
		log        []state.Entry
		want, full string
	}{
		"nothing": {},
		"withdrawn without a new response": {
			[]state.Entry{submitted, said("a1", "c1"), done("c1"), {Type: state.EntryTombstoned, MessageIDs: []string{"a1", "u2"}}},
			"u1", "u1 u2(dead) a1(dead) r-c1",
		},
		"a response that broke off": {
			[]state.Entry{submitted, said("a0"), cutOff}, "u1 u2", "u1 u2 a0(dead) a1",
		},
		"refused by a check":  {[]state.Entry{submitted, {Type: state.EntryChecked, MessageIDs: []string{"u2"}}}, "u1", "u1 u2(dead)"},
		"replaced by a check": {[]state.Entry{submitted, {Type: state.EntryChecked, MessageIDs: []string{"u1"}, Messages: input("v1")}}, "v1 u2", "u1(dead) u2 v1"},
		"compacted": {
			[]state.Entry{submitted, said("a1"), said("a2"), {Type: state.EntryCompacted, MessageIDs: []string{"u2", "a1"}, Messages: input("summary")}, said("a3")},
			"u1 summary a2 a3", "u1 u2(compacted) a1(compacted) a2 summary a3",
		},
		"handed off with instructions": {
			[]state.Entry{submitted, said("a1"), {Type: state.EntryHandoff, MessageIDs: []string{"u1"}, Messages: input("i", "j")}}, "i j u2 a1", "u1(dead) u2 a1 i j",
		},
		"handed off without": {[]state.Entry{submitted, {Type: state.EntryHandoff, Messages: input("i")}}, "u1 u2 i", "u1 u2 i"},
		"results in another order, and one again": {
			[]state.Entry{submitted, said("a1", "c1", "c2"), done("c2"), replaced, {Type: state.EntryProgress}, {Type: state.EntryTombstoned, MessageIDs: []string{"r-c1"}}, again, said("a2", "c1")},
			"u1 u2 a1 r-c1-again r-c2 a2", "u1 u2 a1 r-c1(dead) r-c1-again r-c2 a2",
		},
		"after a checkpoint": {
			[]state.Entry{{Type: state.EntryCheckpoint, Checkpoint: &state.Checkpoint{Messages: input("u1", "a1")}}, said("a2"), {Type: state.EntryTombstoned, MessageIDs: []string{"a1"}}},
			"u1 a2", "u1 a1(dead) a2",
		},
		"nothing is hidden": {
			[]state.Entry{{Type: state.EntryCheckpoint, Checkpoint: &state.Checkpoint{Messages: input("u1", "a1")}}, {Type: state.EntryHandoff, Messages: input("i")}, said("a2", "c1", "c2"), done("c2"), done("c1"), said("a3", "c1"), done("c1")},
			"u1 a1 i a2 r-c1 r-c2 a3 r-c1", "u1 a1 i a2 r-c1 r-c2 a3 r-c1",
		},
		"a checkpoint that is not the first entry": {
			[]state.Entry{submitted, {Type: state.EntryCheckpoint, Checkpoint: &state.Checkpoint{Messages: input("u1", "u2")}}, said("a1")}, "u1 u2 a1", "u1 u2 a1",
		},
	} {
		var o state.Outline
		for _, e := range c.log {
			o.Add(e)
		}
		for _, full := range []bool{false, true} {
			view, want := state.View(c.log), c.want
			if full {
				view, want = state.FullView(c.log), c.full
			}
			if got := ids(view); got != want {
				t.Errorf("%s: the view (full: %t) has %q, want %q", name, full, got, want)
			}
			got := []state.Message{}
			for _, r := range o.Refs(full) {
				got = append(got, r.Message(&c.log[r.Entry]))
			}
			if diff := cmp.Diff(view, got); diff != "" {
				t.Errorf("%s: the messages of the outline (full: %t) differ from the view:\n%s", name, full, diff)
			}
		}
	}
}

// The view of a long run in which nothing is hidden is one copy of its messages, because each turn builds it.
func TestPlainViewIsOneCopy(t *testing.T) {
	log := longRun().Log
	if n := testing.AllocsPerRun(10, func() { state.View(log) }); n > 1 {
		t.Errorf("the view of %d entries takes %v allocations, want 1", len(log), n)
	}
}
