package rule

import (
	"encoding/json"
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// Condition reports whether an expression holds for an evaluation's values of its variables. An error means that the
// evaluation failed or did not give a boolean. It may be called by several goroutines at the same time.
type Condition func(*Evaluation) (bool, error)

// Compile compiles a condition over variables. The [Budget] of its evaluation bounds its cost.
func Compile(text string, vars ...cel.EnvOption) (Condition, error) {
	program, out, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	if !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%q returns %s, not a boolean: compare it with another value, for example with == or >", text, out)
	}
	return func(e *Evaluation) (bool, error) {
		e.budget.mu.Lock()
		defer e.budget.mu.Unlock()
		v, err := program.eval(e)
		if err != nil {
			return false, err
		}
		yes, ok := v.Value().(bool)
		if !ok {
			return false, fmt.Errorf("%q returned %v, not a boolean: compare it with another value, for example with == or >", text, v.Type())
		}
		return yes, nil
	}, nil
}

// Object gives a JSON object for values of variables.
type Object func(*Evaluation) (json.RawMessage, error)

// CompileObject compiles an expression that gives an object. The [Budget] of its
// evaluation bounds its cost.
func CompileObject(text string, vars ...cel.EnvOption) (Object, error) {
	program, _, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	return func(e *Evaluation) (json.RawMessage, error) {
		e.budget.mu.Lock()
		defer e.budget.mu.Unlock()
		v, err := program.eval(e)
		if err != nil {
			return nil, err
		}
		if _, ok := v.(traits.Mapper); !ok {
			return nil, fmt.Errorf("%q returned %v, not an object: write a map such as {'name': value}", text, v.Type())
		}
		object, err := e.toJSON(v)
		if err != nil {
			return nil, fmt.Errorf("the value of %q cannot be written as JSON: %w", text, err)
		}
		return object, nil
	}, nil
}

func compile(text string, vars []cel.EnvOption) (*program, *cel.Type, error) {
	if len(text) > maxText {
		return nil, nil, fmt.Errorf("the expression has %d bytes, at most %d are allowed: shorten it", len(text), maxText)
	}
	env, err := newEnv(vars)
	if err != nil {
		return nil, nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, nil, fmt.Errorf("%q is not a valid expression in CEL, correct it: %w", text, issues.Err())
	}
	program, err := newProgram(env, ast)
	if err != nil {
		return nil, nil, fmt.Errorf("%q: %w", text, err)
	}
	return program, ast.OutputType(), nil
}

// Value gives JSON for values of variables.
type Value func(*Evaluation) (json.RawMessage, error)

// CompileValue compiles an expression that gives any value that JSON has. The [Budget] of its
// evaluation bounds its cost.
func CompileValue(text string, vars ...cel.EnvOption) (Value, error) {
	program, _, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	return func(e *Evaluation) (json.RawMessage, error) {
		e.budget.mu.Lock()
		defer e.budget.mu.Unlock()
		v, err := program.eval(e)
		if err != nil {
			return nil, err
		}
		value, err := e.toJSON(v)
		if err != nil {
			return nil, fmt.Errorf("the value of %q cannot be written as JSON: %w", text, err)
		}
		return value, nil
	}, nil
}

// Text gives a text for values of variables.
type Text func(*Evaluation) (string, error)

// notText is the error of an expression that returned a value other than a string.
func notText(text string, v ref.Val) error {
	switch v.Type() {
	case types.NullType:
		return fmt.Errorf("%q returned null, not a string: give a default, such as event.name != null ? event.name : 'none'", text)
	case types.MapType:
		return fmt.Errorf("%q returned an object, not a string: choose one of its fields, such as event.user.name", text)
	case types.ListType:
		return fmt.Errorf("%q returned an array, not a string: choose one of its items, such as event.users[0]", text)
	default:
		return fmt.Errorf("%q returned %v, not a string: convert it with string(…)", text, v.Type())
	}
}

// CompileText compiles an expression that gives a text. The [Budget] of its evaluation bounds its cost.
func CompileText(text string, vars ...cel.EnvOption) (Text, error) {
	program, out, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	if !out.IsExactType(cel.StringType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%q returns %s, not a string: choose a part of it that is a string, or convert it with string(…)", text, out)
	}
	return func(e *Evaluation) (string, error) {
		e.budget.mu.Lock()
		defer e.budget.mu.Unlock()
		v, err := program.eval(e)
		if err != nil {
			return "", err
		}
		s, ok := v.Value().(string)
		if !ok {
			return "", notText(text, v)
		}
		return s, nil
	}, nil
}
