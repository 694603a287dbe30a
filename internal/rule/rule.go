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
		return nil, fmt.Errorf("%q gives %s, not a boolean", text, out)
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
			return nil, fmt.Errorf("%q gave no object: %w", text, err)
		}
		object, ok := native.(*structpb.Struct)
		if !ok {
			return nil, fmt.Errorf("%q gave no object", text)
		}
		return object.MarshalJSON()
	}, nil
}

func compile(text string, vars []cel.EnvOption) (cel.Program, *cel.Type, error) {
	if len(text) > maxText {
		return nil, nil, fmt.Errorf("the expression has %d bytes, %d are allowed at most", len(text), maxText)
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
			return nil, fmt.Errorf("%q gave no value that JSON has: %w", text, err)
		}
		value, ok := native.(*structpb.Value)
		if !ok {
			return nil, fmt.Errorf("%q gave no value that JSON has", text)
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
		return nil, fmt.Errorf("%q gives %s, not a text: write string(…)", text, out)
	}
	return func(values map[string]any) (string, error) {
		v, _, err := program.Eval(values)
		if err != nil {
			return "", err
		}
		s, ok := v.Value().(string)
		if !ok {
			return "", fmt.Errorf("%q gave %v, not a text: write string(…)", text, v.Type())
		}
		return s, nil
	}, nil
}
