package service

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/cel"

	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// mapping is how deliveries to a hook become runs and signals: its settings with compiled expressions.
type mapping struct {
	settings api.HookSettings
	filter   rule.Condition // nil: all
	input    rule.Value     // nil: the event
	vars     rule.Object    // nil: none
	key      rule.Text      // nil: the id of the delivery
	metadata map[string]rule.Text
	run      rule.Text // of the signal; nil: the run with the key
	text     rule.Text // of the signal; nil: there is none
}

// compileMapping checks the settings of a hook.
func compileMapping(h api.HookSettings) (*mapping, error) {
	if err := checkHook(h); err != nil {
		return nil, err
	}
	m := &mapping{settings: h, metadata: map[string]rule.Text{}}
	vars := []cel.EnvOption{
		cel.Variable("event", cel.DynType), cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("delivery", cel.StringType), cel.Variable("digest", cel.StringType),
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
	if h.Filter != "" {
		if m.filter, err = rule.Compile(h.Filter, vars...); err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
	}
	if r := h.Run; r != nil {
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
				return nil, fmt.Errorf("run.metadata.%.40s: the expression is empty", name)
			}
			m.metadata[name] = text("run.metadata."+name, r.Metadata[name])
		}
	}
	if s := h.Signal; s != nil {
		m.run = text("signal.run", s.Run)
		m.text = text("signal.message", s.Message)
		if s.Answer != "" {
			m.text = text("signal.answer", s.Answer)
		}
	}
	return m, err
}

// values are the variables of expressions.
func values(e hookin.Event) map[string]any {
	return map[string]any{"event": e.Body, "headers": e.Headers, "delivery": e.ID, "digest": e.Digest}
}

// request returns the submission that a delivery asks for.
func (m *mapping) request(hook string, e hookin.Event) (api.SubmitRequest, error) {
	r := m.settings.Run
	req := api.SubmitRequest{Agent: r.Agent, Priority: r.Priority, Metadata: map[string]string{}}
	in := values(e)
	var err error
	if m.input == nil {
		var text []byte
		if text, err = json.Marshal(e.Body); err == nil {
			req.Input = api.Text(string(text))
		}
	} else if req.Input, err = m.input(in); err == nil {
		req.Input, err = inputOfValue(req.Input)
	}
	if err != nil {
		return req, fmt.Errorf("run.input: %w", err)
	}
	if m.vars != nil {
		if req.Variables, err = m.vars(in); err != nil {
			return req, fmt.Errorf("run.variables: %w", err)
		}
	}
	for name, text := range m.metadata {
		if req.Metadata[name], err = text(in); err != nil {
			return req, fmt.Errorf("run.metadata.%s: %w", name, err)
		}
	}
	req.Metadata[metadataHook], req.Metadata[metadataDelivery] = hook, e.ID
	return req, nil
}

// inputOfValue makes an input of what an expression gave: a text and a list of messages as they are, and
// anything else as a text with its JSON.
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

// signal returns the signal that a delivery asks for.
func (m *mapping) signal(e hookin.Event) (api.SignalRequest, error) {
	s := m.settings.Signal
	text, err := m.text(values(e))
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
