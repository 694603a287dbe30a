package agent

import (
	"bytes"
	"encoding/json"
	"fmt"

	"cel.dev/cel-go/cel"
	"github.com/google/jsonschema-go/jsonschema"
)

// CompiledTool is a tool with its schema and approval rule compiled.
type CompiledTool struct {
	Tool

	schema *jsonschema.Resolved
	open   bool // the schema is anyObject
	rule   func(args map[string]any) (bool, error)
}

// anyObject is the schema of a tool without one.
const anyObject = `{"type":"object"}`

const (
	approvalAlways = "always"
	approvalNever  = "never"
)

// NeedsApproval reports whether a person must approve a call with these
// arguments, a JSON object. A rule that cannot be evaluated on them errs on the
// side of the person: true.
func (t *CompiledTool) NeedsApproval(arguments string) bool {
	if t.rule == nil {
		return false
	}
	var args map[string]any
	if json.Unmarshal([]byte(arguments), &args) != nil {
		return true
	}
	yes, err := t.rule(args)
	return yes || err != nil
}

// Validate returns nil if arguments is a JSON object that the tool's schema
// admits, and otherwise an error whose text a model can act on.
func (t *CompiledTool) Validate(arguments string) error {
	var args map[string]any
	if t.open {
		if data := []byte(arguments); bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) && !tooDeep(data) && json.Valid(data) {
			return nil // there is nothing else to look at
		}
	}
	if err := json.Unmarshal([]byte(arguments), &args); err != nil || args == nil {
		return fmt.Errorf("Invalid arguments for tool %q: they must be a JSON object", t.Name) //nolint:staticcheck // a sentence for the model
	}
	if tooDeep([]byte(arguments)) {
		return fmt.Errorf("Invalid arguments for tool %q: they are nested more than %d levels deep", t.Name, maxDepth) //nolint:staticcheck // a sentence for the model
	}
	if err := t.schema.Validate(args); err != nil {
		return fmt.Errorf("Invalid arguments for tool %q: %w", t.Name, err) //nolint:staticcheck // a sentence for the model
	}
	return nil
}

// compileRule compiles an approval rule: nil for never.
func compileRule(rule Approval) (func(map[string]any) (bool, error), error) {
	switch rule {
	case "", approvalNever:
		return nil, nil
	case approvalAlways:
		return func(map[string]any) (bool, error) { return true, nil }, nil
	}
	holds, err := expression(string(rule), cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		return nil, err
	}
	return func(args map[string]any) (bool, error) { return holds(map[string]any{"args": args}) }, nil
}

// expression compiles a condition in CEL. Its evaluation is bounded in cost.
func expression(text string, vars ...cel.EnvOption) (func(map[string]any) (bool, error), error) {
	env, err := cel.NewEnv(vars...)
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("%q: %w", text, issues.Err())
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%q gives %s, not a boolean", text, out)
	}
	program, err := env.Program(ast, cel.CostLimit(100_000))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return func(values map[string]any) (bool, error) {
		v, _, err := program.Eval(values)
		if err != nil {
			return false, err
		}
		yes, ok := v.Value().(bool)
		if !ok {
			return false, fmt.Errorf("%q gave %v, not a boolean", text, v.Type())
		}
		return yes, nil
	}, nil
}
