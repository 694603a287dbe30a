package agent_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
)

// Each error in a file has its own line with file, line and column, in YAML and in JSON. An error about a
// missing key points to where it belongs.
func TestMistakesHaveTheirLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"unknown.yaml": {"name: hello\nmodel:\n  provider: scripted\n  responses: [{text: hi}]\ntools:\n  - name: a\n    descripton: x\n  - title: b\nlimits: {max_turn: 3}\n", []string{
			":7:5: tools[0].descripton: ", ":8:5: tools[1].title: ", ":9:10: limits.max_turn: unknown key",
		}},
		"unknown.json": {"{\n\t\"name\": \"hello\",\n\t\"model\": {\"provider\": \"scripted\"},\n\t\"tools\": [\n\t\t{\"name\": \"a\", \"x\": {\"y\": [1, 2]}},\n\t\t{\"title\": \"b\"}\n\t]\n}", []string{
			":5:17: tools[0].x: ", ":6:4: tools[1].title: ",
		}},
		"type.yaml":   {"name: hello\nlimits:\n  max_turns: many\n", []string{":3:3: limits.max_turns: a string is not valid here"}},
		"syntax.yaml": {"name: hello\nmodel: [\n", []string{":2: did not find expected node content"}},
		"first.yaml":  {"name: [\n", []string{":1: did not find expected node content"}},
		"first.json":  {`{"name": "a", "model": {"provider": }`, []string{":1: did not find expected"}},
		"flow.yaml":   {"name: a\nmodel: {responses: [}\n", []string{":2: did not find expected node content"}},
		"indent.yaml": {"name: a\nmodel:\n  provider: x\n bad: y\n", []string{":4: did not find expected key"}},
		"quote.yaml":  {"name: \"a\nmodel: x\n", []string{":2: found unexpected end of stream"}},
		"anchor.yaml": {"name: a\nmodel: *fast\n", []string{":2: unknown anchor 'fast' referenced"}},
		"tab.yaml":    {"name: a\n\tmodel: x\n", []string{":2: found a tab character"}},
		"twice.yaml":  {"name: a\nmodel: {provider: scripted}\nname: b\n", []string{":3: key \"name\" already set"}},
		"twice.json":  {"{\"name\": \"a\",\n \"name\": \"b\"}", []string{":1:2: name: the key occurs twice"}},
		"empty.yaml":  {"", []string{": the document is empty"}},
	} {
		_, err := agent.Builtin().Parse([]byte(test.text))
		if err == nil {
			t.Errorf("%s is read", name)
			continue
		}
		err = agent.InFile(name, []byte(test.text), err)
		for _, want := range test.want {
			if !strings.Contains(err.Error(), name+want) {
				t.Errorf("%s: %v; want %s", name, err, want)
			}
		}
		if lines := strings.Split(err.Error(), "\n"); len(lines) != len(test.want) {
			t.Errorf("%s: %d lines, want %d: %v", name, len(lines), len(test.want), err)
		}
	}
}

// Errors that Compile finds also have their location in the document.
func TestMistakesOfMeaningHaveTheirLine(t *testing.T) {
	t.Parallel()
	text := []byte("name: hello\nmodel: {provider: scripted, responses: [{text: hi}]}\ntools:\n  - name: a\n    kind: telepathy\n  - name: a\n    kind: http\n")
	def, err := agent.Builtin().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.Builtin().Compile(def, 1)
	if err == nil {
		t.Fatal("it compiles")
	}
	err = agent.InFile("a.yaml", text, err)
	for _, want := range []string{"a.yaml:5:5: tools[0].kind: ", "a.yaml:6:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// All errors are reported at once: semantic ones next to unknown keys. Errors that only follow from an unknown
// key are suppressed.
func TestMistakesAreAllThere(t *testing.T) {
	t.Parallel()
	text := []byte("name: hello\ninstruction: hi\nmodel: {provider: scriptd}\ntools:\n  - {name: a, kind: nats, aproof: always}\n  - {name: b c, kind: natz}\n  - {nam: d, kind: nats}\nlimits: {max_turn: 3, max_turns: -2}\n")
	_, err := agent.Builtin().Parse(text)
	err = agent.InFile("a.yaml", text, err)
	want := []string{
		"a.yaml:2:1: instruction: unknown key: remove it, or use one of name, description, instructions, model, loop, tools, hooks, limits, retention, compaction, webhook, output_schema, max_output_retries, variables; did you mean instructions?",
		"a.yaml:8:10: limits.max_turn: unknown key",
		"a.yaml:5:27: tools[0].aproof: unknown key",
		"a.yaml:7:6: tools[2].nam: unknown key",
		"a.yaml:3:9: model.provider: \"scriptd\" is not a provider of this build",
		"a.yaml:6:6: tools[1].name: ",
		"a.yaml:6:17: tools[1].kind: ",
		"a.yaml:8:23: limits.max_turns: ",
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("no error begins with %q", w)
		}
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != len(want) {
		t.Errorf("%d errors, want %d: %v", len(lines), len(want), err)
	}
}

func TestFaultsOfOtherErrors(t *testing.T) {
	t.Parallel()
	faults := agent.Faults(errors.New("the disk is full"))
	if len(faults) != 1 || faults[0].Error() != "the disk is full" || faults[0].At != "" {
		t.Errorf("Faults = %+v", faults)
	}
	if faults := agent.Faults(nil); faults != nil {
		t.Errorf("Faults of nil = %+v", faults)
	}
}
