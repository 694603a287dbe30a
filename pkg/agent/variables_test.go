package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
)

func withVariables(t *testing.T, instructions, schema string) (*agent.Agent, error) {
	t.Helper()
	def := agent.Definition{Name: "a", Instructions: instructions, Variables: json.RawMessage(schema)}
	def.Model.Provider = "scripted"
	return agent.Builtin().Compile(def, 1)
}

// Only declared names are replaced, once, by values that are not expanded again.
func TestInstruct(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "object", "required": ["who"], "properties": {
		"who": {"type": "string"}, "n": {"type": "integer", "default": 7}, "more": {}}}`
	for name, c := range map[string]struct {
		instructions, values string
		want                 string
	}{
		"text":             {"Help {{who}} now.", `{"who": "Ada"}`, "Help Ada now."},
		"default":          {"{{n}} times.", `{"who": ""}`, "7 times."},
		"given":            {"Do {{n}} times.", `{"who": "", "n": 12}`, "Do 12 times."},
		"not given":        {"More:{{more}}.", `{"who": ""}`, "More:."},
		"null":             {"More:{{more}}.", `{"who": "", "more": null}`, "More:."},
		"JSON":             {"More: {{more}}", `{"who": "", "more": {"a": [1, "<"]}}`, "More: " + `{"a":[1,"<"]}`},
		"twice":            {"{{who}}, {{who}}!", `{"who": "Ada"}`, "Ada, Ada!"},
		"no second look":   {"Help {{who}} {{n}}.", `{"who": "{{n}}{{who}}"}`, "Help {{n}}{{who}} 7."},
		"other braces":     {"{{ who }} {{{who}}} {{nobody}} {who} {{", `{"who": "Ada"}`, "{{ who }} {Ada} {{nobody}} {who} {{"},
		"none is used":     {"Be brief.", `{"who": "Ada"}`, "Be brief."},
		"no instructions":  {"", `{"who": "Ada"}`, ""},
		"blank before it":  {" \n{{who}}", `{"who": "Ada"}`, " \nAda"},
		"blank behind it":  {"Hello{{who}}", `{"who": " "}`, "Hello "},
		"spaces around it": {"Hi {{who}}", " {\"who\": \"Ada\"}\n", "Hi Ada"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := withVariables(t, c.instructions, schema)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := a.Instruct(json.RawMessage(c.values)); got != c.want || err != nil {
				t.Errorf("Instruct = %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// Invalid values are refused with their location.
func TestVariablesThatDoNotFit(t *testing.T) {
	t.Parallel()
	declared, err := withVariables(t, strings.Repeat("{{who}}", 10_000), `{"required": ["who"], "properties": {"who": {"type": "string"}, "n": {"type": "integer"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	none, err := withVariables(t, "{{who}}", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		a            *agent.Agent
		values, want string
	}{
		"missing":           {declared, `{}`, "variables.who: it is missing, and agent a requires it"},
		"nothing":           {declared, ``, "variables.who: it is missing"},
		"not declared":      {declared, `{"who": "", "whom": 1}`, "variables.whom: agent a declares no such variable: remove it, or use one of n, who"},
		"wrong type":        {declared, `{"who": "", "n": "seven"}`, `variables.n: the value: it is "seven": send a value of type integer`},
		"no object":         {declared, `["who"]`, "variables: they are not a JSON object"},
		"too long":          {declared, fmt.Sprintf(`{"who": %q}`, strings.Repeat("x", agent.MaxVariableValues)), "variables: they have 65547 bytes, at most 65536"},
		"too often":         {declared, fmt.Sprintf(`{"who": %q}`, strings.Repeat("x", 120)), "variables: with them the instructions of agent a have 1200000 bytes"},
		"too deep":          {declared, `{"who": ` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, "variables: they are nested more than"},
		"none are declared": {none, `{"who": "Ada"}`, "variables: agent a declares no variables"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.a.Instruct(json.RawMessage(c.values))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("Instruct = %.200v, want %s", err, c.want)
			}
		})
	}
	if got, err := none.Instruct(json.RawMessage(`{}`)); got != "{{who}}" || err != nil {
		t.Errorf("no values for no variables: %q, %v", got, err)
	}
}

func TestDeclaredVariables(t *testing.T) {
	t.Parallel()
	if _, err := withVariables(t, strings.Repeat("{{a}}", 10_001), `{"properties": {"a": {}}}`); err == nil || !strings.Contains(err.Error(), "instructions: they use variables in 10001 places") {
		t.Errorf("10,001 placeholders = %.200v", err)
	}
	properties := `"v": {}`
	for i := range agent.MaxVariables - 1 {
		properties += fmt.Sprintf(`, "v%d": {}`, i)
	}
	if _, err := withVariables(t, "x", `{"properties": {`+properties+`}}`); err != nil {
		t.Errorf("%d variables: %v", agent.MaxVariables, err)
	}
	for schema, want := range map[string]string{
		`{"properties": {"one more": {}, ` + properties + `}}`: "variables.properties: there are 101 variables: declare 1 to 100",
		`{"type": "string"}`:                                       "variables: ",
		`{"type": "object"}`:                                       "variables.properties: there are 0 variables: declare 1 to 100",
		`{"properties": {"a b": {}}}`:                              `variables.properties: "a b" is not a valid name: use up to 64`,
		`{"properties": {"a": {"type": 7}}}`:                       "variables: ",
		`{"properties": {"a": {"minimum": 1}}, "required": ["b"]}`: `variables.required: "b" is not among the properties`,
		`{"properties": {"a": {"default": 1}}, "required": ["a"]}`: `variables.required: "a" is required and has a default, which would never apply`,
	} {
		if _, err := withVariables(t, "x", schema); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %v, want %s", schema, err, want)
		}
	}
}

// Whatever the values, the text outside of placeholders is unchanged and nothing is expanded twice.
func FuzzInstruct(f *testing.F) {
	f.Add("Help {{who}} with {{what}}.", "Ada", "{{who}}")
	f.Add("{{who}}{{who}}", "}}", "{{")
	f.Fuzz(func(t *testing.T, instructions, who, what string) {
		a, err := withVariables(t, instructions, `{"properties": {"who": {}, "what": {}}}`)
		if err != nil {
			if strings.Count(instructions, "{{") <= 10_000 {
				t.Fatal(err)
			}
			return
		}
		values, err := json.Marshal(map[string]string{"who": who, "what": what})
		if err != nil {
			t.Fatal(err)
		}
		var read map[string]string // without invalid UTF-8
		if err := json.Unmarshal(values, &read); err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer("{{who}}", read["who"], "{{what}}", read["what"]).Replace(instructions)
		tooLong := len(values) > agent.MaxVariableValues || len(want) > agent.MaxInstructions
		if got, err := a.Instruct(values); (err != nil) != tooLong || err == nil && got != want {
			t.Errorf("Instruct = %q, %v, want %q", got, err, want)
		}
	})
}

// Defaults of objects read as written, and the runs of one request share a budget of validation steps.
func TestInstructor(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Name: "a", Instructions: "{{tag}} {{list}}", Variables: json.RawMessage(`{"properties": {
		"tag": {"default": {"b": "<i>\u003c&", "a": 9007199254740993}}, "list": {"type": "array", "items": {"anyOf": [` + strings.Repeat(`{"type": "string"},`, 500) + `true]}}}}`)}
	def.Model.Provider = "scripted"
	stored, err := json.Marshal(def) // escapes < and &
	if err != nil {
		t.Fatal(err)
	}
	if def, err = agent.Parse(stored); err != nil {
		t.Fatal(err)
	}
	a, err := agent.Builtin().Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Instruct(nil); got != `{"a":9007199254740993,"b":"<i><&"} ` || err != nil {
		t.Errorf("Instruct = %q, %v", got, err)
	}
	values := json.RawMessage(`{"list": [` + strings.TrimSuffix(strings.Repeat("1,", 200), ",") + `]}`)
	instruct := a.Instructor()
	for i := range 100 {
		if _, err = instruct(values); err != nil {
			if i == 0 || !strings.Contains(err.Error(), "was stopped after") {
				t.Errorf("run %d: %v", i, err)
			}
			return
		}
	}
	t.Error("a hundred runs of one request exceeded the budget of validation steps")
}
