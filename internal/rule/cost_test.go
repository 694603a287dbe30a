package rule_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"github.com/turnpike-dev/turnpike/internal/rule"
)

// hostile is an event whose sender wants that expressions over it cost much.
func hostile() map[string]any {
	list, object := make([]any, 15_000), map[string]any{}
	for i := range list {
		list[i] = int64(i)
	}
	for i := range 30_000 {
		object[fmt.Sprint(i)] = int64(i)
	}
	return map[string]any{
		"list": list, "object": object, "text": strings.Repeat("a", 1<<20), "pattern": strings.Repeat("a", 1<<20) + "(", "classes": strings.Repeat(`\pL`, 1000), "when": "2024-01-01T00:00:00Z",
	}
}

func holds(t *testing.T, text string, e *rule.Evaluation) (bool, error) {
	t.Helper()
	condition, err := rule.Compile(text, cel.Variable("event", cel.DynType), cel.Variable("delivery", cel.StringType), cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)))
	if err != nil {
		t.Fatalf("%.100s: %.500v", text, err)
	}
	return condition(e)
}

// TestHostileCost: without its limit, each of these expressions takes from a second to forever.
func TestHostileCost(t *testing.T) {
	t.Parallel()
	event := hostile()
	values := map[string]any{"event": event, "delivery": event["text"], "headers": map[string]string{"a": "b"}}
	ones := "[" + strings.Repeat("1,", 100) + "1]"
	double := strings.Repeat(".map(a, [a, a])", 30)
	for _, text := range []string{
		`event.list.all(x, ` + strings.Repeat("false || ", 400) + `true)`,
		`event.list.all(x, (` + strings.Repeat("false ? 1 : ", 40) + `2) == 2 && event.list.size() > 1)`,
		`event.list.all(x, event.list.all(y, true))`,
		`event.list.all(x, event.object.exists(k, true))`,
		`event.list.all(x, size(event.text) > 0)`,
		`event.list.all(x, event.text.contains("b") || true)`,
		`event.list.all(x, event.object[event.text] == 1 || true)`,
		ones + `.all(a, ` + ones + `.all(b, headers[delivery] == "" || true))`,
		ones + `.all(a, ` + ones + `.all(b, headers[true ? delivery : delivery] == "" || true))`,
		`event.list.all(x, double(event.text) > 1.0 || true)`,
		`event.list.all(x, timestamp(event.when).getHours("America/New_York") >= 0)`,
		`event.list.map(x, {event.text: x}).size() > 1`,
		`"a".matches(event.classes)`,
		`event.list.all(x, "a".matches(event.pattern) || true)`,
		`event.list.all(x, "a".matches(string(x) + "(?i)[b-` + "\U0001e900" + `]") || true)`,
		`[event.text]` + double + ` == [event.text]` + double,
		`event.text in [event.text]` + double,
		`event.object[[event.text]` + double + `] == ""`,
		`[event.list]` + strings.Repeat(".map(a, a + a)", 30) + `.size() == 1`,
		`[` + strings.Repeat("event.text + ", 220) + `""].size() > 1`,
		`(` + strings.Repeat("[1] + ", 220) + `[1]).all(x, (` + strings.Repeat("[1] + ", 220) + `[1]).all(y, true))`,
	} {
		if _, err := holds(t, text, rule.NewEvaluation(values)); err == nil || !strings.Contains(err.Error(), "too much") && !strings.Contains(err.Error(), "no such") || len(err.Error()) > 1000 {
			t.Errorf("%.100s: %.500v, want that it costs too much", text, err)
		}
	}
	for _, text := range []string{
		`event.list.all(x, x >= 0)`, `!event.list.exists(x, x == -1)`, `event.list.filter(x, x > 14000).map(x, x * 2).size() == 999`, `event.text.contains("aaa") && !event.text.startsWith("b")`,
		`event.list.all(x, x != event.list)`, `event.list.all(x, string(x).matches("^[0-9]+$"))`, `event.object["7"] == 7 && event.object.exists(k, k != "")`, `size(event.text) > 5`, `event.text + "b" != event.text`,
		`timestamp(event.when).getHours("Europe/Berlin") == 1`, `[1] + [2] == [1, 2] && 2 in [1] + [2]`, `{"a": [1]}.a[0] == 1 && has(event.text) && !has(event.none)`,
	} {
		if yes, err := holds(t, text, rule.NewEvaluation(values)); !yes || err != nil {
			t.Errorf("%s: %t, %v", text, yes, err)
		}
	}
}

// TestBudget: the expressions of one delivery share a limit of cost.
func TestBudget(t *testing.T) {
	t.Parallel()
	budget := rule.NewBudget()
	for n := range 100 {
		_, err := holds(t, `event.list.all(x, x >= 0)`, budget.Evaluation(map[string]any{"event": hostile()}))
		if err == nil {
			continue
		}
		if n == 0 || !strings.Contains(err.Error(), "too much") {
			t.Errorf("expression %d: %v", n, err)
		}
		return
	}
	t.Error("100 expressions over a list of 15,000 values were not too much")
}

// TestBudgetIsSpent: after an expression that costs too much, nothing is left for those behind it.
func TestBudgetIsSpent(t *testing.T) {
	t.Parallel()
	values := map[string]any{"event": hostile()}
	value, err := rule.CompileValue(`event.list.map(x, event.text)`, cel.Variable("event", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	for name, costly := range map[string]func(*rule.Evaluation) error{
		"its steps": func(e *rule.Evaluation) error {
			_, err := holds(t, `event.list.all(x, event.list.all(y, true))`, e)
			return err
		},
		"its value": func(e *rule.Evaluation) error {
			_, err := value(e)
			return err
		},
	} {
		budget := rule.NewBudget()
		if err := costly(budget.Evaluation(values)); err == nil || !strings.Contains(err.Error(), "too much") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := holds(t, `delivery == "d"`, budget.Evaluation(map[string]any{"delivery": "d"})); err == nil || !strings.Contains(err.Error(), "too much") {
			t.Errorf("%s: the next expression was evaluated: %v", name, err)
		}
	}
}

// TestLargeOutput: a value that an expression repeats does not fill the memory.
func TestLargeOutput(t *testing.T) {
	t.Parallel()
	vars := cel.Variable("event", cel.DynType)
	for _, text := range []string{`event.list.map(x, event.text)`, `{"a": [event.list]` + strings.Repeat(".map(a, [a, a])", 30) + `}`} {
		value, err := rule.CompileValue(text, vars)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := value(rule.NewEvaluation(map[string]any{"event": hostile()})); err == nil || !strings.Contains(err.Error(), "too much") {
			t.Errorf("%s: %d bytes, %v", text, len(out), err)
		}
	}
}

// TestJSON: values become the JSON that CEL specifies.
func TestJSON(t *testing.T) {
	t.Parallel()
	values := map[string]any{"event": map[string]any{"b": []any{1.5, int64(7), nil, true, "<ä\"\n>"}, "a": map[string]any{}}, "headers": map[string]string{"x": "y"}}
	vars := []cel.EnvOption{cel.Variable("event", cel.DynType), cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType))}
	for text, want := range map[string]string{
		`event`:   `{"a":{},"b":[1.5,7,null,true,"<ä\"\n>"]}`,
		`headers`: `{"x":"y"}`,
		`[event.b[1] + 1, 9007199254740993, 3u, b"a", duration("90s"), timestamp("2024-01-01T00:00:00Z")]`: `[8,"9007199254740993",3,"YQ==","90s","2024-01-01T00:00:00Z"]`,
		`{"n": [1] + [2], "m": [1, 2].map(x, {"x": x})}`:                                                   `{"m":[{"x":1},{"x":2}],"n":[1,2]}`,
	} {
		value, err := rule.CompileValue(text, vars...)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := value(rule.NewEvaluation(values)); err != nil || string(out) != want {
			t.Errorf("%s: %s, %v, want %s", text, out, err, want)
		}
	}
	for _, text := range []string{`{1: 2}`, `[double("NaN")]`, `"x"`} {
		object, err := rule.CompileObject(text, vars...)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := object(rule.NewEvaluation(values)); err == nil {
			t.Errorf("%s is the object %s", text, out)
		}
	}
}

// TestPatternsAreNotRead: Go reads some regular expressions in milliseconds a byte.
func TestPatternsAreNotRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"(?i)" + strings.Repeat("[b-\U0001e900]", 50_000), "(?i)[" + strings.Repeat("b-\U0001e900", 50_000) + "]", `(?s-i:(?i:` + strings.Repeat(`[\x{100}-\x{1e900}]`, 50_000) + "))",
		strings.Repeat(`[\pL]`, 100_000), strings.Repeat("[a]", 1<<20) + "(",
	} {
		if size := rule.PatternSize(text); size <= 10_000 {
			t.Errorf("%.20s of %d bytes has %d instructions", text, len(text), size)
		}
	}
	for _, text := range []string{`(?i)^[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}$`, "(?i)[à-ÿ]+", `[\x{4e00}-\x{9fff}]+`, `(?i)[\x{4e00}-\x{9fff}]+`, `\pL+\s\p{Greek}`} {
		if size := rule.PatternSize(text); size == 0 || size > 5000 || regexp.MustCompile(text) == nil {
			t.Errorf("%s has %d instructions", text, size)
		}
	}
}

// An expression that is to return a text and returns something else says what to change.
func TestTextOfOtherTypes(t *testing.T) {
	t.Parallel()
	for expression, remedy := range map[string]string{
		"event.none": "give a default",
		"event.user": "choose one of its fields",
		"event.list": "choose one of its items",
		"event.n":    "convert it with string",
	} {
		text, err := rule.CompileText(expression, cel.Variable("event", cel.DynType))
		if err != nil {
			t.Fatal(err)
		}
		event := map[string]any{"none": nil, "user": map[string]any{}, "list": []any{}, "n": 1.0}
		_, err = text(rule.NewEvaluation(map[string]any{"event": event}))
		if err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: the error is %v, want one that says %q", expression, err, remedy)
		}
	}
}
