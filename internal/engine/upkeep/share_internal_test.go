package upkeep

import (
	"fmt"
	"testing"
)

// A worker has more than its share if its turns exceed the share of its slots by more than a quarter and 1/32 of its
// slots, at least one.
func TestShareOfTurns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		slots, turns int // of this worker
		others       []member
		over, alone  bool
	}{
		{slots: 64, turns: 64, alone: true},
		{slots: 64, turns: 3, others: []member{{slots: 64}}},              // 1 + 0 + 2
		{slots: 64, turns: 4, others: []member{{slots: 64}}, over: false}, // 2 + 0 + 2
		{slots: 64, turns: 7, others: []member{{slots: 64}}, over: true},  // 3 + 0 + 2
		{slots: 64, turns: 34, others: []member{{slots: 64, turns: 20}}},  // 27 + 6 + 2
		{slots: 64, turns: 40, others: []member{{slots: 64, turns: 20}}, over: true},
		{slots: 64, turns: 40, others: []member{{slots: 16, turns: 5}}}, // 36 + 9 + 2
		{slots: 8, turns: 1, others: []member{{slots: 8}, {slots: 8}}},
		{slots: 8, turns: 2, others: []member{{slots: 8}, {slots: 8}}, over: true},
		{slots: 8, turns: 8, others: []member{{slots: 8, turns: 8}, {slots: 8, turns: 8}}},
	} {
		m := &Members{self: Self{ID: "me", Slots: test.slots}, seen: map[string]member{"me": {slots: test.slots, turns: test.turns}}}
		for i, other := range test.others {
			m.seen[fmt.Sprint(i)] = other
		}
		m.compare()
		if m.OverShare() != test.over || m.Alone() != test.alone {
			t.Errorf("%d turns in %d slots beside %v: over its share %v, alone %v; want %v and %v", test.turns, test.slots, test.others, m.OverShare(), m.Alone(), test.over, test.alone)
		}
	}
}
