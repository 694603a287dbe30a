package agent_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/pkg/agent"
)

const head = `{"name":"a","model":{"provider":"scripted"},`

// TestHostileDefinitions: a definition of a megabyte is bounded in time, memory and the length of the answer.
// The bounds are generous: without them each case takes many times as much.
func TestHostileDefinitions(t *testing.T) {
	key := strings.Repeat("k", 98)
	var rules, tools, patterns, doubled, aliases strings.Builder
	for i := range 8000 {
		fmt.Fprintf(&rules, `{"name":"t%d","approval":"args.x > %d"},`, i, i)
	}
	for i := range 8000 {
		fmt.Fprintf(&tools, `{"name":"t%d","schema":{"type":"object","properties":{"a":{"type":"string"}}}},`, i)
	}
	for i := range 3000 {
		fmt.Fprintf(&patterns, `"p%d":{"pattern":"(a?){900}%d"},`, i, i)
	}
	var spread strings.Builder // over many schemas, each within its own bound
	for i := range 400 {
		fmt.Fprintf(&spread, `{"name":"t%d","schema":{"type":"object","properties":{"a":{"pattern":"(a?){900}"},"b":{"pattern":"(a?){900}"},"c":{"pattern":"(a?){900}"}}}},`, i)
	}
	for i := range 30000 {
		fmt.Fprintf(&doubled, `"a":%d,`, i%9)
	}
	aliases.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&aliases, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i)
	}
	var large strings.Builder
	for i := range 120 {
		fmt.Fprintf(&large, `,{"name":"t%d","approval":"args.x > 1%s"}`, i, strings.Repeat(" || args.a.b[0] == 'c'", 170))
	}
	schema := func(inner string) string {
		return head + `"tools":[{"name":"t","schema":{"type":"object","properties":` + inner + `}}]}`
	}
	for name, text := range map[string]string{
		"deep keys":        head + `"metadata":` + strings.Repeat(`{"`+key+`":`, 9990) + "1" + strings.Repeat("}", 9990) + "}",
		"deep lists":       strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000),
		"deep YAML":        "a: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deep YAML blocks": strings.Repeat("- ", 9000) + "x",
		"wide YAML":        "a: [" + strings.Repeat("a,", 500_000) + "]",
		"doubled keys":     head + doubled.String() + `"b":1}`,
		"one long key":     head + `"` + strings.Repeat("k", 900_000) + `":1}`,
		"long keys":        head + `"x":` + strings.Repeat(`{"`+strings.Repeat("k", 5000)+`":`, 190) + "1" + strings.Repeat("}", 190) + "}",
		"a long value":     head + `"loop":{"type":"` + strings.Repeat("k", 900_000) + `"}}`,
		"a long name":      `{"name":"` + strings.Repeat("k", 900_000) + `","model":{"provider":"scripted"}}`,
		"many faults":      head + `"tools":[` + strings.TrimSuffix(strings.Repeat("7,", 90_000), ",") + "]}",
		"rules":            head + `"tools":[` + strings.TrimSuffix(rules.String(), ",") + "]}",
		"large rules":      head + `"tools":[` + large.String()[1:] + "]}",
		"tools":            head + `"tools":[` + strings.TrimSuffix(tools.String(), ",") + "]}",
		"patterns":         schema("{" + strings.TrimSuffix(patterns.String(), ",") + "}"),
		"many patterns":    head + `"tools":[` + strings.TrimSuffix(spread.String(), ",") + "]}",
		"a large pattern":  schema(`{"a":{"pattern":"((((a{30}){30}){1}){1}){1}b{900}(\\pL{900})(\\pN{900})"},"b":{"pattern":"` + strings.Repeat("(a?){1000}", 1000) + `"}}`),
		"schema lists":     schema(`{"a":{"allOf":[` + strings.TrimSuffix(strings.Repeat("{},", 90_000), ",") + "]}}"),
		"schema levels":    schema(`{"a":` + strings.Repeat(`{"not":`, 190) + `{"description":"` + strings.Repeat("d", 900_000) + `"}` + strings.Repeat("}", 190) + "}"),
		"schema places":    schema(`{"` + strings.Repeat("k", 500_000) + `":{"properties":{` + strings.TrimSuffix(strings.Repeat(`"a":{},`, 5000), ",") + `}}}`),
		"aliases":          aliases.String(),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			def, err := agent.Builtin().Parse([]byte(text))
			if err == nil {
				_, err = agent.Builtin().Compile(def, 1)
			}
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d kB: %s, %d MiB allocated", len(text)>>10, took, allocated)
			if err == nil {
				t.Fatal("it is taken")
			}
			t.Logf("%.300s", err)
			if len(err.Error()) > 100_000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if allocated > 1000 {
				t.Errorf("%d MiB were allocated", allocated)
			}
		})
	}
}

// TestManyUnknownKeys: a key that no struct has takes few allocations, however many there are. Only some are reported, so
// the others are not compared with all names.
func TestManyUnknownKeys(t *testing.T) {
	var unknown, tools strings.Builder
	for i := range 70_000 {
		fmt.Fprintf(&unknown, `"k%d":1,`, i)
	}
	for i := range 22_000 {
		fmt.Fprintf(&tools, `{"kind":"http","k%d":1,"subject":1},`, i)
	}
	for name, c := range map[string]struct {
		text string
		keys int
	}{
		"of the definition": {head + unknown.String() + `"b":1}`, 70_000},
		"of tools":          {head + `"tools":[` + strings.TrimSuffix(tools.String(), ",") + "]}", 66_000},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			_, err := agent.Builtin().Parse([]byte(c.text))
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "more mistakes, which are not listed: correct the listed ones first") {
				t.Fatalf("it gave %.300v, want an error with the number of further mistakes", err)
			}
			each := int(after.Mallocs-before.Mallocs) / c.keys
			t.Logf("%d kB: %s, %d allocations for each key", len(c.text)>>10, took, each)
			if each > 50 { // most are of reading JSON
				t.Errorf("each key took %d allocations", each)
			}
		})
	}
}

// TestHostileValues: the cost of validating a value is bounded, however often a schema applies its parts.
func TestHostileValues(t *testing.T) {
	var levels strings.Builder
	for i := range 48 {
		fmt.Fprintf(&levels, `"l%d":{"allOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]},`, i, i+1, i+1)
	}
	text := `"` + strings.Repeat("a", 100<<10) + `"`
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]"
	for name, c := range map[string]struct{ schema, value string }{
		"paths":             {`{"$ref":"#/$defs/l0","$defs":{` + levels.String() + `"l48":{}}}`, `{}`},
		"paths of parts":    {`{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)},
		"a pattern":         {`{"pattern":"(a?){1000}x"}`, text},
		"patterns of names": {`{"patternProperties":{"(a?){1000}x":{}}}`, `{` + text + `:1}`},
		"names":             {`{"propertyNames":{"pattern":"(a?){1000}x"}}`, `{` + text + `:1}`},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := jsonschema.ValidateOutput([]byte(c.schema), c.value)
			t.Log(time.Since(began))
			if err == nil || !strings.Contains(err.Error(), "was stopped after 500000 steps, the maximum: send a smaller value, or simplify the schema") {
				t.Errorf("it gave %.300v, want an error that its check was stopped", err)
			} else if strings.Contains(err.Error(), "does not match") {
				t.Errorf("it gave %.300v, which claims a mismatch that was not determined", err)
			}
		})
	}
	for name, c := range map[string]struct{ schema, value string }{
		"a tree":  {`{"type":"object","properties":{"v":{"type":"integer"},"next":{"items":{"$ref":"#"}}},"additionalProperties":false}`, strings.Repeat(`{"v":1,"next":[`, 90) + strings.Repeat("]}", 90)},
		"a list":  {`{"items":{"type":"integer","minimum":0}}`, list},
		"a text":  {`{"pattern":"^[a-z ]+$","minLength":2}`, text},
		"choices": {`{"items":{"oneOf":[{"type":"string"},{"type":"integer"}]}}`, list},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := jsonschema.ValidateOutput([]byte(c.schema), c.value); err != nil {
				t.Errorf("an ordinary schema: %.300v", err)
			}
		})
	}
}

// TestLargeDefinitions: the largest accepted definitions.
func TestLargeDefinitions(t *testing.T) {
	var rules, tools strings.Builder
	for i := range 65 {
		fmt.Fprintf(&rules, `,{"name":"t%d","approval":"args.x > 1%s"}`, i, strings.Repeat(" || args.a.b[0] == 'c'", 20))
	}
	for i := range 1000 {
		fmt.Fprintf(&tools, `,{"name":"t%d","schema":{"type":"object","properties":{"a":{"type":"string"}}}}`, i)
	}
	for name, list := range map[string]string{"rules": rules.String(), "tools": tools.String()} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			def, err := agent.Builtin().Parse([]byte(head + `"tools":[` + list[1:] + "]}"))
			if err == nil {
				_, err = agent.Builtin().Compile(def, 1)
			}
			t.Log(time.Since(began))
			if err != nil {
				t.Errorf("%.500v", err)
			}
		})
	}
}

func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"pattern":"^a+$"}}}`, `{"a":"aa"}`)
	f.Add(`{"allOf":[{"$ref":"#"}]}`, `1`)
	f.Add(`{"items":{"anyOf":[{"type":"integer"},{"enum":["a",null]}]},"uniqueItems":true}`, `[1,"a",null]`)
	f.Add(`{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, `{"a":{"a":{"a":{}}}}`)
	f.Fuzz(func(t *testing.T, schema, text string) {
		value, err := jsonschema.ValidateOutput([]byte(schema), text)
		if err == nil && !json.Valid(value) {
			t.Errorf("%q was admitted as %q, which is not JSON", text, value)
		}
	})
}

// TestApprovalCost: the approval rules of one turn share a limit of cost. Beyond it, a person must approve.
func TestApprovalCost(t *testing.T) {
	t.Parallel()
	d, err := agent.Parse([]byte(head + `"tools":[{"name":"t","kind":"client","schema":{"type":"object"},"approval":"args.list.exists(x, x == 2)"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.Builtin().Compile(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	args, left, calls := `{"list":[`+strings.Repeat("1,", 3000)+`1]}`, agent.TurnSteps(), 0
	for !a.Tool("t").NeedsApprovalWithin(args, nil, left) {
		if calls++; calls > 100 {
			t.Fatal("100 calls with rules over 3,000 values need no approval")
		}
	}
	if calls < 2 || a.Tool("t").NeedsApproval(args, nil) {
		t.Errorf("%d calls needed no approval", calls)
	}
}
