package loop

import "github.com/turnpike-dev/turnpike/pkg/agent"

// React is the loop of native tool calls: ask the model, run the tools that it
// asks for, and go around until it asks for none (D2).
func React(a *agent.Agent) Loop { return New(a, Rules{}) }
