package rule

import (
	"fmt"

	"cel.dev/cel-go/cel"
)

// Condition tells whether an expression holds for values of its variables. An error
// says that it cannot be told. It may be called from any goroutine.
type Condition func(values map[string]any) (bool, error)

// Compile compiles a condition over variables. Its evaluation is bounded in cost.
func Compile(text string, vars ...cel.EnvOption) (Condition, error) {
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
