package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/cel"

	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// mapping converts deliveries to a hook or a trigger to runs and signals. It has the settings with compiled
// expressions.
type mapping struct {
	source sourceKind
	run    *api.HookRun
	signal *api.HookSignal

	filter   rule.Condition // nil: accept every delivery
	input    rule.Value     // nil: the event is the input
	vars     rule.Object    // nil: no variables
	key      rule.Text      // nil: the id of the delivery is the key
	metadata map[string]rule.Text
	to       rule.Text // the run of the signal; nil: the run with the key
	text     rule.Text // the text of the signal; nil: no signal
}

// sourceKind is the kind of a receiver of deliveries. It is also the key of a run's metadata with the receiver's name.
type sourceKind string

const (
	sourceHook    sourceKind = "hook"
	sourceTrigger sourceKind = "trigger"
)

// compileMapping checks and compiles the settings of a hook or a trigger. An empty filter accepts every delivery.
func compileMapping(source sourceKind, filter string, run *api.HookRun, signal *api.HookSignal) (*mapping, error) {
	if err := checkMapping(source, run, signal); err != nil {
		return nil, err
	}
	m := &mapping{source: source, run: run, signal: signal, metadata: map[string]rule.Text{}}
	vars := []cel.EnvOption{
		cel.Variable("event", cel.DynType), cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("delivery", cel.StringType), cel.Variable("digest", cel.StringType),
	}
	if source == sourceTrigger {
		vars = append(vars, cel.Variable("subject", cel.StringType))
	}
	var err error
	text := func(place, expression string) (t rule.Text) {
		if err == nil && expression != "" {
			if t, err = rule.CompileText(expression, vars...); err != nil {
				err = fmt.Errorf("%s: %w", place, err)
			}
		}
		return t
	}
	if filter != "" {
		if m.filter, err = rule.Compile(filter, vars...); err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
	}
	if r := run; r != nil {
		if r.Input != "" {
			if m.input, err = rule.CompileValue(r.Input, vars...); err != nil {
				return nil, fmt.Errorf("run.input: %w", err)
			}
		}
		if r.Variables != "" {
			if m.vars, err = rule.CompileObject(r.Variables, vars...); err != nil {
				return nil, fmt.Errorf("run.variables: %w", err)
			}
		}
		m.key = text("run.key", r.Key)
		for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
			if r.Metadata[name] == "" {
				return nil, fmt.Errorf("run.metadata.%.40s: the expression is empty: write one, or remove the key", name)
			}
			m.metadata[name] = text("run.metadata."+name, r.Metadata[name])
		}
	}
	if s := signal; s != nil {
		m.to = text("signal.run", s.Run)
		m.text = text("signal.message", s.Message)
		if s.Answer != "" {
			m.text = text("signal.answer", s.Answer)
		}
	}
	return m, err
}

// checkMapping returns an error for settings that are invalid whatever their expressions are.
func checkMapping(source sourceKind, run *api.HookRun, signal *api.HookSignal) error {
	if run == nil && signal == nil {
		return errors.New("run and signal are both missing: give at least one of them")
	}
	if run != nil {
		if err := checkHookRun(source, *run); err != nil {
			return err
		}
	}
	if signal != nil {
		return checkHookSignal(*signal, run)
	}
	return nil
}

// evaluationOf returns the variables of the expressions of a mapping, which share a limit of cost. Expressions of a hook
// may not use subject.
func evaluationOf(e hookin.Event) *rule.Evaluation {
	return rule.NewEvaluation(map[string]any{"event": e.Body, "headers": e.Headers, "delivery": e.ID, "digest": e.Digest, "subject": e.Subject})
}

// request returns the submission for a delivery.
func (m *mapping) request(d delivery) (api.SubmitRequest, error) {
	r := m.run
	req := api.SubmitRequest{Agent: r.Agent, Priority: r.Priority, Metadata: map[string]string{}}
	var err error
	if m.input == nil {
		if req.Input, err = inputOfBody(d.Body); err != nil {
			return req, problem(unprocessable, api.CodeInvalidDelivery, "%s: the whole event cannot be the input (%v): set run.input to an expression that selects the fields that the agent needs, then %s", d.source(), err, d.again())
		}
	} else if req.Input, err = m.input(d.values); err == nil {
		req.Input, err = inputOfValue(req.Input)
	}
	if err != nil {
		return req, fmt.Errorf("run.input: %w", err)
	}
	if m.vars != nil {
		if req.Variables, err = m.vars(d.values); err != nil {
			return req, fmt.Errorf("run.variables: %w", err)
		}
	}
	for name, text := range m.metadata {
		if req.Metadata[name], err = text(d.values); err != nil {
			return req, fmt.Errorf("run.metadata.%s: %w", name, err)
		}
	}
	req.Metadata[string(m.source)], req.Metadata[metadataDelivery] = d.name, d.ID
	return req, nil
}

// inputOfBody returns an input with a whole event: a body that is text unchanged, else the body's JSON as text.
func inputOfBody(body any) (json.RawMessage, error) {
	text, err := json.Marshal(body)
	if plain, ok := body.(string); ok {
		return api.Text(plain), nil
	}
	return api.Text(string(text)), err
}

// inputOfValue returns an input with the value of an expression: a string or a list of messages unchanged, any other
// value as a string with its JSON.
func inputOfValue(v json.RawMessage) (json.RawMessage, error) {
	var plain any
	if err := json.Unmarshal(v, &plain); err != nil {
		return nil, err
	}
	switch plain.(type) {
	case string, []any:
		return v, nil
	}
	text, err := json.Marshal(plain)
	return api.Text(string(text)), err
}

// signalOf returns the signal for a delivery.
func (m *mapping) signalOf(d delivery) (api.SignalRequest, error) {
	s := m.signal
	text, err := m.text(d.values)
	if s.Answer != "" {
		if err != nil {
			err = fmt.Errorf("signal.answer: %w", err)
		}
		return api.SignalRequest{Answer: &text}, err
	}
	if err != nil {
		err = fmt.Errorf("signal.message: %w", err)
	}
	return api.SignalRequest{Message: api.Text(text), Mode: s.Mode}, err
}
