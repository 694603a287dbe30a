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
