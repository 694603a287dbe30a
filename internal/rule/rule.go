package rule

import (
	"encoding/json"
	"fmt"
	"reflect"

	"cel.dev/cel-go/cel"
	"google.golang.org/protobuf/types/known/structpb"
)

// Condition reports whether an expression holds for values of its variables. An error means that
// the evaluation failed. It may be called from any goroutine.
type Condition func(values map[string]any) (bool, error)

// Compile compiles a condition over variables. Its evaluation is bounded in cost.
func Compile(text string, vars ...cel.EnvOption) (Condition, error) {
	program, out, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	if !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%q returns %s, not a boolean: write a condition such as args.amount > 100", text, out)
	}
	return func(values map[string]any) (bool, error) {
		v, _, err := program.Eval(values)
		if err != nil {
			return false, err
		}
		yes, ok := v.Value().(bool)
		if !ok {
			return false, fmt.Errorf("%q returned %v, not a boolean: write a condition such as args.amount > 100", text, v.Type())
		}
		return yes, nil
	}, nil
}

// Object gives a JSON object for values of variables.
type Object func(values map[string]any) (json.RawMessage, error)

// CompileObject compiles an expression that gives an object. Its evaluation is bounded in
// cost.
func CompileObject(text string, vars ...cel.EnvOption) (Object, error) {
	program, _, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	return func(values map[string]any) (json.RawMessage, error) {
		v, _, err := program.Eval(values)
		if err != nil {
			return nil, err
		}
		native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Struct]())
		if err != nil {
			return nil, fmt.Errorf("%q did not return an object: %w", text, err)
		}
		object, ok := native.(*structpb.Struct)
		if !ok {
			return nil, fmt.Errorf("%q did not return an object: write a map such as {'name': value}", text)
		}
		return object.MarshalJSON()
	}, nil
}

func compile(text string, vars []cel.EnvOption) (cel.Program, *cel.Type, error) {
	if len(text) > maxText {
		return nil, nil, fmt.Errorf("the expression has %d bytes, at most %d are allowed: shorten it", len(text), maxText)
	}
	env, err := newEnv(vars)
	if err != nil {
		return nil, nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, nil, fmt.Errorf("%q: %w", text, issues.Err())
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.CostTracking(callCost{}))
	if err != nil {
		return nil, nil, fmt.Errorf("%q: %w", text, err)
	}
	return program, ast.OutputType(), nil
}

// Value gives JSON for values of variables.
type Value func(values map[string]any) (json.RawMessage, error)

// CompileValue compiles an expression that gives any value that JSON has. Its evaluation is bounded in
// cost.
func CompileValue(text string, vars ...cel.EnvOption) (Value, error) {
	program, _, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	return func(values map[string]any) (json.RawMessage, error) {
		v, _, err := program.Eval(values)
		if err != nil {
			return nil, err
		}
		native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
		if err != nil {
			return nil, fmt.Errorf("%q returned a value that JSON does not have: %w", text, err)
		}
		value, ok := native.(*structpb.Value)
		if !ok {
			return nil, fmt.Errorf("%q returned a value that JSON does not have: return a string, number, boolean, list or map", text)
		}
		return value.MarshalJSON()
	}, nil
}

// Text gives a text for values of variables.
type Text func(values map[string]any) (string, error)

// CompileText compiles an expression that gives a text. Its evaluation is bounded in cost.
func CompileText(text string, vars ...cel.EnvOption) (Text, error) {
	program, out, err := compile(text, vars)
	if err != nil {
		return nil, err
	}
	if !out.IsExactType(cel.StringType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%q returns %s, not a string: convert it with string(…)", text, out)
	}
	return func(values map[string]any) (string, error) {
		v, _, err := program.Eval(values)
		if err != nil {
			return "", err
		}
		s, ok := v.Value().(string)
		if !ok {
			return "", fmt.Errorf("%q returned %v, not a string: convert it with string(…)", text, v.Type())
		}
		return s, nil
	}, nil
}
