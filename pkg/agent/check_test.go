package agent_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/pkg/agent"
)

// TestHostileChecks: small schemas and values on which a naive checker would spend seconds or gigabytes get a
// short answer at low cost.
func TestHostileChecks(t *testing.T) {
	many := func(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	deep := func(open, leaf, end string, n int) string {
		return strings.Repeat(open, n) + leaf + strings.Repeat(end, n)
	}
	var unique, pairs strings.Builder
	for i := range 60 {
		for j := range 60 - i {
			fmt.Fprintf(&unique, `,["%s","%s","%s"]`, strings.Repeat("a", i), strings.Repeat("a", j), strings.Repeat("a", 60-i-j))
		}
	}
	for i := range 2000 {
		fmt.Fprintf(&pairs, `,{"%s":"%s"}`, strings.Repeat("a", i), strings.Repeat("a", 2000-i))
	}
	var tree strings.Builder
	for i := range 14 {
		fmt.Fprintf(&tree, `"l%d":{"anyOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]},`, i, i+1, i+1)
	}
	var names, bigs strings.Builder
	for i := range 50000 {
		fmt.Fprintf(&names, `,"k%d":1`, i)
	}
	for i := range 60000 {
		fmt.Fprintf(&bigs, `,%d.%de300`, i%9+1, i)
	}
	long := strings.Repeat("p", 900)
	var chain strings.Builder
	for i := range 90 {
		fmt.Fprintf(&chain, `"%s%d":{"allOf":[{"$ref":"#/$defs/%s%d"}]},`, strings.Repeat("p", 40), i, strings.Repeat("p", 40), i+1)
	}
	list := "[" + many("1", 100_000) + "]"
	for _, c := range []struct{ name, schema, value string }{
		{"unique strings", `{"uniqueItems":true}`, "[" + unique.String()[1:] + "]"},
		{"unique maps", `{"uniqueItems":true}`, "[" + pairs.String()[1:] + "]"},
		{"unique numbers", `{"uniqueItems":true}`, "[" + bigs.String()[1:] + "]"},
		{"anyOf long name", `{"anyOf":[` + many(`{"additionalProperties":false}`, 5000) + `]}`, `{` + text(1000000) + `:1}`},
		{"anyOf long name 2", `{"anyOf":[` + many(`{"unevaluatedProperties":false}`, 5000) + `]}`, `{` + text(1000000) + `:1}`},
		{"anyOf tree", `{"$ref":"#/$defs/l0","$defs":{` + tree.String() + `"l14":{"type":"string"}}}`, `1`},
		{"anyOf contains", `{"anyOf":[` + many(`{"contains":false}`, 4000) + `]}`, `[` + text(100000) + `]`},
		{"anyOf minlen", `{"anyOf":[` + many(`{"maxLength":1}`, 5000) + `]}`, text(10000)},
		{"anyOf long path", `{"anyOf":[` + many(`{"properties":{"`+long+`":{"type":"string"}}}`, 600) + `]}`, `{"` + long + `":1}`},
		{"wraps", `{"properties":{"a":{"$ref":"#"},"b":{"type":"integer"}}}`, deep(`{"a":`, `{"b":`+text(1000000)+`}`, "}", 190)},
		{"wraps of enum", `{"properties":{"a":{"$ref":"#"},"b":{"enum":[1]}}}`, deep(`{"a":`, `{"b":`+text(1000000)+`}`, "}", 190)},
		{"wraps of contains", `{"properties":{"a":{"$ref":"#"},"b":{"contains":false}}}`, deep(`{"a":`, `{"b":[`+text(1000000)+`]}`, "}", 190)},
		{"wraps of names", `{"properties":{"a":{"$ref":"#"},"b":{"additionalProperties":false}}}`, deep(`{"a":`, `{"b":{`+text(1000000)+`:1}}`, "}", 190)},
		{"wraps of pattern", `{"properties":{"a":{"$ref":"#"},"b":{"pattern":"b"}}}`, deep(`{"a":`, `{"b":`+text(1000000)+`}`, "}", 190)},
		{"anyOf chain", `{"anyOf":[` + many(`{"$ref":"#/$defs/`+strings.Repeat("p", 40)+`0"}`, 2000) + `],"$defs":{` + chain.String() + `"` + strings.Repeat("p", 40) + `90":{"type":"string"}}}`, `1`},
		{"multipleOf", `{"items":{"multipleOf":1e-300,"minimum":1e-300,"maximum":1e308,"exclusiveMinimum":1e-300,"exclusiveMaximum":1e308}}`, "[" + bigs.String()[1:] + "]"},
		{"enum bigs", `{"items":{"enum":[` + many(`1e308`, 8) + `,1]}}`, "[" + many("1e307", 50000) + "]"},
		{"allOf objects", `{"allOf":[` + many(`{"additionalProperties":true}`, 9) + `]}`, "{" + names.String()[1:] + "}"},
		{"patternProperties", `{"patternProperties":{"a":true,"b":true,"c":true,"d":true,"k":{"minimum":0}}}`, "{" + names.String()[1:] + "}"},
		{"patternProperties 2", `{"allOf":[` + many(`{"patternProperties":{"^k":true}}`, 9) + `]}`, "{" + names.String()[1:] + "}"},
		{"unevaluated", `{"allOf":[` + many(`{"allOf":[{"properties":{"k1":true}}],"additionalProperties":true}`, 4) + `],"unevaluatedProperties":false}`, "{" + names.String()[1:] + "}"},
		{"annotations", `{"additionalProperties":true,"$ref":"#/$defs/l0","$defs":{` + strings.ReplaceAll(strings.ReplaceAll(tree.String(), "anyOf", "allOf"), `"l`, `"l`) + `"l14":{}}}`, "{" + names.String()[1:] + "}"},
		{"annotations 2", `{"allOf":[` + deep(`{"allOf":[`, `{"additionalProperties":true}`, `]}`, 90) + `]}`, "{" + names.String()[1:] + "}"},
		{"annotations 3", `{"allOf":[` + deep(`{"allOf":[`, `{"contains":true}`, `]}`, 90) + `]}`, "[" + many("1", 100000) + "]"},
		{"dependents", `{"dependentRequired":{"k1":[` + many(`"k1"`, 9000) + `]}}`, "{" + names.String()[1:] + "}"},
		{"wide properties", `{"items":{"properties":{` + strings.ReplaceAll(names.String()[1:200000], ":1", ":true") + `:true}}}`, "[" + many("{}", 6000) + "]"},

		{"many branches", `{"anyOf":[` + many(`{"type":"string"}`, 5000) + `]}`, list},
		{"enums", `{"items":{"enum":[` + many(`2`, 9000) + `]}}`, list},
		{"contains", `{"items":{"contains":{"contains":{"const":1}}},"allOf":[` + many(`{"contains":{"type":"string"}}`, 100) + `]}`, list},
		{"contains all", `{"allOf":[` + many(`{"contains":{"type":"integer"}}`, 100) + `]}`, list},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := jsonschema.ValidateOutput([]byte(c.schema), c.value)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d kB, %d kB: %d MiB allocated: %.200v", len(c.schema)>>10, len(c.value)>>10, allocated, err)
			if allocated > 200 {
				t.Errorf("%d MiB were allocated", allocated)
			}
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestStepsOfATurn: the calls of one turn share a budget of validation steps.
func TestStepsOfATurn(t *testing.T) {
	def, err := agent.Builtin().Parse([]byte(head + `"tools":[{"name":"t","schema":{"properties":{"a":{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"items":{"type":"integer"}},`, 10), ",") + `]}}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.Builtin().Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	call := `{"a":[` + strings.TrimSuffix(strings.Repeat("1,", 30_000), ",") + `]}`
	left := agent.TurnSteps()
	for i := range 3 {
		if err := a.Tool("t").ValidateWithin(call, left); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if err := a.Tool("t").ValidateWithin(call, left); err == nil || !strings.Contains(err.Error(), "steps, which earlier checks had left of 1000000: send fewer") {
		t.Errorf("the fourth call gave %v, want an error that earlier checks used the steps", err)
	}
	if err := a.Tool("t").ValidateWithin(call, left); err == nil || !strings.Contains(err.Error(), "send fewer at once") {
		t.Errorf("the fifth call gave %v, want an error that asks for fewer calls at once", err)
	}
	if err := a.Tool("t").Validate(call); err != nil {
		t.Errorf("by itself: %v", err)
	}
}
