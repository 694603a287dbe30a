package state_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A damaged entry decodes to nothing, and is not appended to the log before it.
func TestDamagedEntry(t *testing.T) {
	whole, err := state.EncodeEntry(&state.Entry{Type: state.EntryProgress, Turn: 3, Action: "reads"})
	if err != nil {
		t.Fatal(err)
	}
	damaged := string(whole[:len(whole)-1])
	if e, err := state.DecodeEntry(7, damaged); err == nil || !cmp.Equal(e, state.Entry{}) {
		t.Errorf("DecodeEntry = %+v, %v", e, err)
	}
	log, err := state.AppendEntry(nil, 6, string(whole))
	if err != nil {
		t.Fatal(err)
	}
	e, err := state.DecodeEntry(6, whole)
	if err != nil || len(log) != 1 || !cmp.Equal(log[0], e) || e.Action != "reads" {
		t.Errorf("AppendEntry = %+v, DecodeEntry = %+v, %v", log, e, err)
	}
	if after, err := state.AppendEntry(log, 7, damaged); err == nil || len(after) != 1 || !cmp.Equal(after[0], e) {
		t.Errorf("AppendEntry of a damaged entry = %+v, %v", after, err)
	}
}
