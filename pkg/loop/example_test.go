package loop_test

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A condition added to a built-in loop makes a loop with its own name.
func ExampleRules_With() {
	rules := loop.ReflectRules().With("enough sources", func(s state.State, from loop.Node) (loop.Node, bool) {
		return loop.Terminate, from == loop.Execute && s.Usage.ToolCalls >= 10
	})
	loops := loop.Builtin()
	loops["careful"] = func(a *agent.Agent) loop.Loop { return loop.New(a, rules) }

	fmt.Println(loops.Names())
	// Output: [careful react reflect single_call two_phase]
}
