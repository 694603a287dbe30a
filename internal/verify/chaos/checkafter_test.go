package chaos

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The checker finds each planted violation that only some kinds of runs can show.
func TestCheckOfKindsFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	// gone is a run that ended at 5 s, and that its retention has deleted by the time of a check.
	gone := func(e *Evidence, looked time.Duration) {
		w := &e.Runs[0]
		w.Kind, w.Found, w.Ended, w.Looked, e.Published = "kept", false, at(5), at(5).Add(looked), nil
	}
	// purged is a run that ended at 5 s, was found, and has no events on the bus by the time that they are read.
	purged := func(e *Evidence, read time.Duration) {
		w := &e.Runs[0]
		w.Kind, w.Looked, e.Published, e.PublishedAt = "kept", at(5).Add(keptFor/2), nil, at(5).Add(read)
	}
	watched := func(e *Evidence, hooks ...Effect) {
		e.Runs[0].Kind = "watched"
		e.Effects = append(hooks, e.Effects...)
	}
	asked := Effect{At: at(1), Run: "run_1", Call: "call_0_0", Hook: "pre_tool", Nonce: nonce(1)}
	probed := func(e *Evidence) {
		e.Runs[0].Kind = "probed"
		e.Effects[0].Tool = "sure"
		e.Runs[0].Log[2].Name, e.Runs[0].Log[2].CallID = "sure", "call_0_0"
	}
	recovered := func(e *Evidence, lease, took time.Duration) {
		e.Lease, e.Recoveries = lease, slices.Repeat([]Recovery{{"worker killed", took}}, fewest)
	}
	// returned is a run without events on the bus, whose parent was deleted at 20 s and exists.
	returned := func(e *Evidence, failover int) {
		above := Witness{Submitted: Submitted{ID: "run_0", Kind: "tree", Deleted: acked(20), Below: []string{"run_1"}}}
		e.Runs, e.Published = append(e.Runs, above), nil
		e.Rollbacks = []Rollback{{From: at(failover), To: at(failover + 1)}}
	}
	tests := map[string]struct {
		plant func(*Evidence)
		want  string // comma-separated invariants
	}{
		"its time is over":        {func(e *Evidence) { gone(e, 2*keptFor) }, ""},
		"nobody saw its end":      {func(e *Evidence) { gone(e, 2*keptFor); e.Runs[0].Ended = time.Time{} }, ""},
		"it went before its time": {func(e *Evidence) { gone(e, keptFor/2) }, "I1"},
		"it went before any end":  {func(e *Evidence) { gone(e, keptFor/2); e.Runs[0].Ended = time.Time{} }, "I1"},
		"it went with a failover": {func(e *Evidence) { gone(e, keptFor/2); e.Rollbacks = []Rollback{{From: at(-1), To: at(10)}} }, ""},
		"its events stay":         {func(e *Evidence) { p := e.Published; gone(e, 2*keptFor); e.Published = p }, "I9"},
		"its dead letter stays":   {func(e *Evidence) { gone(e, 2*keptFor); e.Letters = []string{"run_1"} }, "I2"},
		"its key stays": {func(e *Evidence) {
			gone(e, 2*keptFor)
			e.Remnants = map[string][]string{"run_1": {"an idempotency key"}}
		}, "I6"},
		"a tool acts after its time":         {func(e *Evidence) { gone(e, 2*keptFor); e.Effects[0].At = at(5).Add(keptFor + 2*slack) }, "I7"},
		"it is there a while longer":         {func(e *Evidence) { e.Runs[0].Kind, e.Runs[0].Looked = "kept", at(5).Add(keptFor+overdue/2) }, ""},
		"its events go before they are read": {func(e *Evidence) { purged(e, keptFor) }, ""},
		"its events go before its time":      {func(e *Evidence) { purged(e, keptFor/2) }, "I9"},
		"it is there for ever":               {func(e *Evidence) { e.Runs[0].Kind, e.Runs[0].Looked = "kept", at(5).Add(keptFor+2*overdue) }, "I6"},
		"a log of a deleted run": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Deleted, e.Published = false, acked(8), nil
			e.Remnants = map[string][]string{"run_1": {"the key log"}}
		}, "I6"},

		"a failover undoes its deletion": {func(e *Evidence) { returned(e, 20) }, ""},
		"a failover long before that":    {func(e *Evidence) { returned(e, 13) }, "I9"},
		"a deletion of other runs is undone": {func(e *Evidence) {
			returned(e, 20)
			e.Runs[1].Below = []string{"run_2"}
		}, "I9"},

		"a hook before a tool":          {func(e *Evidence) { watched(e, asked) }, ""},
		"no hook before a tool":         {func(e *Evidence) { watched(e) }, "I3"},
		"the hook came after the tool":  {func(e *Evidence) { watched(e); e.Effects = append(e.Effects, asked) }, "I3"},
		"the hook of another call":      {func(e *Evidence) { other := asked; other.Call = "call_0_1"; watched(e, other) }, "I3"},
		"only the hook after responses": {func(e *Evidence) { after := asked; after.Hook = "post_sampling"; watched(e, after) }, "I3"},
		"a failure hook of a run that ended well": {func(e *Evidence) {
			e.Effects = append(e.Effects, Effect{Run: "run_1", Hook: "stop_failure"})
		}, "I3"},
		"a failure hook of one that failed": {func(e *Evidence) {
			e.Runs[0].Kind, e.Runs[0].Run.Status, e.Runs[0].Run.Transition.Reason = "failing", string(state.Failed), state.EndModelError
			e.Runs[0].Log[6].Reason = state.EndModelError
			e.Effects = append([]Effect{asked}, append(e.Effects, Effect{Run: "run_1", Hook: "stop_failure"})...)
		}, ""},

		"a call that its probe knows": {probed, ""},
		"it was made under two keys": {func(e *Evidence) {
			probed(e)
			again := e.Effects[0]
			again.Key = "x again"
			e.Effects = append(e.Effects, again)
		}, "I4"},
		"the model does not read what it came to": {func(e *Evidence) {
			probed(e)
			e.Runs[0].Log[2].Message = &api.Message{Role: state.RoleTool, Synthetic: true, Parts: []state.Part{{Type: state.PartToolResult, CallID: "call_0_0", Content: "the outcome is unknown"}}}
		}, "I4"},

		"a tool of an MCP server twice": {func(e *Evidence) {
			e.Effects[0].Tool, e.Effects[0].Run = mcpName, ""
			e.Effects = append(e.Effects, e.Effects[0])
		}, "I4"},
		"a tool of an MCP server for no response": {func(e *Evidence) {
			e.Effects = append(e.Effects, Effect{Run: "run_1", Tool: mcpName, Key: "y", Nonce: nonce(9), Result: "other", At: at(2)})
		}, "I3"},

		"the death of workers is noticed":            {func(e *Evidence) { recovered(e, longLease, 2*time.Second) }, ""},
		"nobody notices it before the lease is over": {func(e *Evidence) { recovered(e, longLease, longLease) }, "I2"},
		"short leases may run out":                   {func(e *Evidence) { recovered(e, lease, lease*2) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			tt.plant(&e)
			found := Check(e)
			if tt.want != "" && count(found, tt.want) == 0 {
				t.Errorf("%s was not found; found: %v", tt.want, found)
			}
			for _, v := range found {
				if v.Invariant != tt.want {
					t.Errorf("found %s, too: %s", v.Invariant, v.Detail)
				}
			}
		})
	}
}

// One effect is written under a key, or none if the key is refused first.
func TestLedgerKeepsOneEffectUnderAKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	var ledgers [2]*Ledger // of two processes
	for i := range ledgers {
		l, err := OpenLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ledgers[i] = l
	}
	for i, step := range []struct{ key, result, want string }{
		{"a", "first", "first"}, {"a", "second", "first"}, {"a", "", "first"}, {"b", "", ""}, {"b", "late", ""},
	} {
		was, err := ledgers[i%2].Once(Effect{Key: step.key, Result: step.result})
		if err != nil || was.Result != step.want {
			t.Errorf("step %d: under key %s is %q, %v; want %q", i+1, step.key, was.Result, err, step.want)
		}
	}
	all, err := ReadLedger(path)
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Result, "first") {
		t.Errorf("the ledger has %+v, %v; want the first effect", all, err)
	}
}
