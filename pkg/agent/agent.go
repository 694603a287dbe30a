package agent

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Agent is one version of a definition, checked and compiled. It is safe for concurrent use, and nobody may change it.
// It has many methods because each answers one question that the engine asks about a definition.
type Agent struct {
	Definition

	Version int

	tools   map[string]*CompiledTool
	specs   []model.ToolSpec
	hosted  []Source // tools that providers run
	sources []Source
	probes  []Source
	hooks   map[hook.Point][]*CompiledHook

	variables *variables // nil if it declares none
}

// Source is a tool of a definition that expands to any number of others.
type Source struct {
	*CompiledTool

	Index int // in Definition.Tools
}

// Compile checks a definition and returns it compiled. The error joins the mistakes, each a *Fault with its place and
// the remedy: at most 50, and the number of the others. Compile keeps parts of def, so the caller must not change def
// afterwards. The agent lacks the tools of sources that have not been expanded.
func (known Known) Compile(def Definition, version int) (*Agent, error) {
	a := &Agent{Definition: def, Version: version, tools: map[string]*CompiledTool{}}
	if a.Loop.Type == "" {
		a.Loop.Type = loopReact
	}
	a.OutputSchema = given(def.OutputSchema)

	c := &checker{known: known, patterns: jsonschema.MaxAllPatterns}
	if !namePattern.MatchString(def.Name) {
		c.fault("name", "%q is not a valid name: use up to 64 lower-case letters, digits, _ and -, and begin with a letter or digit", def.Name)
	}
	c.model("model", def.Model)
	c.tools(a)
	c.loop(a, known.Loops)
	c.toolChoices(a)
	c.hostedTools(a)
	c.hooks(a)
	c.limits(def.Limits)
	c.retention(def.Retention)
	c.variables(a)
	if def.Webhook != nil {
		if err := def.Webhook.Check(); err != nil {
			c.fault("webhook", "%v", err)
		}
	}
	if len(a.OutputSchema) > 0 {
		if err := a.CheckOutput(); err != nil {
			c.fault("output_schema", "%v", err)
		}
		if _, err := jsonschema.Compile(a.OutputSchema, &c.patterns); err != nil {
			c.fault("output_schema", "%v", err)
		}
	}
	if n := def.MaxOutputRetries; n != nil {
		switch {
		case *n < 0 || *n > MaxOutputRetries:
			c.fault("max_output_retries", "%d is not between 0 and %d: write a number in that range", *n, MaxOutputRetries)
		case *n > 0 && a.Loop.Type == loopSingle:
			c.fault("max_output_retries", "single_call makes exactly one model call: write 0, or use react")
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return a, nil
}

// Tool returns the agent's tool of that name, or nil.
func (a *Agent) Tool(name string) *CompiledTool { return a.tools[name] }

// ToolSpecs returns the tools that a model can call, in the order of the definition. The caller must not change them.
func (a *Agent) ToolSpecs() []model.ToolSpec { return slices.Clip(a.specs) }

// ProviderTools returns the tools that the models' providers run, in the order of the definition. Tool and ToolSpecs
// omit them.
func (a *Agent) ProviderTools() []model.ProviderTool {
	var list []model.ProviderTool
	for _, h := range a.hosted {
		list = append(list, h.hosted())
	}
	return list
}

// CheckCostLimit returns an error if a run of the agent cannot have a cost limit, because the uses of a provider's tool
// have no bound.
func (a *Agent) CheckCostLimit() error {
	for _, h := range a.hosted {
		if h.MaxUses == 0 {
			return fmt.Errorf("the run has a cost limit, and the provider charges each use of %s: set %s.max_uses in the definition of agent %s, or remove limits.cost_usd", h.Name, place("tools", h.Index), a.Name)
		}
	}
	return nil
}

// Sources returns the sources that have not been expanded.
func (a *Agent) Sources() []Source { return a.sources }

// Pins reports whether a version of the agent pins tools that a server lists: whether it has sources, or probes that
// are sources.
func (a *Agent) Pins() bool { return len(a.sources)+len(a.probes) > 0 }

// ProbeSources returns the probes that are sources and have not been expanded. Index is that of the tool with the
// probe.
func (a *Agent) ProbeSources() []Source { return a.probes }

// All yields the tools of the agent, including sources, probes and tools that providers run, each once, with its place
// in the definition.
func (a *Agent) All() iter.Seq2[string, *CompiledTool] {
	return func(yield func(string, *CompiledTool) bool) {
		with := func(i int, t *CompiledTool) bool {
			at := place("tools", i)
			return yield(at, t) && (t.ProbeTool == nil || yield(at+".probe", t.ProbeTool))
		}
		for i, d := range a.Definition.Tools {
			if t := a.tools[d.Name]; t != nil && !with(i, t) {
				return
			}
		}
		for _, s := range slices.Concat(a.hosted, a.sources) {
			if !with(s.Index, s.CompiledTool) {
				return
			}
		}
	}
}

func place(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// Expand returns the definition with the sources at the indexes of listed replaced by their tools. The result is for
// Compile and never stored.
func (d Definition) Expand(listed map[int][]Tool) Definition {
	var tools []Tool
	for i, t := range d.Tools {
		if of, ok := listed[i]; ok {
			tools = append(tools, of...)
			continue
		}
		tools = append(tools, t)
	}
	d.Tools = tools
	return d
}

// mayHave reports whether the agent has, or may have, a tool of that name: the tools of a source are unknown until it
// is expanded.
func (a *Agent) mayHave(name string) bool {
	return len(a.sources) > 0 || a.tools[name] != nil
}

// Tighten returns the limits of a run submitted at createdAt with the limits more: the smaller of each pair, where 0
// means unlimited. loop.max_turns takes the place of limits.max_turns, and WarnAt is that of more if it has one. Every
// run gets a limit of turns (DefaultMaxTurns if neither sets it) and a threshold for warnings.
func (a *Agent) Tighten(more state.Limits, createdAt state.Time) state.Limits {
	l := state.Limits{
		MaxTurns:     orElse(smaller(orElse(a.Loop.MaxTurns, a.Limits.MaxTurns), more.MaxTurns), DefaultMaxTurns),
		OutputTokens: smaller(a.Limits.OutputTokens, more.OutputTokens),
		TotalTokens:  smaller(a.Limits.TotalTokens, more.TotalTokens),
		CostUSD:      smaller(a.Limits.CostUSD, more.CostUSD),
		WaitMS:       smaller(time.Duration(a.Limits.Wait).Milliseconds(), more.WaitMS),
		Runs:         smaller(a.Limits.Runs, more.Runs),
		WarnAt:       orElse(more.WarnAt, orElse(a.Limits.WarnAt, budget.DefaultWarnAt)),
		DeadlineAt:   more.DeadlineAt,
	}
	if d := time.Duration(a.Limits.Deadline); d > 0 {
		own := state.At(createdAt.Add(d))
		if l.DeadlineAt.IsZero() || own.Before(l.DeadlineAt.Time) {
			l.DeadlineAt = own
		}
	}
	return l
}

// smaller returns the smaller of two limits; 0 or less means unlimited.
func smaller[T int | int64 | state.MicroUSD](a, b T) T {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

func orElse[T int | float64](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// given returns raw, or nil if it is empty or null.
func given(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
