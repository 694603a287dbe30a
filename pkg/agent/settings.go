package agent

import (
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Reflection has the settings of a reflect loop.
type Reflection struct {
	Enabled      bool
	Threshold    float64
	Interval     int
	TellGuidance bool
}

// Reflection returns the settings of the agent's reflect loop, defaults included.
func (a *Agent) Reflection() Reflection {
	r := Reflection{Enabled: true, Threshold: 0.85, Interval: max(1, a.Loop.ReflectInterval), TellGuidance: a.Loop.TellGuidance}
	if on := a.Loop.EnableReflection; on != nil {
		r.Enabled = *on
	}
	if at := a.Loop.ConfidenceThreshold; at != nil {
		r.Threshold = *at
	}
	return r
}

// ToolLoopThreshold returns the number of equal responses after which a run ends, or 0 for never.
func (a *Agent) ToolLoopThreshold() int {
	if n := a.Loop.ToolLoopThreshold; n > 0 || a.Loop.Type != loopReflect {
		return n
	}
	return 3
}

// MaxOutputRetries returns the maximum number of times that an answer that does not match the output schema is returned
// to the model.
func (a *Agent) MaxOutputRetries() int {
	switch {
	case a.Loop.Type == loopSingle:
		return 0
	case a.Definition.MaxOutputRetries == nil:
		return DefaultOutputRetries
	default:
		return *a.Definition.MaxOutputRetries
	}
}

// CheckOutput returns an error with the reason if the output of the agent's runs cannot have a schema.
func (a *Agent) CheckOutput() error {
	if a.Loop.Converse {
		return errors.New("an agent with loop.converse never ends with an output, since it waits for the next message: remove output_schema or loop.converse")
	}
	return nil
}

// MaxSteps returns the bound of the first phase of a two_phase loop.
func (a *Agent) MaxSteps() int { return orElse(a.Loop.MaxSteps, DefaultMaxSteps) }

// KeepGroups returns the number of latest messages that a compaction keeps, each with its tool results.
func (a *Agent) KeepGroups() int {
	if a.Compaction == nil {
		return 4
	}
	return orElse(a.Compaction.Keep, 4)
}

// CompactsAnew reports whether a run may compact again after a prompt that was too long, once it has made progress: see
// ReactiveProgress.
func (a *Agent) CompactsAnew() bool {
	return a.Compaction != nil && a.Compaction.Reactive != ReactiveOnce
}

// ModelAt returns model i of the agent's chain: 0 is its own model, 1 the first fallback. It returns nil after the
// last.
func (a *Agent) ModelAt(i int) *Model {
	switch {
	case i == 0:
		return &a.Model
	case i > 0 && i <= len(a.Model.Fallback):
		return &a.Model.Fallback[i-1]
	default:
		return nil
	}
}

// Delegates returns the tools that delegate to another agent, in the order of the definition.
func (a *Agent) Delegates() []*CompiledTool {
	var list []*CompiledTool
	for _, s := range a.specs {
		if t := a.tools[s.Name]; t.Delegates() {
			list = append(list, t)
		}
	}
	return list
}

// ToolNames returns the names of the tools that a model can call, in the order of the definition.
func (a *Agent) ToolNames() []string {
	names := make([]string, len(a.specs))
	for i, s := range a.specs {
		names[i] = s.Name
	}
	return names
}

// Delegates reports whether the tool delegates to another agent, of this deployment or of a remote one.
func (t *CompiledTool) Delegates() bool { return t.By == tool.ByChild || t.Remote }

// DepthLimit returns the maximum number of ancestors of a run that calls the tool.
func (t *CompiledTool) DepthLimit() int { return orElse(t.MaxDepth, DefaultMaxDepth) }

// TimeLimit returns the maximum duration of one call.
func (t *CompiledTool) TimeLimit() time.Duration {
	if t.Timeout == 0 {
		return DefaultToolTimeout
	}
	return time.Duration(t.Timeout)
}

// Reuses reports whether a repeated call gets the result of the first call.
func (t *CompiledTool) Reuses() bool { return t.Idempotent && (t.Reuse == nil || *t.Reuse) }
