package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func want(parts ...string) []state.Part {
	var out []state.Part
	for i := 0; i < len(parts); i += 3 {
		out = append(out, state.Part{Type: state.PartToolCall, ID: parts[i], Name: parts[i+1], Arguments: parts[i+2]})
	}
	return out
}

func TestCalls(t *testing.T) {
	t.Parallel()
	at := func(i int64, id, name, args string) piece { return piece{i, true, id, name, args, ""} }
	free := func(id, name, args string) piece { return piece{id: id, name: name, args: args} }
	for name, test := range map[string]struct {
		in    []piece
		want  []state.Part
		known []state.Part
	}{
		"openai":               {[]piece{at(0, "a", "f", ""), at(0, "", "", `{"x"`), at(0, "", "", `:1}`), at(1, "b", "g", ""), at(1, "", "", `{}`)}, want("a", "f", `{"x":1}`, "b", "g", `{}`), want("a", "f", `{"x":1}`)},
		"interleaved":          {[]piece{at(0, "a", "f", ""), at(1, "b", "g", ""), at(0, "", "", `{"x":1}`), at(1, "", "", `{"y"`), at(1, "", "", `:2}`)}, want("a", "f", `{"x":1}`, "b", "g", `{"y":2}`), want("a", "f", `{"x":1}`)},
		"starts at one":        {[]piece{at(1, "a", "f", `{}`)}, want("a", "f", `{}`), nil},
		"no id":                {[]piece{at(0, "", "f", `{}`), at(1, "", "g", `{}`)}, want("call_3_0", "f", `{}`, "call_3_1", "g", `{}`), want("call_3_0", "f", `{}`)},
		"id comes late":        {[]piece{at(0, "", "f", ``), at(0, "late", "", `{}`)}, want("call_3_0", "f", `{}`), nil},
		"id rotates":           {[]piece{at(0, "a", "f", ""), at(0, "b", "", `{"x"`), at(0, "c", "", `:1}`)}, want("a", "f", `{"x":1}`), nil},
		"all numbered 0":       {[]piece{at(0, "a", "f", `{"x":1}`), at(0, "b", "f", `{"x":2}`)}, want("a", "f", `{"x":1}`, "b", "f", `{"x":2}`), want("a", "f", `{"x":1}`)},
		"name in pieces":       {[]piece{at(0, "a", "get_", ""), at(0, "", "weather", ""), at(0, "", "", `{}`)}, want("a", "get_weather", `{}`), nil},
		"name each time":       {[]piece{at(0, "a", "f", ""), at(0, "a", "f", `{"x"`), at(0, "a", "f", `:1}`)}, want("a", "f", `{"x":1}`), nil},
		"name again, new id":   {[]piece{at(0, "a", "f", ""), at(0, "b", "f", `{"x":1}`)}, want("a", "f", `{"x":1}`), nil},
		"all numbered 0, late": {[]piece{at(0, "a", "f", ""), at(0, "b", "g", `{}`)}, want("a", "f", `{}`, "b", "g", `{}`), nil},
		"name after arguments": {[]piece{at(0, "a", "", ""), at(0, "", "f", `{}`)}, want("a", "f", `{}`), nil},
		"no number":            {[]piece{free("a", "f", `{"x"`), free("", "", `:1}`), free("b", "g", `{}`), free("a", "", ``)}, want("a", "f", `{"x":1}`, "b", "g", `{}`), want("b", "g", `{}`)},
		"no number, no id":     {[]piece{free("", "f", `{"x":1}`), free("", "g", `{}`)}, want("call_3_0", "f", `{"x":1}`, "call_3_1", "g", `{}`), want("call_3_0", "f", `{"x":1}`)},
		"no arguments":         {[]piece{at(0, "a", "f", ""), at(1, "b", "g", " ")}, want("a", "f", `{}`, "b", "g", `{}`), nil},
		"not JSON":             {[]piece{at(0, "a", "f", "x=1"), at(1, "b", "g", "{}")}, want("a", "f", `x=1`, "b", "g", `{}`), nil},
		"no name":              {[]piece{at(0, "a", "", "{}"), at(1, "b", "", "{}")}, nil, nil},
	} {
		s := newCalls(3, "")
		for _, p := range test.in {
			s.add(p)
		}
		if diff := cmp.Diff(test.want, s.parts(model.StopToolCalls)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.known, s.known()); diff != "" {
			t.Errorf("%s, known (-want +got):\n%s", name, diff)
		}
	}
}

// Of a response that was cut off, the call with the latest piece runs only if it is whole. The others are as they came.
func TestCutCalls(t *testing.T) {
	t.Parallel()
	at := func(i int64, id, name, args string) piece { return piece{i, true, id, name, args, ""} }
	for name, test := range map[string]struct {
		in        []piece
		want, cut []state.Part
	}{
		"whole":         {[]piece{at(0, "a", "f", `{"x":1}`)}, want("a", "f", `{"x":1}`), want("a", "f", `{"x":1}`)},
		"in part":       {[]piece{at(0, "a", "f", `{"x":`)}, want("a", "f", `{"x":`), nil},
		"empty":         {[]piece{at(0, "a", "f", "")}, want("a", "f", "{}"), nil},
		"before":        {[]piece{at(0, "a", "f", ""), at(1, "b", "g", `{`)}, want("a", "f", "{}", "b", "g", "{"), want("a", "f", "{}")},
		"first is last": {[]piece{at(0, "a", "f", `{`), at(1, "b", "g", ""), at(0, "", "", `"x"`)}, want("a", "f", `{"x"`, "b", "g", "{}"), want("b", "g", "{}")},
	} {
		s := newCalls(3, "")
		for _, p := range test.in {
			s.add(p)
		}
		for stop, want := range map[model.Stop][]state.Part{model.StopEnd: test.want, model.StopMaxOutputTokens: test.cut, model.StopContentFilter: test.cut} {
			if diff := cmp.Diff(want, s.parts(stop)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, stop, diff)
			}
		}
	}
}

func TestStrict(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`:                          true,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                                                       false,
		`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`:                                           false,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`: false,
		`{"type":"array","items":{"type":"string"}}`:                                                                                    false,
		`{"type":"object","properties":{"a":{"oneOf":[{"type":"string"}]}},"required":["a"],"additionalProperties":false}`:              false,
		`{"type":"object","properties":{"a":{"type":"string","not":{"const":"x"}}},"required":["a"],"additionalProperties":false}`:      false,
		`{"type":"object","properties":{"a":{"const":"if"}},"required":["a"],"additionalProperties":false,"if" : {},"then":{}}`:         false,
		`{"type":"object","properties":{"a":{"enum":["if","not"]}},"required":["a"],"additionalProperties":false}`:                      true,
		`true`: false,
		`{`:    false,
	} {
		if strict(json.RawMessage(schema)) != want {
			t.Errorf("%s: strict is not %t", schema, want)
		}
	}
}

// Calls are complete whatever a server sends: an id, a name, arguments, no duplicate id unless the server sent
// it, and no known call that is incomplete.
func FuzzCalls(f *testing.F) {
	f.Add("0a.f.{}|1b.g.{}")
	f.Add("-a.f.{|-..}|-b.g.{}")
	f.Add("0.f.|0x.f.{\"a\":1}|0y.f.{}")
	f.Fuzz(func(t *testing.T, script string) {
		s := newCalls(0, "")
		streamed := map[int]string{}
		for _, line := range strings.Split(script, "|") {
			if line == "" {
				continue
			}
			fields := strings.SplitN(line[1:]+"...", ".", 4)
			p := piece{index: int64(line[0] - '0'), hasIndex: line[0] != '-', id: fields[0], name: fields[1], args: fields[2]}
			d := s.add(p)
			streamed[d.Index] += d.Arguments
		}
		parts := s.parts(model.StopMaxOutputTokens)
		for _, p := range append(parts, s.known()...) {
			if p.ID == "" || p.Name == "" || p.Arguments == "" {
				t.Fatalf("%q: call %+v", script, p)
			}
		}
		for _, p := range s.known() {
			if _, ok := state.CompactObject(p.Arguments); !ok {
				t.Fatalf("%q: incomplete call %+v", script, p)
			}
		}
		for i, c := range s.list {
			if c.args.String() != streamed[i] {
				t.Fatalf("%q: call %d has %q, streamed %q", script, i, c.args.String(), streamed[i])
			}
		}
	})
}
