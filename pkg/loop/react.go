package loop

import "github.com/turnpike-dev/turnpike/pkg/agent"

// React is the loop of native tool calls: call the model, run the tools that it requests, and repeat until it
// requests none (D2).
func React(a *agent.Agent) Loop { return New(a, Rules{}) }
