package natsstore

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A leader with an older record of a run than the index is a reason to check the stream soon, not at the next interval.
func TestOlderRecordIsSuspect(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), testbed.NATS(t), Config{Prefix: "suspect"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // nothing reads the requests for a check any longer
		t.Fatal(err)
	}
	select {
	case <-s.suspected: // after an error of NATS
	default:
	}
	const id = state.RunID("run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	for _, had := range []uint64{6, 7, 8, 9} {
		s.logs[id] = cachedLog{}
		s.compare(id, had, version{seq: 7})
		if _, kept := s.logs[id]; kept != (had <= 7) {
			t.Errorf("the index had %d, the leader has 7: the log is kept: %v", had, kept)
		}
		if n := len(s.suspected); (n == 1) != (had > 7) {
			t.Errorf("the index had %d, the leader has 7: %d checks are requested", had, n)
		}
	}
}

// A check of a stream that has not changed since the last one reads no message: the server would load a block of the
// stream for it, and keep that in memory.
func TestUnchangedStreamIsNotRead(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s, err := Open(t.Context(), nc, Config{Prefix: "unchanged"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // this test checks instead
		t.Fatal(err)
	}
	gets, err := nc.SubscribeSync("$JS.API.STREAM.MSG.GET." + streamName("unchanged", "STATE"))
	if err != nil {
		t.Fatal(err)
	}
	seq, err := s.send(t.Context(), s.runSubject("run_01ARZ3NDEKTSV4RRFFQ69G5FAV"), []byte("x"), 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.stream.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	s.last = mark{seq, m.Time}
	// The test has read a message itself, and PutDocument reads the previous version.
	for i, step := range []struct {
		before func() error
		reads  int
		back   bool
	}{
		{nil, 2, false}, {nil, 2, false},
		{func() error { return s.PutDocument(t.Context(), "kind", "name", []byte("{}")) }, 4, false}, {nil, 4, false},
		{func() error { s.last.at = s.last.at.Add(1); return nil }, 5, true}, {nil, 6, true},
	} {
		if step.before != nil {
			if err := step.before(); err != nil {
				t.Fatal(err)
			}
		}
		back, err := s.wentBack(t.Context())
		if err != nil || back != step.back {
			t.Errorf("check %d: the stream went back: %v, %v", i, back, err)
		}
		if n, _, err := gets.Pending(); err != nil || n != step.reads {
			t.Errorf("check %d: %d messages were read, want %d; %v", i, n, step.reads, err)
		}
	}
}
