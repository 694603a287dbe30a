package record_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// full returns a record with a value in each field.
func full() record.Record {
	at := state.At(time.UnixMilli(1_700_000_000_123))
	return record.Record{
		Header: state.State{ID: "run_1", Agent: "a", Tenant: "acme", Format: state.Format, Version: 3},
		Status: state.Running, Version: 3, Token: "t", EagerToken: "e", Owner: "w", LeaseEnd: at, Attempts: 2, Paused: 1, StartedAt: at,
		Evicted: []string{"t1", "t2"}, EvictedAt: at, Abort: &state.Abort{Reason: "enough"}, AbortReach: 1, Interrupted: true,
		Awaits: []string{"approval:c"}, Inbox: []state.Signal{{ID: "s"}}, InboxBytes: 7, Seen: []string{"s"}, SeenMarks: map[string]string{"s": "f"},
		Started: []string{"c"}, Starts: []state.Start{{CallID: "c"}}, Results: []state.Entry{{Type: state.EntryTool, Attempt: 1, CallID: "c"}},
		CommitID: "k", Committed: state.Committed{Status: state.Waiting, Version: 2}, LogLen: 9, Base: 7, Finalized: 5, CheckpointAt: 4, CheckpointNext: 6,
		Due: at, WakeAt: at, Sweeps: 4, Key: "n", Indexed: []string{"n", "m"}, Sealed: "x", QueuedAt: at,
	}
}

var equal = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b state.Time) bool { return a.Equal(b.Time) })}

// A decoded record has every field of the encoded one.
func TestEncode(t *testing.T) {
	t.Parallel()
	want := full()
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the record has no %s: set it in full", v.Type().Field(i).Name)
		}
	}
	for _, eager := range []string{"another", want.Token, ""} {
		want.EagerToken = eager
		b, err := record.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := record.Decode(string(b))
		if diff := cmp.Diff(want, got, equal); err != nil || diff != "" {
			t.Errorf("eager token %q: %v\n%s", eager, err, diff)
		}
	}
}

// A record that decodes can be encoded, and then decodes to the same record.
func FuzzDecode(f *testing.F) {
	b, err := record.Encode(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := record.Decode(string(b))
		if err != nil {
			return
		}
		r.Header = *r.Header.Formatted(state.Format) // Encode never writes 0
		again, err := record.Encode(r)
		if err != nil {
			t.Fatalf("Encode of what %q decodes to: %v", b, err)
		}
		same, err := record.Decode(string(again))
		if diff := cmp.Diff(r, same, equal); err != nil || diff != "" {
			t.Fatalf("Decode(%q): %v\n%s", again, err, diff)
		}
	})
}
