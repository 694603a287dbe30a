package gemini

import (
	"encoding/json"
	"strings"
	"testing"
)

// A tool call whose pieces do not fit together is not made, and a call that was cut off only ends the response if the
// model should have ended it.
func TestCallsInPieces(t *testing.T) {
	t.Parallel()
	const open, whole, broken = "open", "whole", "broken"
	for name, test := range map[string]struct{ pieces, want, end string }{
		"one piece":             {`{"name":"f","args":{"a":1}}`, `f{"a":1}`, whole},
		"no arguments":          {`{"name":"f","args":null}`, `f{}`, whole},
		"in pieces":             {`{"name":"f","willContinue":true} {"partialArgs":[{"jsonPath":"$.a","stringValue":"x","willContinue":true}],"willContinue":true} {"partialArgs":[{"jsonPath":"$.a"}]}`, `f{"a":"x"}`, whole},
		"end without values":    {`{"name":"f","partialArgs":[{"jsonPath":"$.a","boolValue":true}],"willContinue":true} {}`, `f{"a":true}`, whole},
		"goes on":               {`{"name":"f","args":{}} {"name":"g","willContinue":true}`, `f{}`, open},
		"text continues":        {`{"name":"f","partialArgs":[{"jsonPath":"$.a","stringValue":"x","willContinue":true}]}`, ``, broken},
		"item continues":        {`{"name":"f","partialArgs":[{"jsonPath":"$.a[0]","stringValue":"x","willContinue":true}]}`, ``, broken},
		"not an object":         {`{"name":"f","args":[1]}`, ``, broken},
		"twice":                 {`{"id":"x","name":"f","args":{}} {"id":"x","name":"f","args":{}}`, `f{}`, whole},
		"id of another tool":    {`{"id":"x","name":"f","args":{}} {"id":"x","name":"g","args":{}}`, `f{} g{}`, whole},
		"begins twice":          {`{"id":"x","name":"f","willContinue":true} {"id":"x","name":"f","args":{}}`, `f{}`, broken},
		"arguments twice":       {`{"name":"f","args":{},"willContinue":true} {"args":{"a":1}}`, ``, broken},
		"whole after values":    {`{"name":"f","partialArgs":[{"jsonPath":"$.a","boolValue":true}],"willContinue":true} {"args":{"a":1}}`, ``, broken},
		"values after whole":    {`{"name":"f","args":{},"willContinue":true} {"partialArgs":[{"jsonPath":"$.a","boolValue":true}]}`, ``, broken},
		"arguments of no call":  {`{"name":"f","args":{}} {"args":{"a":1}}`, `f{}`, broken},
		"values of no call":     {`{"name":"f","args":{}} {"partialArgs":[{"jsonPath":"$.a","boolValue":true}]}`, `f{}`, broken},
		"nothing after the end": {`{"name":"f","args":{}} {}`, `f{}`, whole},
	} {
		var s calls
		for d := json.NewDecoder(strings.NewReader(test.pieces)); d.More(); {
			var p callPiece
			if err := d.Decode(&p); err != nil {
				t.Fatal(err)
			}
			s.add(p)
		}
		var made []string
		for _, c := range s.list {
			if c.closed {
				made = append(made, c.name+c.args)
			}
		}
		end := broken
		switch {
		case s.whole(false):
			end = whole
		case s.whole(true):
			end = open
		}
		if got := strings.Join(made, " "); end != test.end || got != test.want && end != broken {
			t.Errorf("%s: %s, %s; want %s, %s", name, end, got, test.end, test.want)
		}
	}
}
