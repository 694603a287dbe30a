package turnpiketest_test

import (
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

// EachCrash makes a worker die at each time that the first run passes a point, the last included, and at no other.
func TestEachCrashTestsEachTime(t *testing.T) {
	t.Parallel()
	var tests []string
	calls := map[string]int{} // of the tool, by test
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		name := path.Base(t.Name())
		tests = append(tests, name)
		var b bank
		pay := b.tool(turnpike.Serial())
		k := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
		both := tt.Calls("pay", Refund{"7", 500})
		both.ToolCalls = append(both.ToolCalls, tt.Calls("pay", Refund{"8", 300}).ToolCalls...)
		k.WaitIdle(k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Orders 7 and 8", both, tt.Says("Done.")))
		calls[name] = b.calls
	})
	want := []string{
		"no_crash", "claimed_1", "claimed_2", "model_answered_1", "model_journaled_1", "call_started_1", "call_started_2", "call_returned_1",
		"result_journaled_1", "turn_decided_1", "turn_decided_2", "turn_committed_1", "turn_committed_2", "turn_published_1",
	}
	if diff := cmp.Diff(want, tests); diff != "" {
		t.Errorf("tests:\n%s", diff)
	}
	for name, want := range map[string]int{"no_crash": 2, "call_started_1": 1, "call_started_2": 1} {
		if calls[name] != want {
			t.Errorf("%s: %d calls, want %d", name, calls[name], want)
		}
	}
}

// misuses are tests that fail, each with its message.
var misuses = map[string]struct {
	message string
	test    func(t *testing.T)
}{
	"no such point": {`CrashAt("nowhere", 1): use a Point and a number from 1`, func(t *testing.T) {
		tt.New(t, turnpike.Options{}).CrashAt("nowhere", 1)
	}},
	"no such time": {`CrashAt("claimed", 0): use a Point and a number from 1`, func(t *testing.T) {
		tt.New(t, turnpike.Options{}).CrashAt(tt.Claimed, 0)
	}},
	"opened twice": {"open was called twice", func(t *testing.T) {
		tt.EachCrash(t, func(_ *testing.T, open tt.Open) {
			open(turnpike.Options{})
			open(turnpike.Options{})
		})
	}},
	"never opened": {"open was not called", func(t *testing.T) {
		tt.EachCrash(t, func(*testing.T, tt.Open) {})
	}},
	"fails without a crash": {"as it should", func(t *testing.T) {
		tt.EachCrash(t, func(t *testing.T, open tt.Open) {
			k := open(turnpike.Options{})
			k.WaitIdle(k.Start(turnpike.Agent{Name: "clerk"}, "Hello", tt.Says("Hi.")))
			t.Error("as it should")
		})
	}},
}

const misuse = "TURNPIKE_TEST_MISUSE"

// A test that uses a Kit in a wrong way fails with the reason, and EachCrash makes no more tests after that.
func TestMisuse(t *testing.T) {
	t.Parallel()
	if name := os.Getenv(misuse); name != "" {
		misuses[name].test(t)
		return
	}
	for name, m := range misuses {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMisuse$")
		c.Env = append(c.Environ(), misuse+"="+name)
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), m.message) || strings.Contains(string(out), "claimed_1") || strings.Contains(string(out), "panic") {
			t.Errorf("%s: %v, want a failure with %q:\n%s", name, err, m.message, out)
		}
	}
}
