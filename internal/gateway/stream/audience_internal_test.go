package stream

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Readers get live events of their own run and of known types only. Committed events come from the store.
func TestLiveEvents(t *testing.T) {
	t.Parallel()
	const run = state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")
	for text, want := range map[string]bool{
		`{"type": "model.delta", "run_id": "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", "turn": 3}`:           true,
		`{"type": "model.delta", "run_id": "run_01JD3X9K3W8Q4V5N6M7P8R9S0V", "turn": 3}`:           false,
		`{"type": "model.delta", "turn": 3}`:                                                       false,
		`{"type": "model.delta", "run_id": "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", "turn": 3, "seq": 1}`: false,
		`{"type": "run.completed", "run_id": "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", "turn": 3}`:         false,
		`{`: false,
	} {
		if h, ok := liveHead(run, []byte(text)); ok != want || ok && (h.Turn != 3 || h.Type != state.LiveModelDelta) {
			t.Errorf("%s: %+v, %t", text, h, ok)
		}
	}
}

// A queue holds a number of bytes of live events at once, not in total, and drops none of the notices that a log has
// grown.
func TestNoticesAreBounded(t *testing.T) {
	t.Parallel()
	q := notices{wake: make(chan struct{}, 1)}
	live := bus.Notice{Live: make([]byte, noticeBytes/2)}
	for round := range 3 {
		for range 4 {
			q.add(live)
		}
		q.add(bus.Notice{From: 5, To: 6})
		q.add(bus.Notice{From: 2, To: 4})
		var got []string
		for len(q.queue) > 0 {
			n, err := q.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(len(n.Live) > 0, n.From, n.To))
		}
		if diff := cmp.Diff([]string{"true 0 0", "true 0 0", "false 2 6"}, got); diff != "" {
			t.Errorf("round %d:\n%s", round, diff)
		}
	}
}
