package rule

import (
	"fmt"
	"sync"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// program is a compiled expression. Its steps report to a meter. The cost tracker of CEL is not used: for most steps
// it searches all values of earlier steps, so that its own time grows with the square of their number.
type program struct {
	plan  *interpreter.ObservableInterpretable
	steps map[int64]*operation // by the id of the operand that CEL evaluates last
	wants map[int64]bool       // the ids of the operands whose values the operations need
}

// operation is a step whose cost depends on its operands.
type operation struct {
	function string
	operands []int64
	pattern  int // of matches: the instructions of a regular expression that is compiled once, or 0
}

// Names of operations that are not calls.
const (
	loopRange = "@range" // of a comprehension
	mapKey    = "@key"   // of a map literal
)

// newProgram returns the program of a checked expression.
func newProgram(env *cel.Env, ast *cel.Ast) (*program, error) {
	p := &program{steps: map[int64]*operation{}, wants: map[int64]bool{}}
	keys := map[int64]bool{}
	celast.PostOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) { p.visit(e, keys) }))

	functions, err := functionsOnce()
	if err != nil {
		return nil, err
	}
	adapter, provider := env.CELTypeAdapter(), env.CELTypeProvider()
	attributes := interpreter.NewAttributeFactory(env.Container, adapter, provider)
	planned, err := interpreter.NewInterpreter(functions, env.Container, provider, adapter, attributes).NewInterpretable(ast.NativeRep(),
		interpreter.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			if keys[i.ID()] {
				return observedKey{i}, nil
			}
			return i, nil
		}),
		interpreter.CompileRegexConstants(compiledOnce),
		interpreter.EvalStateObserver(interpreter.EvalStateFactory(func() interpreter.EvalState { return &meter{program: p, left: maxCost} })))
	if err != nil {
		return nil, err
	}
	observable, ok := planned.(*interpreter.ObservableInterpretable)
	if !ok {
		return nil, fmt.Errorf("CEL planned a %T, which has no observer: report this bug in Turnpike", planned)
	}
	p.plan = observable
	return p, nil
}

// functionsOnce returns the functions that expressions can call. Programs share them.
var functionsOnce = sync.OnceValues(func() (interpreter.Dispatcher, error) {
	env, err := withoutMatches()
	if err != nil {
		return nil, err
	}
	functions := interpreter.NewDispatcher()
	for _, f := range env.Functions() {
		bindings, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		if err := functions.Add(bindings...); err != nil {
			return nil, err
		}
	}
	return functions, nil
})

// observedKey is the key in m[key]. It hides that the key is a variable or a conditional: CEL looks up either without a
// report of its value.
type observedKey struct{ interpreter.InterpretableV2 }

// visit notes whether the cost of an expression depends on its operands. It adds the key in m[key] to keys.
func (p *program) visit(e celast.Expr, keys map[int64]bool) {
	var operands []celast.Expr
	function := ""
	switch e.Kind() { //nolint:exhaustive // the others have a constant cost
	case celast.CallKind:
		call := e.AsCall()
		function = call.FunctionName()
		switch function {
		case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse, operators.Conditional,
			operators.Negate, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
			return
		case operators.Index:
			key := call.Args()[1]
			if key.Kind() == celast.IdentKind || key.Kind() == celast.CallKind && key.AsCall().FunctionName() == operators.Conditional {
				keys[key.ID()] = true
			}
		}
		if call.IsMemberFunction() {
			operands = append(operands, call.Target())
		}
		operands = append(operands, call.Args()...)
	case celast.ComprehensionKind:
		function, operands = loopRange, []celast.Expr{e.AsComprehension().IterRange()}
	case celast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			p.add(mapKey, entry.AsMapEntry().Key())
		}
	}
	if len(operands) > 0 {
		p.add(function, operands...)
	}
}

func (p *program) add(function string, operands ...celast.Expr) {
	op := &operation{function: function}
	for _, o := range operands {
		op.operands = append(op.operands, o.ID())
		p.wants[o.ID()] = true
	}
	last := operands[len(operands)-1]
	if function == overloads.Matches && last.Kind() == celast.LiteralKind {
		if text, ok := last.AsLiteral().(types.String); ok {
			if size := PatternSize(string(text)); size <= maxPattern {
				op.pattern = size
			}
		}
	}
	p.steps[last.ID()] = op
}

// eval returns the value of the expression. The caller must hold the budget.
func (p *program) eval(e *Evaluation) (out ref.Val, err error) {
	frame, err := interpreter.NewExecutionFrame(e.values)
	if err != nil {
		return nil, err
	}
	defer frame.Close()
	var m *meter
	defer func() {
		if m != nil {
			e.budget.left = m.left
		}
		switch r := recover(); r {
		case nil:
		case errCost:
			err = errCost
		default:
			err = fmt.Errorf("internal error in an expression, report this bug in Turnpike: %v", r)
		}
	}()
	out = p.plan.ObserveExec(frame, func(state any) {
		if now, ok := state.(*meter); ok && m == nil {
			m, now.left = now, e.budget.left
		}
	})
	if failed, ok := out.(*types.Err); ok {
		return nil, fmt.Errorf("%.500s", failed.Error())
	}
	return out, nil
}

// meter counts the cost of one evaluation. It panics with errCost if nothing is left.
type meter struct {
	program *program
	left    int
	values  map[int64]ref.Val // of operands
}

// SetValue implements interpreter.EvalState: a step of the evaluation had a value.
func (m *meter) SetValue(id int64, v ref.Val) {
	m.spend(1)
	if !m.program.wants[id] {
		return
	}
	if m.values == nil {
		m.values = map[int64]ref.Val{}
	}
	m.values[id] = v
	if op := m.program.steps[id]; op != nil {
		m.charge(op)
	}
}

// The others implement interpreter.EvalState, and are not used.
func (m *meter) IDs() []int64                { return nil }
func (m *meter) Value(int64) (ref.Val, bool) { return nil, false }
func (m *meter) Reset()                      {}

func (m *meter) spend(cost int) {
	if m.left -= cost; m.left < 0 {
		m.left = 0
		panic(errCost)
	}
}
