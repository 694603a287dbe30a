package protocol_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/protocol"
)

var (
	thorough = flag.Bool("thorough", false, "explore single faults and pairs of them, for minutes")
	all      = flag.Bool("all", false, "explore every single fault in each way of handing a run over, for a quarter of an hour")
)

// limit holds an exploration that does not end.
const limit = 1_000_000

// Quick ones leave out what takes more than a second.
var (
	quick = []protocol.Faults{{}, {Losses: 1}}
	whole = []protocol.Faults{{}, {Losses: 1}, {Aborts: 1}, {Remarks: 1}, {Crashes: 1}, {Doubles: 1}, {Pauses: 1}, {Silences: 1}}
	pairs = []protocol.Faults{{Losses: 2}, {Crashes: 1, Losses: 1}}
)

// I1 to I9: no order of steps and faults breaks an invariant, and from every state
// the run can still come to its end.
func TestProtocol(t *testing.T) {
	t.Parallel()
	for _, rules := range []protocol.Rules{{}, {Ahead: true}, {Keep: true}, {Ahead: true, Keep: true}} {
		chosen := quick
		switch {
		case underRace && rules != protocol.Rules{}:
			chosen = nil
		case rules.Keep:
			chosen = quick[:1]
		}
		switch {
		case *all:
			chosen = whole
		case *thorough && rules == protocol.Rules{}:
			chosen = slices.Concat(whole, pairs)
		case *thorough && rules == protocol.Rules{Keep: true}:
			chosen = []protocol.Faults{{}, {Losses: 1}, {Remarks: 1}, {Crashes: 1}, {Silences: 1}}
		case *thorough && rules == protocol.Rules{Ahead: true, Keep: true}:
			chosen = []protocol.Faults{{}, {Losses: 1}, {Aborts: 1}, {Doubles: 1}, {Pauses: 1}}
		}
		for _, faults := range chosen {
			t.Run(fmt.Sprintf("%+v ahead=%v keep=%v", faults, rules.Ahead, rules.Keep), func(t *testing.T) {
				t.Parallel()
				r, err := protocol.Explore(rules, faults, limit)
				if err != nil || r.Violation != nil {
					t.Fatalf("%v %v", r, err)
				}
				t.Log(r)
			})
		}
	}
}

// A protocol with a part left out breaks, and the exploration says how.
func TestMutations(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		rules  protocol.Rules
		faults protocol.Faults
	}{
		"no journal":                       {protocol.Rules{NoJournal: true}, protocol.Faults{Crashes: 1}},
		"no start marks":                   {protocol.Rules{NoStartMarks: true}, protocol.Faults{Crashes: 1}},
		"tokens that the store counts":     {protocol.Rules{CounterTokens: true}, protocol.Faults{Pauses: 1, Rollbacks: 1}},
		"no sweeper":                       {protocol.Rules{NoSweeper: true}, protocol.Faults{Crashes: 1}},
		"sweeper with the turn's own id":   {protocol.Rules{SweeperOwnID: true}, protocol.Faults{Losses: 1}},
		"no look at the inbox":             {protocol.Rules{NoInboxCheck: true}, protocol.Faults{Remarks: 1}},
		"ack before the work":              {protocol.Rules{AckFirst: true}, protocol.Faults{}},
		"publish before the announcement":  {protocol.Rules{PublishFirst: true}, protocol.Faults{Crashes: 1}},
		"fenced workers acknowledge":       {protocol.Rules{FencedAcks: true}, protocol.Faults{Pauses: 1}},
		"any message proves announcements": {protocol.Rules{AnyProof: true}, protocol.Faults{}},
	} {
		if underRace && m.faults.Rollbacks > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := protocol.Explore(m.rules, m.faults, limit)
			if err != nil || r.Violation == nil {
				t.Fatalf("it survives: %v %v", r, err)
			}
			t.Log(r)
		})
	}
}
