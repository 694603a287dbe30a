package rule

import (
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	celenv "cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

const (
	// maxPattern is the maximum number of instructions of a regular expression. perCost is the
	// number of them that cost one unit per byte of text.
	maxPattern = 10_000
	perCost    = 200

	// Go compiles one instruction in about as much time as it reads bytesPerInstruction bytes of a regular expression
	// or adds runesPerInstruction characters to a range without regard to case, and a class such as \pL as
	// instructionsPerClass instructions.
	bytesPerInstruction  = 8
	runesPerInstruction  = 12
	instructionsPerClass = 40
)

// PatternSize estimates the instructions of a compiled regular expression, and the work of expanding ranges that
// ignore case. Matching takes up to that many steps for each byte of text. An expression that is too costly to read
// is not parsed: the result is then above maxPattern, even if text is invalid. Any other invalid text gives 0.
func PatternSize(text string) int {
	folds := foldSize(text)
	if reading := readingSize(text) + folds; reading > maxPattern {
		return reading // reading it would take too long
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0
	}
	return instructions(re) + folds
}

// readingSize returns the number of instructions that compile in as much time as Go needs to read a regular
// expression, apart from those of foldSize.
func readingSize(text string) int {
	return len(text)/bytesPerInstruction + instructionsPerClass*(strings.Count(text, `\p`)+strings.Count(text, `\P`))
}

// ignoresCase matches the flag with which Go adds each character of a range to a class one by one.
var ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z-]*i`)

// foldSize returns the number of instructions that compile in as much time as Go needs to add the characters of the
// ranges of a regular expression one by one.
func foldSize(text string) int {
	if !ignoresCase.MatchString(text) {
		return 0
	}
	runes := 0
	for i := range len(text) {
		if text[i] == '-' {
			to, _ := utf8.DecodeRuneInString(text[i+1:])
			if hex, ok := strings.CutPrefix(text[i+1:], `\x{`); ok {
				hex, _, _ = strings.Cut(hex, "}")
				n, _ := strconv.ParseUint(hex, 16, 32)
				to = rune(min(n, unicode.MaxRune)) //nolint:gosec // it is small
			}
			from, _ := utf8.DecodeLastRuneInString(text[:i])
			if from == '}' {
				from = 0 // it ends \x{…}
			}
			runes += max(0, int(to-from))
		}
	}
	return runes / runesPerInstruction
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

var errPattern = types.NewErr("the regular expression is too complex, more than %d instructions: use fewer repetitions", maxPattern)

func matches(text, pattern ref.Val) ref.Val {
	t, ok := text.Value().(string)
	p, is := pattern.Value().(string)
	if !ok || !is {
		return types.MaybeNoSuchOverloadErr(text)
	}
	if PatternSize(p) > maxPattern {
		return errPattern
	}
	re, err := regexp.Compile(p)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(re.MatchString(t))
}

// compiledOnce has CEL compile the regular expressions that an expression contains when it is planned.
var compiledOnce = &interpreter.RegexOptimization{
	Function:   overloads.Matches,
	RegexIndex: 1,
	Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
		if PatternSize(pattern) > maxPattern {
			return call, nil // the evaluation fails
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			return call, nil //nolint:nilerr // the evaluation fails
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(values ...ref.Val) ref.Val {
			text, ok := values[0].(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(values[0])
			}
			return types.Bool(re.MatchString(string(text)))
		}), nil
	},
}

// matchCost is the cost of matching a regular expression with size instructions against text bytes.
func matchCost(size, text int) int { return int(min(int64(size)*int64(text)/perCost, math.MaxInt32)) }
