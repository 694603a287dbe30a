package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	secretPattern = regexp.MustCompile(`^secret://[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$`)
)

// Names of loops that have rules of their own.
const (
	loopReact    = "react"
	loopSingle   = "single_call"
	loopReflect  = "reflect"
	loopTwoPhase = "two_phase"
)

// secretScheme begins the reference to a secret.
const secretScheme = "secret://"

// maxFaults is the number of mistakes that an error names, and maxFault the maximum length of
// each.
const (
	maxFaults = 50
	maxFault  = 800
)

// checker collects the mistakes of a definition. It has many methods because each checks one part of a
// definition.
type checker struct {
	known  Known
	faults []error // each a Fault
	more   int     // mistakes beyond maxFaults

	values     int // number of values of the schemas
	patterns   int // instructions that regular expressions of further schemas may have
	conditions int // approval rules and hooks
	compiling  int // bytes of approval rules and hooks
}

// Bounds of the parts of a definition that must be compiled.
const (
	maxTools      = 1000
	maxConditions = 500
	maxCompiling  = 32 << 10 // bytes of approval rules and of the own keys of hooks; each byte takes 20 µs
)

// condition counts one more approval rule or hook with its bytes, and reports whether it may be compiled.
func (c *checker) condition(place string, bytes int) bool {
	if c.conditions > maxConditions || c.compiling > maxCompiling {
		return false // it has been said
	}
	c.conditions++
	c.compiling += bytes
	switch {
	case c.conditions > maxConditions:
		c.fault(place, "there are more than %d approval rules and hooks in total: remove some", maxConditions)
	case c.compiling > maxCompiling:
		c.fault(place, "approval rules and hooks have more than %d bytes in total: shorten or remove some", maxCompiling)
	default:
		return true
	}
	return false
}

// room counts the values of one more schema, and reports whether it may be compiled.
func (c *checker) room(place string, schema json.RawMessage) bool {
	before := c.values
	c.values += jsonschema.Values(schema)
	if before <= jsonschema.MaxValues && c.values > jsonschema.MaxValues {
		c.fault(place, "the schemas of the definition have more than %d JSON values in total: shorten or remove schemas", jsonschema.MaxValues)
	}
	return c.values <= jsonschema.MaxValues
}

func (c *checker) fault(place, format string, args ...any) {
	if len(c.faults) >= maxFaults {
		c.more++
		return
	}
	for i, arg := range args {
		if text, ok := arg.(string); ok && len(text) > maxFault {
			args[i] = text[:keys.MaxClip-60] + "…" + text[len(text)-60:] // what is wrong may stand at its end
		}
	}
	text := fmt.Sprintf(format, args...)
	if len(text) > maxFault {
		text = text[:maxFault/2] + "…" + text[len(text)-maxFault/2:]
	}
	c.faults = append(c.faults, &Fault{At: strings.ToValidUTF8(place, ""), Text: strings.ToValidUTF8(text, "")})
}

// count returns the number of mistakes.
func (c *checker) count() int { return len(c.faults) + c.more }

// err joins the mistakes. It returns nil without mistakes.
func (c *checker) err() error {
	if c.more > 0 {
		return errors.Join(append(slices.Clip(c.faults), fmt.Errorf("and %d more mistakes, which are not listed: correct the listed ones first", c.more))...)
	}
	return errors.Join(c.faults...)
}

func (c *checker) loop(a *Agent, loops []string) {
	l := a.Loop
	if types := slices.Concat([]string{loopReact, loopSingle, loopReflect, loopTwoPhase}, loops); !slices.Contains(types, l.Type) {
		c.fault("loop.type", "it is %q: write react, single_call, reflect, two_phase, or a loop registered in Go%s", l.Type, meant(l.Type, types))
	}
	c.loopSettings(a)
	if l.MaxTurns < 0 {
		c.fault("loop.max_turns", "%d is below 1: write 1 or more", l.MaxTurns)
	}
	if l.MaxTurns > MaxMaxTurns {
		c.fault("loop.max_turns", "%d is above the maximum of %d: write a smaller number", l.MaxTurns, MaxMaxTurns)
	}
	switch {
	case !slices.Contains([]OnLimit{"", OnLimitEnd, OnLimitAnswer}, l.OnLimit):
		c.fault("loop.on_limit", "it is %q: write end or answer", l.OnLimit)
	case l.OnLimit == OnLimitAnswer && l.Type == loopSingle:
		c.fault("loop.on_limit", "single_call makes exactly one model call, which is its answer: remove it, or use another loop")
	}
	if l.Converse && l.Type != loopReact {
		c.fault("loop.converse", "only the loop react can wait for a person's next message, this agent uses %s: remove it, or set loop.type: react", l.Type)
	}
	// Without tools there is nothing that could pause, either.
	if l.Type == loopSingle && len(a.Tools) > 0 {
		c.fault("tools", "agent %q uses the loop single_call but has %d tool(s): single_call makes exactly one model call, and cannot run tools or wait: remove the tools, or use react", a.Name, len(a.Tools))
	}
}

// loopSettings checks the settings that only some loops have.
func (c *checker) loopSettings(a *Agent) {
	l := a.Loop
	for _, s := range []struct {
		name  string
		value int
	}{
		{"tool_loop_threshold", l.ToolLoopThreshold}, {"reflect_interval", l.ReflectInterval}, {"max_steps", l.MaxSteps},
	} {
		if s.value < 0 {
			c.fault("loop."+s.name, "%d is negative: write 0 or more", s.value)
		}
	}
	if l.ToolLoopThreshold == 1 {
		c.fault("loop.tool_loop_threshold", "1 would end every run that calls a tool: write 2 or more")
	}
	if at := l.ConfidenceThreshold; at != nil && !(*at >= 0 && *at <= 1) {
		c.fault("loop.confidence_threshold", "%v is not between 0 and 1: write a number in that range, such as 0.8", *at)
	}
	reflects := l.ConfidenceThreshold != nil || l.EnableReflection != nil || l.ReflectInterval != 0 || l.TellGuidance || len(l.TerminalTools) > 0
	builtin := slices.Contains([]string{loopReact, loopSingle, loopTwoPhase}, l.Type)
	if reflects && builtin {
		c.fault("loop", "confidence_threshold, enable_reflection, reflect_interval, tell_guidance and terminal_tools are for the loop reflect, this agent uses %s: remove them, or set loop.type: reflect", l.Type)
	}
	if l.MaxSteps != 0 && (builtin && l.Type != loopTwoPhase || l.Type == loopReflect) {
		c.fault("loop.max_steps", "it is for the loop two_phase, this agent uses %s: remove it, or set loop.type: two_phase", l.Type)
	}
	for i, name := range l.TerminalTools {
		if !a.mayHave(name) {
			c.fault(fmt.Sprintf("loop.terminal_tools[%d]", i), "the agent has no tool %q: name one of its tools", name)
		}
	}
	if k := a.Compaction; k != nil {
		if !(k.At >= 0 && k.At <= 1) {
			c.fault("compaction.at", "%v is not between 0 and 1: write a number in that range, such as 0.8", k.At)
		}
		if k.At > 0 && k.Window <= 0 {
			c.fault("compaction.window", "it is %d: give the size of the model's context window in tokens, since compaction.at is a share of it", k.Window)
		}
		if k.Keep < 0 {
			c.fault("compaction.keep", "%d is negative: write 0 or more", k.Keep)
		}
		if r := k.Reactive; r != "" && r != ReactiveOnce && r != ReactiveProgress {
			c.fault("compaction.reactive", "it is %q: write once or progress", r)
		}
		if l.Type == loopSingle {
			c.fault("compaction", "single_call has no history to compact: remove it")
		}
	}
}

func (c *checker) retention(r Retention) {
	if r.Events != 0 {
		c.fault("retention.events", "an agent cannot set it, since all agents share the event feed: remove it, and ask the operator to set events in TURNPIKE_RETENTION (in Go, Options.Retention)")
	}
}

func (c *checker) limits(l Limits) {
	for _, limit := range []struct {
		name     string
		negative bool
		value    any
	}{
		{"max_turns", l.MaxTurns < 0, l.MaxTurns},
		{"output_tokens", l.OutputTokens < 0, l.OutputTokens},
		{"total_tokens", l.TotalTokens < 0, l.TotalTokens},
		{"cost_usd", l.CostUSD < 0, float64(l.CostUSD) / 1e6},
		{"deadline", l.Deadline < 0, time.Duration(l.Deadline)},
		{"wait", l.Wait < 0, time.Duration(l.Wait)},
		{"runs", l.Runs < 0, l.Runs},
	} {
		if limit.negative {
			c.fault("limits."+limit.name, "%v is negative: write 0 or more", limit.value)
		}
	}
	if l.MaxTurns > MaxMaxTurns {
		c.fault("limits.max_turns", "%d is above the maximum of %d: write a smaller number", l.MaxTurns, MaxMaxTurns)
	}
	if b := l.TokenBudget; b != nil {
		if err := b.Check(); err != nil {
			c.fault("limits.token_budget", "%v", err)
		}
	}
	if !(l.WarnAt >= 0 && l.WarnAt <= 1) { // not a number is refused, too
		c.fault("limits.warn_at", "%v is not between 0 and 1: write a number in that range, such as 0.8", l.WarnAt)
	}
}

func (c *checker) tools(a *Agent) {
	if n := len(a.Definition.Tools); n > maxTools {
		c.fault("tools", "there are %d, at most %d are allowed: remove some", n, maxTools)
		return
	}
	a.Definition.Tools = slices.Clone(a.Definition.Tools) // the caller's keep their names
	for i, t := range a.Definition.Tools {
		place := fmt.Sprintf("tools[%d]", i)
		compiled := c.tool(place, t)
		t.Name = compiled.Name
		a.Definition.Tools[i].Name = t.Name
		if p := compiled.ProbeTool; p != nil && p.Source {
			a.probes = append(a.probes, Source{CompiledTool: p, Index: i})
		}
		if compiled.By == tool.ByProvider {
			if a.tools[t.Name] != nil || slices.ContainsFunc(a.hosted, func(s Source) bool { return s.Name == t.Name }) {
				c.fault(place+".name", "%q is used twice: rename one of the tools", t.Name)
			}
			a.hosted = append(a.hosted, Source{CompiledTool: compiled, Index: i})
			continue
		}
		if compiled.Source {
			a.sources = append(a.sources, Source{CompiledTool: compiled, Index: i})
			continue
		}
		if a.tools[t.Name] != nil || slices.ContainsFunc(a.hosted, func(s Source) bool { return s.Name == t.Name }) {
			c.fault(place+".name", "%q is used twice: rename one of the tools", t.Name)
		}
		if compiled.By == tool.ByHistory && (a.Compaction == nil || a.Compaction.At == 0) {
			c.fault(place+".kind", "a tool of kind %s reads what compaction has removed, and this agent does not compact its history ahead of time: set compaction.at and compaction.window, or remove the tool", t.Kind)
		}
		a.tools[t.Name] = compiled
		a.specs = append(a.specs, model.ToolSpec{Name: t.Name, Description: cmp.Or(t.Description, compiled.Purpose), Schema: compiled.Schema})
	}
}

// kind decodes and checks the own keys of a tool or a probe, and sets its Settings and Needs.
func (c *checker) kind(place string, as reflect.Type, t *CompiledTool) {
	spec := c.known.Tools[t.Kind]
	if spec == nil {
		c.fault(place+".kind", "this process does not know tools of kind %q: use one of %s, or register your own kind with both gateways, which check definitions, and workers, which run them, as in docs/how-to/add-a-tool-kind.md%s", t.Kind, strings.Join(c.known.Tools.Names(), ", "), meant(t.Kind, c.known.Tools.Names()))
		return
	}
	before := c.count()
	t.Settings = spec.Settings()
	c.own(place, as, t.Kind, t.Own, t.Settings)
	if c.count() > before {
		return
	}
	needs, err := spec.Check(t.Tool, t.Settings)
	t.Needs = needs
	for _, err := range apart(err) {
		if m, ok := errors.AsType[*tool.Mistake](err); ok {
			c.fault(place+"."+m.Key, "%s", m.Text)
		} else {
			c.fault(place, "%v", err)
		}
	}
}

// apart returns the errors that err joins.
func apart(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // what is joined, not what is wrapped
		return joined.Unwrap()
	}
	return []error{err}
}

func (c *checker) tool(place string, t Tool) *CompiledTool {
	if t.Kind == "" {
		t.Kind = tool.DefaultKind
	}
	t.Schema = given(t.Schema)
	compiled := &CompiledTool{Tool: t}
	c.kind(place, toolType, compiled)
	if t.Name == "" {
		t.Name = compiled.DefaultName
		compiled.Name = t.Name
	}
	if compiled.Stateful {
		compiled.Idempotent, compiled.Reuse, compiled.Concurrency = true, new(bool), "serial"
	}
	if err := tool.CheckName(t.Name); err != nil && !(t.Name == "" && compiled.Source) {
		c.fault(place+".name", "%v", err)
	}
	if t.Name == model.FinalAnswer {
		c.fault(place+".name", "%s is reserved for answers by output_schema: write another name", t.Name)
	}
	if t.Name == AskUser && compiled.By != tool.ByPerson {
		c.fault(place+".kind", "the name %s is reserved for tools of kind human, which ask a person: use that kind, or another name", AskUser)
	}
	if t.Async && !compiled.Later {
		c.fault(place+".async", "a tool of kind %s cannot answer later: remove async, or use another kind", t.Kind)
	}
	if t.Reuse != nil && *t.Reuse && !t.Idempotent {
		c.fault(place+".reuse", "only the results of an idempotent tool can be reused: also set idempotent: true, or remove reuse")
	}
	if t.MaxCalls < 0 || t.MaxResult < 0 {
		c.fault(place, "max_calls is %d and max_result %d: write 0 or more for both", t.MaxCalls, t.MaxResult)
	}
	if most := c.known.MaxResult; most > 0 && t.MaxResult > most {
		c.fault(place+".max_result", "%d bytes exceed the %d that this deployment allows: write a smaller number, or ask the operator to raise TURNPIKE_MAX_RESULT (in Go, Options.MaxResult)", t.MaxResult, most)
	}
	if risks := []tool.Risk{tool.Reads, tool.Writes, tool.Pays, tool.Sends}; t.Risk != "" && !slices.Contains(risks, t.Risk) {
		c.fault(place+".risk", "it is %q: write reads, writes, pays or sends", t.Risk)
	}
	if !slices.Contains([]string{"", "parallel", "serial"}, t.Concurrency) {
		c.fault(place+".concurrency", "it is %q: write parallel or serial", t.Concurrency)
	}
	if t.Timeout < 0 {
		c.fault(place+".timeout", "%s is negative: write a duration such as 30s", time.Duration(t.Timeout))
	}
	if compiled.By == tool.ByProvider {
		return compiled // it has neither arguments nor calls
	}
	c.schema(place, compiled)
	c.probe(place, compiled)
	if t.Approval != "" && t.Approval != tool.ApprovalAlways && t.Approval != tool.ApprovalNever && !c.condition(place+".approval", len(t.Approval)) {
		return compiled
	}
	var err error
	if compiled.rule, err = compileRule(t.Approval); err != nil {
		c.fault(place+".approval", "%v", err)
	}
	return compiled
}

// probe compiles the probe of a tool, if it has one.
func (c *checker) probe(place string, t *CompiledTool) {
	if t.Probe == nil {
		return
	}
	inner := place + ".probe"
	switch {
	case t.By != tool.ByWorker:
		c.fault(inner, "no worker makes the calls of a tool of kind %s, so a probe has nothing to look up after a crash: remove it", t.Kind)
	case t.Idempotent:
		c.fault(inner, "after a crash the worker repeats a call of an idempotent tool without asking the probe: remove probe or idempotent")
	}
	p := &CompiledTool{Tool: t.Probe.Definition(t.Name)}
	c.kind(inner, probeType, p)
	if t.Probe.Name != "" {
		if err := tool.CheckName(t.Probe.Name); err != nil {
			c.fault(inner+".name", "%v", err)
		}
	}
	if p.By != tool.ByWorker {
		c.fault(inner+".kind", "the worker calls a probe itself and cannot call tools of kind %s: use another kind for the probe", p.Kind)
	}
	t.ProbeTool = p
}

// schema compiles the schema of a tool's arguments: that of the definition, else that of the kind, else any object.
func (c *checker) schema(place string, t *CompiledTool) {
	if len(t.Schema) == 0 {
		t.Schema = t.Arguments
	}
	if len(t.Schema) == 0 {
		t.Schema = json.RawMessage(anyObject)
	}
	t.open = string(t.Schema) == anyObject
	if !c.room(place+".schema", t.Schema) {
		return
	}
	var err error
	if t.schema, err = jsonschema.CompileArguments(t.Schema, &c.patterns); err != nil && t.Listed != nil {
		// The source that listed the tool checks the arguments itself, by a schema that this
		// package need not support.
		t.open = true
		t.schema, err = jsonschema.CompileArguments(json.RawMessage(anyObject), &c.patterns)
	}
	if err != nil {
		c.fault(place+".schema", "%v", err)
	}
}
