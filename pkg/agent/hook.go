package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/hook"
)

// CompiledHook is a hook with its checked settings.
type CompiledHook struct {
	Hook

	// Settings are those of the hook's kind.
	Settings any

	title string
	point hook.Point
}

// Title returns the name of the hook for people and for the model.
func (h *CompiledHook) Title() string { return h.title }

// Objects reports whether a failure of the hook counts as an objection.
func (h *CompiledHook) Objects() bool {
	if h.OnError == "" {
		return h.point == hook.Input || h.point == hook.PreTool
	}
	return h.OnError == "deny"
}

// Covers reports whether the hook applies to calls of a tool.
func (h *CompiledHook) Covers(tool string) bool {
	return len(h.Tools) == 0 || slices.Contains(h.Tools, tool)
}

// Hooks returns the hooks of one point, in the order of the definition.
func (a *Agent) Hooks(p hook.Point) []*CompiledHook { return a.hooks[p] }

// Gated reports whether the agent has a pre_tool hook for calls of a tool.
func (a *Agent) Gated(tool string) bool {
	return slices.ContainsFunc(a.hooks[hook.PreTool], func(h *CompiledHook) bool { return h.Covers(tool) })
}

// CheckTenant returns nil if a tenant may have the hooks of the agent. prefix is that of the deployment's subjects. The
// error joins all mistakes, each with its place in the definition.
func (a *Agent) CheckTenant(prefix, tenant string) error {
	var errs []error
	for _, p := range []hook.Point{hook.Input, hook.Stop, hook.StopFailure, hook.PreTool, hook.PostSampling} {
		for i, h := range a.hooks[p] {
			own, ok := h.Settings.(hook.Tenanted)
			if !ok {
				continue
			}
			err := own.CheckTenant(prefix, tenant)
			if m, ok := errors.AsType[*hook.Mistake](err); ok {
				errs = append(errs, fmt.Errorf("hooks.%s[%d].%s: %s", p, i, m.Key, m.Text))
			} else if err != nil {
				errs = append(errs, fmt.Errorf("hooks.%s[%d]: %w", p, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// MaxStopBlocks returns the maximum number of times that stop hooks may make a run continue.
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
	if h.MaxStopBlocks < 0 || h.MaxStopBlocks > MaxMaxStopBlocks {
		c.fault("hooks.max_stop_blocks", "%d is not between 0 and %d: write a number in that range", h.MaxStopBlocks, MaxMaxStopBlocks)
	}
	if a.Loop.Type == loopSingle && len(h.Stop)+len(h.PreTool) > 0 {
		c.fault("hooks", "single_call makes one model call without tools, so stop and pre_tool hooks never run: remove them, or use react")
	}
	for _, at := range []struct {
		point hook.Point
		list  []Hook
	}{
		{hook.Input, h.Input}, {hook.Stop, h.Stop}, {hook.StopFailure, h.StopFailure}, {hook.PreTool, h.PreTool}, {hook.PostSampling, h.PostSampling},
	} {
		for i, spec := range at.list {
			compiled := &CompiledHook{Hook: spec, point: at.point}
			c.hook(fmt.Sprintf("hooks.%s[%d]", at.point, i), a, compiled)
			a.hooks[at.point] = append(a.hooks[at.point], compiled)
		}
	}
}

// maxHookTimeout returns the maximum time limit of hooks of a point. A turn waits for hooks that object as for tools,
// and for the others at its end.
func maxHookTimeout(p hook.Point) time.Duration {
	switch p {
	case hook.Input, hook.PreTool, hook.Stop:
		return time.Hour
	default:
		return time.Minute
	}
}

func (c *checker) hook(place string, a *Agent, h *CompiledHook) {
	c.hookKind(place, h)
	if h.point == hook.PreTool && len(h.Tools) == 0 && len(a.hosted) > 0 {
		c.fault(place+".tools", "it is missing, so the hook would apply to all tools, and it cannot see %s, which the model's provider runs: list the tools to which the hook applies", a.hosted[0].Name)
	}
	for i, name := range h.Tools {
		if h.point != hook.PreTool {
			c.fault(place+".tools", "only pre_tool hooks see calls of tools: remove it, or move the hook to pre_tool")
			break
		}
		if slices.ContainsFunc(a.hosted, func(s Source) bool { return s.Name == name }) {
			c.fault(fmt.Sprintf("%s.tools[%d]", place, i), "%s is run by the model's provider, so no hook sees its calls: remove it, or use a tool of another kind", name)
			continue
		}
		if !a.mayHave(name) {
			c.fault(fmt.Sprintf("%s.tools[%d]", place, i), "the agent has no tool %q: name one of its tools", name)
		}
	}
	switch limit, timeout := maxHookTimeout(h.point), time.Duration(h.Timeout); {
	case timeout < 0:
		c.fault(place+".timeout", "%s is negative: write a duration such as 5s", timeout)
	case timeout > limit:
		c.fault(place+".timeout", "%s is too long: a hook at %s may take at most %s: set a shorter timeout", timeout, h.point, limit)
	}
	if !slices.Contains([]string{"", "allow", "deny"}, h.OnError) {
		c.fault(place+".on_error", "it is %q: write allow or deny", h.OnError)
	}
	if h.OnError != "" && !slices.Contains([]hook.Point{hook.Input, hook.PreTool, hook.Stop}, h.point) {
		c.fault(place+".on_error", "a %s hook can neither allow nor deny, and its failures are ignored: remove on_error", h.point)
	}
}

// hookKind decodes and checks the own keys of a hook.
func (c *checker) hookKind(place string, h *CompiledHook) {
	if !c.condition(place, len(h.Own)) {
		return
	}
	spec := c.known.Hooks[h.Kind]
	if spec == nil {
		c.fault(place+".kind", "it is %q: write one of %s", h.Kind, strings.Join(c.known.Hooks.Names(), ", "))
		return
	}
	before := c.count()
	h.Settings = spec.Settings()
	c.own(place, hookType, h.Kind, h.Own, h.Settings)
	if c.count() > before {
		return
	}
	var err error
	if h.title, err = spec.Check(h.point, h.Settings); err != nil {
		if m, ok := errors.AsType[*hook.Mistake](err); ok {
			c.fault(place+"."+m.Key, "%s", m.Text)
		} else {
			c.fault(place, "%v", err)
		}
	}
}
