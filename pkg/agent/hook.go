package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/turnpike-dev/turnpike/pkg/hook"
)

// Kinds of hook, beside KindGo and KindNATS.
const hookCEL = "cel"

// CompiledHook is a hook with its expression compiled.
type CompiledHook struct {
	Hook

	// Local answers in the process; nil for the kinds go and nats.
	Local hook.Hook

	point hook.Point
}

// Title names the hook for people and for the model.
func (h *CompiledHook) Title() string {
	switch h.Kind {
	case KindGo:
		return h.Name
	case KindNATS:
		return h.Subject
	default:
		return fmt.Sprintf("%q", h.When)
	}
}

// Objects reports whether a failure of the hook is an objection.
func (h *CompiledHook) Objects() bool {
	if h.OnError == "" {
		return h.point == hook.PreTool
	}
	return h.OnError == "deny"
}

// Covers reports whether the hook is asked about calls of a tool.
func (h *CompiledHook) Covers(tool string) bool {
	return len(h.Tools) == 0 || slices.Contains(h.Tools, tool)
}

// Hooks returns the hooks of one point, in the order of the definition.
func (a *Agent) Hooks(p hook.Point) []*CompiledHook { return a.hooks[p] }

// Gated reports whether hooks are asked before calls of a tool.
func (a *Agent) Gated(tool string) bool {
	return slices.ContainsFunc(a.hooks[hook.PreTool], func(h *CompiledHook) bool { return h.Covers(tool) })
}

// MaxStopBlocks returns how often stop hooks may send a run on.
func (a *Agent) MaxStopBlocks() int {
	if a.Definition.Hooks == nil {
		return DefaultStopBlocks
	}
	return orElse(a.Definition.Hooks.MaxStopBlocks, DefaultStopBlocks)
}

func (c *checker) hooks(a *Agent) {
	h := a.Definition.Hooks
	a.hooks = map[hook.Point][]*CompiledHook{}
	if h == nil {
		return
	}
	if h.MaxStopBlocks < 0 {
		c.fault("hooks.max_stop_blocks", "%d is negative", h.MaxStopBlocks)
	}
	if a.Loop.Type == loopSingle && len(h.Stop)+len(h.PreTool) > 0 {
		c.fault("hooks", "single_call has no tools and no second try: it takes post_sampling and stop_failure only")
	}
	for _, at := range []struct {
		point hook.Point
		list  []Hook
	}{
		{hook.Stop, h.Stop}, {hook.StopFailure, h.StopFailure}, {hook.PreTool, h.PreTool}, {hook.PostSampling, h.PostSampling},
	} {
		for i, spec := range at.list {
			compiled := &CompiledHook{Hook: spec, point: at.point}
			c.hook(fmt.Sprintf("hooks.%s[%d]", at.point, i), a, compiled)
			a.hooks[at.point] = append(a.hooks[at.point], compiled)
		}
	}
}

func (c *checker) hook(place string, a *Agent, h *CompiledHook) {
	switch h.Kind {
	case KindGo:
		if h.Name == "" {
			c.fault(place+".name", "the name under which the worker has the hook is missing")
		}
	case KindNATS:
		if why := badSubject(h.Subject); why != "" {
			c.fault(place+".subject", "%q %s", h.Subject, why)
		}
	case hookCEL:
		if err := h.compile(); err != nil {
			c.fault(place, "%v", err)
		}
	default:
		c.fault(place+".kind", "%q is not one of go, nats, cel", h.Kind)
	}
	for _, f := range []struct{ name, value, kind string }{
		{"name", h.Name, KindGo}, {"subject", h.Subject, KindNATS}, {"when", h.When, hookCEL}, {"then", h.Then, hookCEL}, {"message", h.Message, hookCEL},
	} {
		if f.value != "" && h.Kind != f.kind {
			c.fault(place+"."+f.name, "it is for hooks of kind %s, this one is of kind %s", f.kind, h.Kind)
		}
	}
	for i, name := range h.Tools {
		if h.point != hook.PreTool {
			c.fault(place+".tools", "only hooks of pre_tool are asked about calls")
			break
		}
		if !a.mayHave(name) {
			c.fault(fmt.Sprintf("%s.tools[%d]", place, i), "the agent has no tool %q", name)
		}
	}
	if h.Timeout < 0 {
		c.fault(place+".timeout", "%s is negative", time.Duration(h.Timeout))
	}
	if !slices.Contains([]string{"", "allow", "deny"}, h.OnError) {
		c.fault(place+".on_error", "%q is not one of allow, deny", h.OnError)
	}
	if h.OnError != "" && h.point != hook.PreTool && h.point != hook.Stop {
		c.fault(place+".on_error", "a hook of %s has nothing to object to: its failures are passed over", h.point)
	}
}

// maxSubject bounds a subject, in bytes. A NATS server drops the connection of
// whoever names one beyond its max_control_line.
const maxSubject = 1024

// badSubject says why a subject cannot be that of a service.
func badSubject(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxSubject:
		return fmt.Sprintf("is longer than %d bytes", maxSubject)
	case strings.ContainsAny(s, "*> \t\r\n"):
		return "has a wildcard or a space"
	case strings.HasPrefix(s, "$") || strings.HasPrefix(s, "_INBOX."):
		return "is reserved by NATS"
	case slices.Contains(strings.Split(s, "."), ""):
		return "has an empty token"
	default:
		return ""
	}
}

// compile makes the hook of an expression.
func (h *CompiledHook) compile() error {
	vars := []cel.EnvOption{cel.Variable("turn", cel.IntType), cel.Variable("metadata", cel.MapType(cel.StringType, cel.StringType))}
	var fits []string
	switch h.point {
	case hook.PreTool:
		fits = []string{"approve", "deny"}
		vars = append(vars, cel.Variable("tool", cel.StringType), cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)))
	case hook.Stop:
		fits = []string{"block", "prevent"}
		vars = append(vars, cel.Variable("output", cel.StringType))
	default:
		return fmt.Errorf("an expression decides before a tool or at a stop, %s only watches", h.point)
	}
	if !slices.Contains(fits, h.Then) {
		return fmt.Errorf("then: %q is not one of %s, which is what %s can do", h.Then, strings.Join(fits, ", "), h.point)
	}
	if h.When == "" {
		return errors.New("when: the expression is missing")
	}
	holds, err := expression(h.When, vars...)
	if err != nil {
		return fmt.Errorf("when: %w", err)
	}
	h.Local = hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		metadata := r.Metadata
		if metadata == nil {
			metadata = map[string]string{}
		}
		values := map[string]any{"turn": r.Turn, "metadata": metadata, "output": r.Output}
		if r.Call != nil {
			var args map[string]any
			if err := json.Unmarshal(r.Call.Arguments, &args); err != nil {
				return hook.Answer{}, err
			}
			values["tool"], values["args"] = r.Call.Tool, args
		}
		yes, err := holds(values)
		if err != nil || !yes {
			return hook.Answer{}, err
		}
		return h.consequence(), nil
	})
	return nil
}

// consequence is what an expression that holds means.
func (h *CompiledHook) consequence() hook.Answer {
	text := h.Message
	if text == "" {
		text = "a policy of this agent says so: " + h.When
	}
	switch h.Then {
	case "approve":
		return hook.Answer{Approval: true}
	case "deny":
		return hook.Answer{Deny: &text}
	case "block":
		return hook.Answer{Block: &text}
	default:
		return hook.Answer{Prevent: &text}
	}
}
