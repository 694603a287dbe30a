package rule_test

import (
	"regexp"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"github.com/turnpike-dev/turnpike/internal/rule"
)

// TestPatternsCost: a few bytes of a regular expression may stand for thousands of instructions, which run for
// each byte of a text.
func TestPatternsCost(t *testing.T) {
	text := strings.Repeat("a", 100<<10)
	args := cel.Variable("text", cel.StringType)
	for _, condition := range []string{
		`text.matches("(a?){1000}x")`,
		`matches(text, "(a?){1000}x")`,
		`["(a?){1000}x", "b"].exists(p, text.matches(p))`,
		strings.Repeat(`text.matches("(a?){50}x") || `, 60) + "false",
	} {
		holds, err := rule.Compile(condition, args)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holds(rule.NewEvaluation(map[string]any{"text": text})); err == nil || !strings.Contains(err.Error(), "cost") {
			t.Errorf("%.40s gave %v, want an error that it costs too much", condition, err)
		}
	}
	holds, err := rule.Compile(`text.matches("^a+$") && !text.matches("b{2,5}")`, args)
	if err != nil {
		t.Fatal(err)
	}
	if yes, err := holds(rule.NewEvaluation(map[string]any{"text": text})); !yes || err != nil {
		t.Errorf("an ordinary regular expression gave %t, %v", yes, err)
	}
}

// TestCallsCost: an operation that CEL counts as one step, because it does not know the types of its arguments,
// may take time in proportion to their size.
func TestCallsCost(t *testing.T) {
	list := make([]any, 1000)
	for i := range list {
		list[i] = float64(i)
	}
	deep := []any{list, list, list, list, list, list, list, list, list, list}
	values := map[string]any{"args": map[string]any{
		"text": strings.Repeat("1", 100<<10), "list": list, "deep": []any{deep}, "same": []any{deep}, "object": map[string]any{"a": deep}, "like": map[string]any{"a": deep},
	}}
	args := cel.Variable("args", cel.MapType(cel.StringType, cel.DynType))
	for _, condition := range []string{
		`args.list.map(x, args.text + args.text).size() > 1`,
		`args.list.all(x, args.deep == args.same)`,
		`args.list.all(x, !(args.object != args.like))`,
		`args.list.all(x, args.deep[0] in args.same)`,
		`args.list.all(x, args.text <= args.text)`,
		`args.list.all(x, double(args.text) > 1.0)`,
		`args.list.map(x, bytes(args.text)).size() > 1`,
	} {
		holds, err := rule.Compile(condition, args)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holds(rule.NewEvaluation(values)); err == nil || !strings.Contains(err.Error(), "cost") {
			t.Errorf("%s gave %v, want an error that it costs too much", condition, err)
		}
	}
	for _, condition := range []string{
		`args.list.all(x, x >= 0.0 && x != -1.0)`, `args.deep == args.same`, `args.text + "x" != args.text`, `5.0 in args.list && args.list.exists(x, string(x) == "7")`,
	} {
		holds, err := rule.Compile(condition, args)
		if err != nil {
			t.Fatal(err)
		}
		if yes, err := holds(rule.NewEvaluation(values)); !yes || err != nil {
			t.Errorf("%s gave %t, %v", condition, yes, err)
		}
	}
}

// A regular expression that is too large, or is none, fails the evaluation with the reason, whether it is part of the
// condition or a value. One of the maximum size does not.
func TestPatternLimit(t *testing.T) {
	t.Parallel()
	const tooComplex = "the regular expression is too complex, more than 10000 instructions: use fewer repetitions"
	largest, larger := `(?:aaaaaaaaa){1000}`, `(?:aaaaaaaaa){1000}a`
	if size := rule.PatternSize(largest); size != 10_000 {
		t.Fatalf("the largest expression has %d instructions", size)
	}
	vars := cel.Variable("args", cel.MapType(cel.StringType, cel.DynType))
	for _, c := range []struct {
		text, pattern any
		want          string
	}{
		{"b", largest, ""},
		{"b", larger, tooComplex},
		{"b", strings.Repeat("a", 10_000), ""},
		{"b", strings.Repeat("a", 10_001), tooComplex},
		{"b", "(", "missing closing )"},
		{"b", "a{1001}", "invalid repeat count"},
		{"b", 7, "no such overload"},
		{"b", nil, "no such overload"},
		{7, "a", "no such overload"},
	} {
		conditions := []string{`!args.text.matches(args.pattern)`, `!matches(args.text, args.pattern)`, `![args.pattern].exists(p, args.text.matches(p))`}
		if text, ok := c.pattern.(string); ok && len(text) < 100 {
			conditions = append(conditions, `!args.text.matches("`+text+`")`, `!matches(args.text, "`+text+`")`)
		}
		for _, condition := range conditions {
			holds, err := rule.Compile(condition, vars)
			if err != nil {
				t.Fatal(err)
			}
			yes, err := holds(rule.NewEvaluation(map[string]any{"args": map[string]any{"text": c.text, "pattern": c.pattern}}))
			if yes != (c.want == "") || (err == nil) != yes || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %.40v: %t, %v, want an error with %q", condition, c.pattern, yes, err, c.want)
			}
		}
	}
}

func TestLongExpressions(t *testing.T) {
	_, err := rule.Compile("true"+strings.Repeat(" || true", 4000), cel.Variable("args", cel.DynType))
	if err == nil || !strings.Contains(err.Error(), "4096 are allowed") {
		t.Errorf("an expression of 32,000 bytes gave %v", err)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`args.amount > 100`)
	f.Add(`args.to.matches("(a?){1000}x")`)
	f.Add(`[1, 2].exists(x, x == args.n) ? true : size(args.text) > 3`)
	vars := cel.Variable("args", cel.MapType(cel.StringType, cel.DynType))
	values := map[string]any{"args": map[string]any{"amount": 120.5, "to": "somebody", "n": 1, "text": "a text"}}
	f.Fuzz(func(_ *testing.T, text string) {
		if holds, err := rule.Compile(text, vars); err == nil {
			_, _ = holds(rule.NewEvaluation(values))
		}
	})
}

// The computed size of a regular expression is positive and bounded, and an expression that Go cannot compile
// costs nothing.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{"", "(a?){1000}x", "((a{30}){30}){30}", `\pL{900}`, "[^\\x00]{1000}", "(?i:ſ)*", "a**", "(", "a{1001}"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if len(p) > 1000 {
			return
		}
		size := rule.PatternSize(p)
		_, err := regexp.Compile(p)
		if size < 0 || size > 1<<30 || err == nil && size == 0 {
			t.Errorf("PatternSize(%q) = %d, and Compile says %v", p, size, err)
		}
	})
}
