package agent

import (
	"bytes"
	"encoding/json"
	"fmt"

	"cel.dev/cel-go/cel"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// CompiledTool is a tool with its checked settings, and with its schema and approval rule compiled.
type CompiledTool struct {
	Tool
	tool.Needs

	// Settings are those of the tool's kind.
	Settings any

	// ProbeTool is the tool's probe, compiled as a tool; nil without a probe. Models do not see it.
	ProbeTool *CompiledTool

	schema *jsonschema.Schema
	open   bool // the schema is anyObject
	rule   approvalRule
}

// approvalRule reports whether a call with these arguments needs approval in a run with this history. text has the
// arguments as JSON.
type approvalRule func(args map[string]any, text string, log []state.Entry, left *rule.Budget) (bool, error)

// anyObject is the schema of a tool without one.
const anyObject = `{"type":"object"}`

// Bound returns the tool in the form that its kind receives, for a tenant.
func (t *CompiledTool) Bound(tenant string, secret func(name, host string) (string, error)) tool.Bound {
	return tool.Bound{Definition: &t.Tool, Settings: t.Settings, Tenant: tenant, Secret: secret}
}

// NeedsApproval reports whether the tool's approval rule requires that a person approves a call with these arguments, a
// JSON object, in a run with this history. If the rule cannot be evaluated, it reports true.
func (t *CompiledTool) NeedsApproval(arguments string, log []state.Entry) bool {
	return t.NeedsApprovalWithin(arguments, log, TurnSteps())
}

// NeedsApprovalWithin is [CompiledTool.NeedsApproval] with a budget: it subtracts the cost of the rule from left, and
// reports true if left does not suffice.
func (t *CompiledTool) NeedsApprovalWithin(arguments string, log []state.Entry, left *Steps) bool {
	if t.rule == nil {
		return false
	}
	var args map[string]any
	if json.Unmarshal([]byte(arguments), &args) != nil {
		return true
	}
	yes, err := t.rule(args, arguments, log, left.cost)
	return yes || err != nil
}

// Steps bounds the work of checking the calls of one turn against their schemas and approval rules. [TurnSteps] returns
// one; the zero value allows no steps.
type Steps struct {
	steps jsonschema.Steps
	cost  *rule.Budget
}

// TurnSteps returns the budget of one turn.
func TurnSteps() *Steps { return &Steps{*jsonschema.TurnSteps(), rule.NewBudget()} }

// Validate returns nil if arguments is a JSON object that matches the tool's schema, and otherwise an error whose text
// a model can act on. It takes a bounded number of steps, whatever the schema and the arguments are.
func (t *CompiledTool) Validate(arguments string) error {
	return t.ValidateWithin(arguments, TurnSteps())
}

// ValidateWithin is [CompiledTool.Validate] with a budget: it subtracts its steps from left, and returns an error if
// left does not suffice. It must not be called concurrently with the same left.
func (t *CompiledTool) ValidateWithin(arguments string, left *Steps) error {
	var args map[string]any
	if t.open {
		if data := []byte(arguments); bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) && !jsonschema.TooDeep(data) && json.Valid(data) {
			return nil // there is nothing else to look at
		}
	}
	if err := json.Unmarshal([]byte(arguments), &args); err != nil || args == nil {
		return fmt.Errorf("Invalid arguments for tool %q: they are not a JSON object: send one", t.Name) //nolint:staticcheck // a sentence for the model
	}
	if jsonschema.TooDeep([]byte(arguments)) {
		return fmt.Errorf("Invalid arguments for tool %q: they are nested more than %d levels deep: flatten them", t.Name, jsonschema.MaxDepth) //nolint:staticcheck // a sentence for the model
	}
	if err := t.schema.Validate(args, &left.steps); err != nil {
		return fmt.Errorf("Invalid arguments for tool %q: %w", t.Name, err) //nolint:staticcheck // a sentence for the model
	}
	return nil
}

// compileRule compiles an approval rule. It returns nil for a rule that never requires approval.
func compileRule(text tool.Approval) (approvalRule, error) {
	switch text {
	case "", tool.ApprovalNever:
		return nil, nil
	case tool.ApprovalAlways:
		return func(map[string]any, string, []state.Entry, *rule.Budget) (bool, error) { return true, nil }, nil
	}
	holds, err := rule.Compile(string(text), cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("args_from_untrusted", cel.BoolType), cel.Variable("untrusted_seen", cel.BoolType))
	if err != nil {
		return nil, fmt.Errorf("it is neither always nor never, and cannot be used as a CEL expression over args, args_from_untrusted and untrusted_seen: %w", err)
	}
	return func(args map[string]any, text string, log []state.Entry, left *rule.Budget) (bool, error) {
		// The rule calls these functions only when it needs their values.
		return holds(left.Evaluation(map[string]any{
			"args":                args,
			"args_from_untrusted": func() any { return provenance.FromUntrusted(log, text) },
			"untrusted_seen":      func() any { return provenance.Seen(log) },
		}))
	}, nil
}
