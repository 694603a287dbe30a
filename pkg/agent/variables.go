package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/keys"
)

// Bounds of variables.
const (
	MaxVariables      = 100      // of an agent
	MaxVariableValues = 64 << 10 // bytes of the JSON object with the values of one run
	MaxInstructions   = 1 << 20  // bytes of instructions with the values in them
	maxPlaceholders   = 10_000   // in the instructions of an agent
)

var (
	variablePattern    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`)
	placeholderPattern = regexp.MustCompile(`\{\{([a-zA-Z_][a-zA-Z0-9_]{0,63})\}\}`)
)

// variables are the compiled variables of an agent.
type variables struct {
	schema   *jsonschema.Schema
	defaults map[string]string // the text of each variable without a value, by name; "" without a default
	required []string

	// The instructions are text[0], the value of names[0], text[1], and so on.
	text  []string
	names []string
}

// variables compiles the schema of the variables and cuts the instructions at their names.
func (c *checker) variables(a *Agent) {
	const place = "variables"
	raw := given(a.Definition.Variables)
	if len(raw) == 0 || !c.room(place, raw) {
		return
	}
	schema, err := jsonschema.CompileArguments(raw, &c.patterns)
	if err != nil {
		c.fault(place, "%v", err)
		return
	}
	var declared struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(raw, &declared); err != nil {
		c.fault(place, "%v", err)
		return
	}
	if n := len(declared.Properties); n == 0 || n > MaxVariables {
		c.fault(place+".properties", "there are %d variables: declare 1 to %d", n, MaxVariables)
		return
	}
	slices.Sort(declared.Required)
	v := &variables{schema: schema, defaults: map[string]string{}, required: slices.Compact(declared.Required)}
	for name, property := range declared.Properties {
		if !variablePattern.MatchString(name) {
			c.fault(place+".properties", "%q is not a valid name: use up to 64 letters, digits and _, and begin with no digit", name)
		}
		var p struct {
			Default json.RawMessage `json:"default"`
		}
		_ = json.Unmarshal(property, &p) // a boolean schema has no default
		v.defaults[name] = plainText(p.Default)
		if len(p.Default) > 0 && slices.Contains(v.required, name) {
			c.fault(place+".required", "%q is required and has a default, which would never apply: remove one of the two", name)
		}
	}
	for _, name := range v.required {
		if _, ok := v.defaults[name]; !ok {
			c.fault(place+".required", "%q is not among the properties: declare it there", name)
		}
	}
	if v.cut(a.Instructions); len(v.names) > maxPlaceholders {
		c.fault("instructions", "they use variables in %d places, at most %d are allowed: use fewer", len(v.names), maxPlaceholders)
	}
	a.variables = v
}

// cut cuts instructions at the names of the variables.
func (v *variables) cut(instructions string) {
	begin := 0
	for _, m := range placeholderPattern.FindAllStringSubmatchIndex(instructions, -1) {
		name := instructions[m[2]:m[3]]
		if _, ok := v.defaults[name]; ok {
			v.text, v.names = append(v.text, instructions[begin:m[0]]), append(v.names, name)
			begin = m[1]
		}
	}
	v.text = append(v.text, instructions[begin:])
}

// Instruct returns the instructions of a run whose variables have the values of a JSON object; values may be nil. Each
// {{name}} of a declared variable is replaced by its value, else its default, else nothing. Texts are inserted as they
// are, null as nothing, and other values as JSON. Braces in values, and all other braces, stay.
//
// The error is a [*Fault] about "variables" or "variables.NAME", or joins several: names that are not declared, missing
// required names, values that are not a JSON object, do not match the schema, are nested too deeply or exceed
// [MaxVariableValues], or instructions that exceed [MaxInstructions].
func (a *Agent) Instruct(values json.RawMessage) (string, error) {
	return a.instruct(values, jsonschema.RequestSteps())
}

// UndeclaredVariables returns the names in {{name}} of the instructions that are not declared, sorted. The model reads
// them with their braces.
func (a *Agent) UndeclaredVariables() []string {
	names := map[string]bool{}
	for _, m := range placeholderPattern.FindAllStringSubmatch(a.Instructions, -1) {
		if a.variables != nil {
			if _, declared := a.variables.defaults[m[1]]; declared {
				continue
			}
		}
		names[m[1]] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// OwnVariables returns those values that are of variables which the agent declares, or nil if there are none. values
// are those of a run, whose first agent may declare other variables than this one, after a handoff.
func (a *Agent) OwnVariables(values json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if a.variables == nil || json.Unmarshal(values, &all) != nil {
		return nil // no values are no JSON
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		_, declared := a.variables.defaults[name]
		return !declared
	})
	if len(all) == 0 {
		return nil
	}
	own, err := json.Marshal(all)
	if err != nil {
		return nil // what was decoded encodes
	}
	return own
}

// Instructor returns a function that does what Instruct does, for the runs of one request: together their checks may
// take as many steps as those of one run. The function must not be called concurrently.
func (a *Agent) Instructor() func(values json.RawMessage) (string, error) {
	left := jsonschema.RequestSteps()
	return func(values json.RawMessage) (string, error) { return a.instruct(values, left) }
}

func (a *Agent) instruct(values json.RawMessage, left *jsonschema.Steps) (string, error) {
	if values = bytes.TrimSpace(values); string(values) == "null" {
		values = nil
	}
	v := a.variables
	if v == nil {
		if len(values) > 0 && string(values) != "{}" {
			return "", &Fault{At: "variables", Text: fmt.Sprintf("agent %s declares no variables: remove them, or declare them in its definition", a.Name)}
		}
		return a.Instructions, nil
	}
	texts, err := v.texts(a.Name, values, left)
	if err != nil {
		return "", err
	}
	size := 0
	for i, s := range v.text {
		size += len(s)
		if i < len(v.names) {
			size += len(texts[v.names[i]])
		}
	}
	if size > MaxInstructions {
		return "", &Fault{At: "variables", Text: fmt.Sprintf("with them the instructions of agent %s have %d bytes, at most %d are allowed: pass shorter values", a.Name, size, MaxInstructions)}
	}
	var b strings.Builder
	b.WriteString(v.text[0])
	for i, name := range v.names {
		b.WriteString(texts[name])
		b.WriteString(v.text[i+1])
	}
	return b.String(), nil
}

// SharedInstructions returns the number of bytes at the start of the instructions that all runs of this version share:
// those before the first value of a variable. 0 means all bytes, and -1 none but white space.
func (a *Agent) SharedInstructions() int {
	if v := a.variables; v != nil && len(v.names) > 0 {
		if strings.TrimSpace(v.text[0]) == "" {
			return -1
		}
		return len(v.text[0])
	}
	return 0
}

// texts returns the text of each variable of the agent. Its errors are those of Instruct.
func (v *variables) texts(agent string, values json.RawMessage, left *jsonschema.Steps) (map[string]string, error) {
	if len(values) > MaxVariableValues {
		return nil, &Fault{At: "variables", Text: fmt.Sprintf("they have %d bytes, at most %d are allowed: pass shorter values", len(values), MaxVariableValues)}
	}
	if jsonschema.TooDeep(values) {
		return nil, &Fault{At: "variables", Text: fmt.Sprintf("they are nested more than %d levels deep: flatten them", jsonschema.MaxDepth)}
	}
	given := map[string]json.RawMessage{}
	if len(values) > 0 && (values[0] != '{' || json.Unmarshal(values, &given) != nil) {
		return nil, &Fault{At: "variables", Text: `they are not a JSON object: send one such as {"name": "value"}`}
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := v.defaults[name]; !ok && len(faults) < maxFaults {
			declared := slices.Sorted(maps.Keys(v.defaults))
			faults = append(faults, &Fault{At: "variables." + keys.Clip(name), Text: fmt.Sprintf("agent %s declares no such variable: remove it, or use one of %s", agent, keys.Clip(strings.Join(declared, ", ")))})
		}
	}
	for _, name := range v.required {
		if _, ok := given[name]; !ok {
			faults = append(faults, &Fault{At: "variables." + name, Text: fmt.Sprintf("it is missing, and agent %s requires it: pass it", agent)})
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var whole any = map[string]any{}
	if len(values) > 0 {
		if err := json.Unmarshal(values, &whole); err != nil {
			return nil, &Fault{At: "variables", Text: err.Error()}
		}
	}
	if err := v.schema.Validate(whole, left); err != nil {
		at := "variables"
		name, err := jsonschema.InMember(err)
		if _, declared := v.defaults[name]; declared {
			at += "." + name
		}
		return nil, &Fault{At: at, Text: err.Error()}
	}
	texts := make(map[string]string, len(v.defaults))
	for name, text := range v.defaults {
		if value, ok := given[name]; ok {
			text = plainText(value)
		}
		texts[name] = text
	}
	return texts, nil
}

// plainText returns a JSON string as text, other JSON in its shortest form with sorted keys, and "" for null or
// nothing.
func plainText(value json.RawMessage) string {
	var s string
	if len(value) == 0 || json.Unmarshal(value, &s) == nil { // null leaves s empty
		return s
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var v any
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // stored definitions are escaped
	if err := dec.Decode(&v); err != nil {
		return string(value)
	}
	if err := enc.Encode(v); err != nil {
		return string(value)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
