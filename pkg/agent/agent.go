package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Agent is one version of a definition, checked and compiled. It is immutable
// and safe for concurrent use.
type Agent struct {
	Definition

	Version int

	tools map[string]*CompiledTool
	specs []model.ToolSpec
}

var (
	namePattern     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	toolNamePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

// Names of the loops and providers that this build knows.
const (
	loopReact  = "react"
	loopSingle = "single_call"
)

var providers = []string{"scripted", "openai", "anthropic"}

// Compile checks a definition and returns it compiled. The error joins every
// mistake, each with its place and what to do. loops are the names of the loops
// that are registered.
func Compile(def Definition, version int, loops []string) (*Agent, error) {
	a := &Agent{Definition: def, Version: version, tools: map[string]*CompiledTool{}}
	if a.Loop.Type == "" {
		a.Loop.Type = loopReact
	}
	c := &checker{}
	if !namePattern.MatchString(def.Name) {
		c.fault("name", "%q must match %s", def.Name, namePattern)
	}
	c.model("model", def.Model)
	c.loop(a, loops)
	c.hooks(def.Hooks)
	c.limits(def.Limits)
	for i, t := range def.Tools {
		c.tool(a, fmt.Sprintf("tools[%d]", i), t)
	}
	if len(def.OutputSchema) > 0 {
		if a.Loop.Type != loopSingle {
			c.fault("output_schema", "structured output needs the loop single_call, this agent uses %s", a.Loop.Type)
		}
		if _, err := compileSchema(def.OutputSchema); err != nil {
			c.fault("output_schema", "%v", err)
		}
	}
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	return a, nil
}

// Tool returns the agent's tool of that name, or nil.
func (a *Agent) Tool(name string) *CompiledTool { return a.tools[name] }

// ToolSpecs returns the tools as a model sees them, in the order of the
// definition. The caller must not change them.
func (a *Agent) ToolSpecs() []model.ToolSpec { return a.specs }

// Tighten returns the limits of a run that was submitted at createdAt and asks
// for more: the smaller of each pair, and max_turns in any case.
func (a *Agent) Tighten(more state.Limits, createdAt state.Time) state.Limits {
	l := state.Limits{
		MaxTurns:     smaller(orElse(a.Loop.MaxTurns, DefaultMaxTurns), more.MaxTurns),
		OutputTokens: smaller(a.Limits.OutputTokens, more.OutputTokens),
		TotalTokens:  smaller(a.Limits.TotalTokens, more.TotalTokens),
		CostUSD:      smaller(a.Limits.CostUSD, more.CostUSD),
		WaitMS:       smaller(time.Duration(a.Limits.Wait).Milliseconds(), more.WaitMS),
		WarnAt:       orElse(more.WarnAt, a.Limits.WarnAt),
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

// smaller returns the smaller of two limits, of which 0 is none.
func smaller[T int | int64 | state.MicroUSD](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func orElse[T int | float64](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// checker collects the mistakes of a definition.
type checker struct{ faults []error }

func (c *checker) fault(place, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...)))
}

func (c *checker) model(place string, m Model) {
	if !slices.Contains(providers, m.Provider) {
		c.fault(place+".provider", "%q is not one of %s", m.Provider, strings.Join(providers, ", "))
	}
	if m.Provider != "scripted" {
		if m.Name == "" {
			c.fault(place+".name", "the model's name is missing")
		}
		if len(m.Responses) > 0 || m.ResponsesFile != "" {
			c.fault(place+".responses", "only the provider scripted has responses")
		}
	}
	if m.ResponsesFile != "" {
		c.fault(place+".responses_file", "a file is read by the command line only: send its content as responses")
	}
	if m.APIKey != "" && !strings.HasPrefix(m.APIKey, "secret://") {
		c.fault(place+".api_key", "write a reference such as secret://OPENAI_API_KEY, never the key itself")
	}
	if m.MaxOutputTokens < 0 {
		c.fault(place+".max_output_tokens", "%d is negative", m.MaxOutputTokens)
	}
	if m.Timeout < 0 {
		c.fault(place+".timeout", "%s is negative", time.Duration(m.Timeout))
	}
	if len(m.Fallback) > 0 {
		c.fault(place+".fallback", "not available in this build yet")
	}
	for i, r := range m.Responses {
		c.scripted(fmt.Sprintf("%s.responses[%d]", place, i), r)
	}
}

func (c *checker) scripted(place string, r model.Scripted) {
	errorsKnown := []model.Class{"", model.RateLimited, model.Overloaded, model.PromptTooLong, model.InvalidRequest, model.Auth, model.Transport}
	if !slices.Contains(errorsKnown, r.Error) {
		c.fault(place+".error", "%q is not one of rate_limited, overloaded, prompt_too_long, invalid_request, auth, transport", r.Error)
	}
	if !slices.Contains([]model.Stop{"", model.StopMaxOutputTokens, model.StopRefusal}, r.Stop) {
		c.fault(place+".stop", "%q is not one of max_output_tokens, refusal", r.Stop)
	}
	if r.Delay < 0 || r.RetryAfter < 0 {
		c.fault(place, "a duration is negative")
	}
	for i, call := range r.ToolCalls {
		if call.Name == "" {
			c.fault(fmt.Sprintf("%s.tool_calls[%d].name", place, i), "it is missing")
		}
	}
}

func (c *checker) loop(a *Agent, loops []string) {
	l := a.Loop
	switch {
	case l.Type == loopReact || l.Type == loopSingle || slices.Contains(loops, l.Type):
	case l.Type == "reflect" || l.Type == "two_phase":
		c.fault("loop.type", "%s is not available in this build yet", l.Type)
	default:
		c.fault("loop.type", "%q is not one of react, single_call, or a loop registered in Go", l.Type)
	}
	if l.MaxTurns < 0 {
		c.fault("loop.max_turns", "%d is below 1", l.MaxTurns)
	}
	if l.MaxTurns > MaxMaxTurns {
		c.fault("loop.max_turns", "%d is above the ceiling of %d", l.MaxTurns, MaxMaxTurns)
	}
	if l.Converse && l.Type == loopSingle {
		c.fault("loop.converse", "single_call makes one call and never waits for a person")
	}
	if l.Type == loopSingle && len(a.Definition.Tools) > 0 {
		c.fault("tools", "agent %q uses the loop single_call but has %d tool(s): single_call makes exactly one model call and runs none; use react", a.Name, len(a.Definition.Tools))
	}
}

func (c *checker) hooks(h *Hooks) {
	if h != nil && len(h.Stop)+len(h.StopFailure)+len(h.PreTool)+len(h.PostSampling) > 0 {
		c.fault("hooks", "not available in this build yet")
	}
}

func (c *checker) limits(l Limits) {
	if l.OutputTokens < 0 || l.TotalTokens < 0 || l.CostUSD < 0 || l.Deadline < 0 || l.Wait < 0 {
		c.fault("limits", "a limit is negative")
	}
	if l.WarnAt < 0 || l.WarnAt > 1 {
		c.fault("limits.warn_at", "%v is not between 0 and 1", l.WarnAt)
	}
}

func (c *checker) tool(a *Agent, place string, t Tool) {
	if !toolNamePattern.MatchString(t.Name) {
		c.fault(place+".name", "%q must match %s", t.Name, toolNamePattern)
	}
	if a.tools[t.Name] != nil {
		c.fault(place+".name", "%q is used twice", t.Name)
	}
	if t.Kind == "" {
		t.Kind = KindGo
	}
	switch t.Kind {
	case KindGo, KindNATS:
	case KindHuman:
		if len(t.Schema) == 0 {
			t.Schema = json.RawMessage(`{"type":"object","properties":{"question":{"type":"string"}},"required":["question"]}`)
		}
	case KindClient:
		if len(t.Schema) == 0 {
			c.fault(place+".schema", "a client tool needs a JSON Schema of its arguments")
		}
	case "http", "mcp", "agent":
		c.fault(place+".kind", "%s is not available in this build yet", t.Kind)
	default:
		c.fault(place+".kind", "%q is not one of go, nats, client, human", t.Kind)
	}
	if !slices.Contains([]string{"", "parallel", "serial"}, t.Concurrency) {
		c.fault(place+".concurrency", "%q is not one of parallel, serial", t.Concurrency)
	}
	if t.Timeout < 0 {
		c.fault(place+".timeout", "%s is negative", time.Duration(t.Timeout))
	}
	if len(t.Schema) == 0 {
		t.Schema = json.RawMessage(`{"type":"object"}`)
	}
	compiled := &CompiledTool{Tool: t}
	var err error
	if compiled.schema, err = compileSchema(t.Schema); err != nil {
		c.fault(place+".schema", "%v", err)
	}
	if compiled.rule, err = compileRule(t.Approval); err != nil {
		c.fault(place+".approval", "%v", err)
	}
	a.tools[t.Name] = compiled
	a.specs = append(a.specs, model.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.Schema})
}

func compileSchema(raw json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	// Nothing is loaded from anywhere: a reference must stay inside the schema.
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: false})
	if err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	return r, nil
}

// ValidateOutput returns text as a JSON value if schema admits it.
func ValidateOutput(schema json.RawMessage, text string) (json.RawMessage, error) {
	r, err := compileSchema(schema)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("the output is not JSON: %w", err)
	}
	if err := r.Validate(v); err != nil {
		return nil, fmt.Errorf("the output does not match the schema: %w", err)
	}
	return json.Marshal(v)
}

// CheckSchema returns an error if raw is no JSON Schema.
func CheckSchema(raw json.RawMessage) error {
	_, err := compileSchema(raw)
	return err
}
