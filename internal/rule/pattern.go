package rule

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
	celenv "cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

const (
	// maxText is the maximum length of an expression in bytes, and maxCost the maximum cost of one
	// evaluation, in the units of CEL.
	maxText = 4 << 10
	maxCost = 100_000

	// maxPattern is the maximum number of instructions of a regular expression. perCost is the
	// number of them that cost one unit per byte of text.
	maxPattern = 10_000
	perCost    = 200
)

// PatternSize returns the approximate number of instructions of a compiled regular expression.
// Matching it against a text takes up to that many steps for each byte. It is 0 if text is invalid.
func PatternSize(text string) int {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0
	}
	return instructions(re)
}

func instructions(re *syntax.Regexp) int {
	const most = 1 << 30
	size := 1
	switch re.Op { //nolint:exhaustive // the others are one each
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpCharClass:
		size += len(re.Rune) / 8
	}
	for _, sub := range re.Sub {
		size = min(most, size+instructions(sub))
	}
	if re.Op == syntax.OpRepeat {
		size = min(most, size*max(1, re.Min, re.Max))
	}
	return size
}

// newEnv returns an environment that charges regular expressions by their size: CEL counts the
// bytes of an expression, and (a?){1000} has few.
func newEnv(vars []cel.EnvOption) (*cel.Env, error) {
	base, err := withoutMatches()
	if err != nil {
		return nil, err
	}
	return base.Extend(vars...)
}

var withoutMatches = sync.OnceValues(func() (*cel.Env, error) {
	binding := cel.BinaryBinding(matches)
	texts := []*cel.Type{cel.StringType, cel.StringType}
	return cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(celenv.NewLibrarySubset().AddExcludedFunctions(&celenv.Function{Name: "matches"}))),
		cel.Function("matches", cel.Overload("bounded_matches", texts, cel.BoolType, binding), cel.MemberOverload("bounded_matches_string", texts, cel.BoolType, binding)),
	)
})

func matches(text, pattern ref.Val) ref.Val {
	t, ok := text.Value().(string)
	p, is := pattern.Value().(string)
	if !ok || !is {
		return types.MaybeNoSuchOverloadErr(text)
	}
	size := PatternSize(p)
	if size > maxPattern || size*len(t)/perCost > maxCost {
		return types.NewErr("matching the regular expression would cost too much: use fewer repetitions, or match a shorter text")
	}
	re, err := regexp.Compile(p)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(re.MatchString(t))
}

// callCost returns the cost of calls that CEL counts as one: those of matches, and those whose
// arguments it knows only at run time.
type callCost struct{}

func (callCost) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	cost := uint64(1)
	switch function {
	case "matches":
		if len(args) != 2 {
			return nil
		}
		t, ok := args[0].Value().(string)
		p, is := args[1].Value().(string)
		if !ok || !is {
			return nil
		}
		size := uint64(PatternSize(p)) //nolint:gosec // it is positive
		cost += size/8 + size*uint64(len(t))/perCost
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if len(args) != 2 {
			return nil
		}
		cost += min(weight(args[0]), weight(args[1]))
	case operators.In:
		if len(args) != 2 {
			return nil
		}
		if _, ok := args[1].(traits.Lister); ok {
			cost += weight(args[1])
		}
	case operators.Add, "string", "bytes", "int", "uint", "double", "timestamp", "duration":
		for _, v := range slices.Concat(args, []ref.Val{result}) {
			switch v := v.(type) {
			case types.String:
				cost += uint64(len(v)) / textCost
			case types.Bytes:
				cost += uint64(len(v)) / textCost
			}
		}
	default:
		return nil
	}
	return &cost
}

// textCost is the number of bytes of a text that cost one unit, as CEL counts them.
const textCost = 10

// weight is what looking at the whole of a value costs.
func weight(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)) / textCost
	case types.Bytes:
		return uint64(len(v)) / textCost
	case traits.Lister:
		sum := uint64(1)
		for it := v.Iterator(); it.HasNext() == types.True; {
			sum += 1 + weight(it.Next())
		}
		return sum
	case traits.Mapper:
		sum := uint64(1)
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			sum += 1 + weight(key) + weight(v.Get(key))
		}
		return sum
	}
	return 0
}

var _ interpreter.ActualCostEstimator = callCost{}
