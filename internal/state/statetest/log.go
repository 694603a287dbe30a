package statetest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testLog(t *testing.T, s *suite) {
	run := s.create(t)
	for v := int64(1); v <= 4; v++ {
		s.commit(t, s.mustClaim(t, run.ID, v), state.NextTurn, state.Entry{})
	}
	for _, tt := range []struct {
		after       int64
		limit       int
		first, many int64
	}{{0, 0, 1, 5}, {2, 0, 3, 3}, {1, 2, 2, 2}, {5, 0, 0, 0}, {99, 0, 0, 0},
		{math.MaxInt64, 0, 0, 0}, {math.MaxInt64, 1, 0, 0}, {math.MaxInt64, 1001, 0, 0}, {math.MaxInt64 - 1, 2, 0, 0},
		{math.MinInt64, 0, 1, 5}, {-1, 2, 1, 2}, {0, math.MaxInt32, 1, 5}} {
		log, err := s.Log(t.Context(), run.ID, tt.after, tt.limit)
		if err != nil || int64(len(log)) != tt.many || len(log) > 0 && log[0].Seq != tt.first {
			t.Errorf("Log(%d, %d) = %d entries, %v", tt.after, tt.limit, len(log), err)
		}
	}
	if _, err := s.Log(t.Context(), newRun(t).ID, 0, 0); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Log of a missing run = %v", err)
	}
}

// A page of a log ends at its limit, or with the entry that reaches its size in bytes.
func testLogPage(t *testing.T, s *suite) {
	run := s.create(t)
	const large = 64 << 10
	for v := int64(1); v <= 4; v++ {
		s.commit(t, s.mustClaim(t, run.ID, v), state.NextTurn, state.Entry{Messages: []state.Message{state.UserText(strings.Repeat("x", large))}})
	}
	for _, tt := range []struct {
		after        int64
		limit, bytes int
		first, many  int64
		more         bool
	}{{0, 0, 0, 1, 5, false}, {0, 0, 1, 1, 1, true}, {0, 2, 0, 1, 2, true}, {1, 0, large * 3 / 2, 2, 2, true}, {1, 1, large * 3 / 2, 2, 1, true},
		{3, 0, large * 3 / 2, 4, 2, false}, {4, 1, 1, 5, 1, false}, {4, 100, 100 * large, 5, 1, false}, {-1, 3, 0, 1, 3, true},
		{5, 0, 1, 0, 0, false}, {99, 1, 0, 0, 0, false}, {math.MaxInt64, 1, 1, 0, 0, false}, {math.MinInt64, math.MaxInt32, math.MaxInt32, 1, 5, false}} {
		page, err := s.LogPage(t.Context(), run.ID, tt.after, tt.limit, tt.bytes)
		log := page.Entries
		if err != nil || int64(len(log)) != tt.many || len(log) > 0 && log[0].Seq != tt.first || page.More != tt.more {
			t.Errorf("LogPage(%d, %d, %d) = %d entries, more %t, %v", tt.after, tt.limit, tt.bytes, len(log), page.More, err)
		}
	}
	if _, err := s.LogPage(t.Context(), newRun(t).ID, 0, 1, 1); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("LogPage of a missing run = %v", err)
	}
}
