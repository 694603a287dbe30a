package turnpike

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// goKind is the kind of the tools in Go. A definition without a schema or a description gets those of the code.
type goKind struct {
	tool.Plain

	tools map[string]Tool
	calls map[string]tool.Func // by name; includes those of probes
}

// describedSpec is the spec for workers. It accepts any rules, because stored versions keep theirs.
var describedSpec = tool.SpecOf(func(tool.Definition, *struct{}) (tool.Needs, error) {
	return tool.Needs{Later: true, Described: true}, nil
})

// newGoKind returns the kind of the given tools. The error joins all their mistakes.
func newGoKind(tools []Tool) (*goKind, error) {
	k := &goKind{tools: map[string]Tool{}, calls: map[string]tool.Func{}}
	var errs []error
	add := func(name string, call tool.Func) {
		if _, twice := k.calls[name]; twice {
			errs = append(errs, fmt.Errorf("two tools have the name %q (a probe counts as a tool, and its name ends with _probe): rename one of the tools", name))
		}
		k.calls[name] = call
	}
	for i, t := range tools {
		for _, err := range t.check() {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSpace(fmt.Sprintf("Tools[%d] %s", i, t.def.Name)), err))
		}
		k.tools[t.def.Name] = t
		add(t.def.Name, t.call)
		if t.probe != nil {
			add(t.def.Probe.Name, t.probe.call)
		}
	}
	return k, errors.Join(errs...)
}

// check returns the mistakes of a tool.
func (t Tool) check() []error {
	if t.in == nil {
		return []error{errors.New("the tool is a zero value: create it with NewTool")}
	}
	errs := append([]error(nil), t.faults...)
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.call == nil {
		refuse("the function of the tool is nil: pass a function to NewTool")
	}
	if t.retry > 0 && !t.def.Idempotent {
		refuse("the tool has the option Retries without the option Idempotent: add Idempotent, or remove Retries")
	}
	if p := t.probe; p != nil {
		if p.call == nil {
			refuse("the function of the option Probe is nil: pass a function, or remove Probe")
		}
		if p.in != t.in || p.out != t.out {
			refuse("the function of the option Probe has arguments of type %s and results of type %s, but the tool's function has %s and %s: use the same types in both", p.in, p.out, t.in, t.out)
		}
	}
	// The checks of an agent's definition find the rest.
	known := agent.Known{Tools: tool.Specs{tool.DefaultKind: describedSpec}, Providers: model.BuiltinSpecs()}
	_, err := known.Compile(Agent{Name: "tools", Model: Model{Provider: "scripted", Responses: []model.Scripted{{Text: "x"}}}, Tools: Use(t)}, 1)
	if err != nil && len(t.faults) == 0 {
		errs = append(errs, err)
	}
	return errs
}

// Spec implements tool.Kind.
func (k *goKind) Spec() tool.Spec { return describedSpec }

// Describe implements tool.Kind.
func (k *goKind) Describe(_ context.Context, tools []tool.Bound) map[string]tool.Description {
	all := map[string]tool.Description{}
	for _, b := range tools {
		if t, ok := k.tools[b.Name]; ok {
			all[b.Name] = tool.Description{Text: t.def.Description, Schema: t.def.Schema}
		}
	}
	return all
}

// Call implements tool.Kind. The worker has validated the arguments against the schema in b. If a definition has one of
// its own, it may admit more than the tool.
func (k *goKind) Call(ctx context.Context, b tool.Bound, c tool.Call) (tool.Result, error) {
	if t, ok := k.tools[c.Name]; ok && t.schema != nil && !bytes.Equal(b.Schema, t.def.Schema) {
		if err := t.validate(c); err != nil {
			return tool.Error(err.Error()), nil
		}
	}
	call := k.calls[c.Name]
	if call == nil {
		return tool.Error(fmt.Sprintf("Tool %q is not registered with this worker. Continue without it; the operator must register it, or upgrade the worker", c.Name)), nil
	}
	return call(ctx, c)
}

// strictSpec returns the spec for gateways: a definition must not loosen the rules of a tool in Go.
func (k *goKind) strictSpec() tool.Spec {
	return tool.SpecOf(func(d tool.Definition, _ *struct{}) (tool.Needs, error) {
		needs := tool.Needs{Later: true, Described: true}
		t, ok := k.tools[d.Name]
		if !ok {
			return needs, nil
		}
		return needs, t.loosened(d)
	})
}

// loosened returns an error if a definition is less strict than the tool in Go.
func (t Tool) loosened(d tool.Definition) error {
	own := t.def
	var errs []error
	refuse := func(key, format string, args ...any) { errs = append(errs, tool.Invalid(key, format, args...)) }
	if own.Approval != "" && own.Approval != tool.ApprovalNever && d.Approval != own.Approval && d.Approval != tool.ApprovalAlways {
		refuse("approval", "%q is looser than the rule %q that the tool has in Go: write that rule, or always", d.Approval, own.Approval)
	}
	if d.Idempotent && !own.Idempotent {
		refuse("idempotent", "the tool is not idempotent in Go: remove it")
	}
	if d.Async != own.Async {
		refuse("async", "%t differs from the tool in Go, which has %t: write %t", d.Async, own.Async, own.Async)
	}
	if own.Risk != "" && d.Risk != own.Risk {
		refuse("risk", "%q differs from the tool in Go, which has %q: write that", d.Risk, own.Risk)
	}
	if own.MaxCalls > 0 && (d.MaxCalls == 0 || d.MaxCalls > own.MaxCalls) {
		refuse("max_calls", "%d is above the limit of the tool in Go, %d: write that or less", d.MaxCalls, own.MaxCalls)
	}
	if limit := time.Duration(own.Timeout); limit > 0 && cmp.Or(time.Duration(d.Timeout), agent.DefaultToolTimeout) > limit {
		refuse("timeout", "%s is above the timeout of the tool in Go, %s: write that or less", cmp.Or(time.Duration(d.Timeout), agent.DefaultToolTimeout), limit)
	}
	if own.Concurrency == "serial" && d.Concurrency != own.Concurrency {
		refuse("concurrency", "%q is looser than the tool in Go, which has serial: write serial", d.Concurrency)
	}
	if own.Probe != nil && d.Probe == nil {
		refuse("probe", "it is missing, but the tool in Go has a probe: write probe: {name: %s}", own.Probe.Name)
	}
	return errors.Join(errs...)
}
