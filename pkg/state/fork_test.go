package state_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A history has what the run had at the end of the turn: neither messages nor a confidence of a later one, and those of
// a checkpoint unless a reflection came between.
func TestHistoryThrough(t *testing.T) {
	t.Parallel()
	at := func(turn int, e state.Entry) state.Entry {
		e.Turn = turn
		return e
	}
	reflected := func(turn int, confidence float64) state.Entry {
		return state.Entry{Type: state.EntryReflect, Turn: turn, Confidence: &confidence}
	}
	submitted := state.Entry{Type: state.EntrySubmitted, Messages: input("u1")}
	confident := 0.7
	checkpoint := state.Entry{Type: state.EntryCheckpoint, Turn: 3, Checkpoint: &state.Checkpoint{Messages: input("u1", "a1"), Confidence: &confident}}
	rest := []state.Entry{at(4, said("a4", "c1")), at(4, done("c1")), {Type: state.EntryTransition, Turn: 4, Messages: input("u2")}, at(5, said("a5")), reflected(5, 0.2), at(6, said("a6"))}
	whole := append([]state.Entry{submitted, at(1, said("a1")), reflected(1, 0.5), at(2, said("a2"))}, rest...)
	short := append([]state.Entry{checkpoint}, rest...)
	open := []state.Entry{submitted, at(1, said("a1", "c1", "c2")), at(1, done("c1"))}
	reused := at(1, done("c2"))
	reused.Type = state.EntryReused
	for _, c := range []struct {
		log        []state.Entry
		turn       int
		want       string // "": no such history
		confidence float64
	}{
		{whole, 0, "u1", 0},
		{whole, 1, "u1 a1", 0.5},
		{whole, 4, "u1 a1 a2 a4 r-c1", 0.5},
		{whole, 5, "u1 a1 a2 a4 r-c1 u2 a5", 0.2},
		{short, 4, "u1 a1 a4 r-c1", 0.7},
		{short, 5, "u1 a1 a4 r-c1 u2 a5", 0.2},
		{whole, -1, "", 0},
		{whole, 6, "u1 a1 a2 a4 r-c1 u2 a5 a6", 0.2},
		{whole, 7, "", 0},
		{short[:1], 4, "", 0},
		{open, 1, "", 0},
		{append(open[:3:3], at(1, done("c2"))), 1, "u1 a1 r-c1 r-c2", 0},
		{append(open[:3:3], reused), 1, "u1 a1 r-c1 r-c2", 0},
		{append(open[:3:3], state.Entry{Type: state.EntryTombstoned, Turn: 1, MessageIDs: []string{"a1", "r-c1"}}), 1, "u1", 0}, // rolled back
	} {
		h, err := state.HistoryThrough(c.log, c.turn)
		if (err != nil) != (c.want == "") || ids(h.Messages) != c.want {
			t.Errorf("through turn %d of %d entries: %q, %v; want %q", c.turn, len(c.log), ids(h.Messages), err, c.want)
			continue
		}
		got := 0.0
		if h.Facts.Confidence != nil {
			got = *h.Facts.Confidence
		}
		if got != c.confidence || err == nil && h.Turn != c.turn {
			t.Errorf("through turn %d of %d entries: confidence %v, turn %d; want %v", c.turn, len(c.log), got, h.Turn, c.confidence)
		}
	}
}
