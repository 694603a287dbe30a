package anthropic

import (
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A call that was cut off does not run. The output limit may have cut off only the last block; without it, a block that
// was stopped is whole, also without arguments. A call is known before the end of the response only if it was stopped.
func TestCutCalls(t *testing.T) {
	t.Parallel()
	type block struct {
		kind, text string
		stopped    bool
	}
	use := func(args string, stopped bool) block { return block{kindToolUse, args, stopped} }
	for name, test := range map[string]struct {
		blocks []block
		ended  []string // arguments of the calls if the model ended the response
		cut    []string // if the output limit did
		known  []string // if the response did not end
	}{
		"not stopped, whole":    {[]block{use(`{"a":1}`, false)}, []string{`{"a":1}`}, []string{`{"a":1}`}, nil},
		"not stopped, in part":  {[]block{use(`{"a":`, false)}, nil, nil, nil},
		"not stopped, empty":    {[]block{use(``, false)}, nil, nil, nil},
		"stopped, whole":        {[]block{use(`{"a":1}`, true)}, []string{`{"a":1}`}, []string{`{"a":1}`}, []string{`{"a":1}`}},
		"stopped, empty":        {[]block{use(``, true)}, []string{`{}`}, nil, nil},
		"stopped, in part":      {[]block{use(`{"a":`, true)}, []string{`{"a":`}, nil, nil},
		"before a call":         {[]block{use(``, true), use(`{"b":`, true)}, []string{`{}`, `{"b":`}, []string{`{}`}, []string{`{}`}},
		"before a text":         {[]block{use(``, true), {kindText, "so", false}}, []string{`{}`}, []string{`{}`}, []string{`{}`}},
		"before thinking":       {[]block{use(``, true), {kindThinking, "hm", false}}, []string{`{}`}, []string{`{}`}, []string{`{}`}},
		"before sealed thought": {[]block{use(``, true), {kindRedacted, "", false}}, []string{`{}`}, []string{`{}`}, []string{`{}`}},
		"before a hosted call":  {[]block{use(``, true), {kindHostedUse, "", false}}, []string{`{}`}, []string{`{}`}, []string{`{}`}},
		"before an unknown one": {[]block{use(``, true), {"novel", "", false}}, []string{`{}`}, nil, nil},
	} {
		s := newBlocks(0, "m")
		for i, b := range test.blocks {
			s.start(int64(i), contentBlock{kind: b.kind, name: "f"}, "")
			s.write(int64(i), b.text)
			if b.stopped {
				s.stop(int64(i))
			}
		}
		calls := func(parts []state.Part) []string {
			var args []string
			for _, p := range parts {
				if p.Type == state.PartToolCall {
					args = append(args, p.Arguments)
				}
			}
			return args
		}
		for when, c := range map[string]struct {
			got  []state.Part
			want []string
		}{
			"ended": {s.parts(model.StopToolCalls), test.ended}, "limit": {s.parts(model.StopMaxOutputTokens), test.cut},
			"refusal": {s.parts(model.StopRefusal), test.cut}, "known": {s.known(), test.known},
		} {
			if got := calls(c.got); !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: the calls have %q, want %q", name, when, got, c.want)
			}
		}
	}
}

// Events in any order yield a response with parts, and a call that is returned before the end is complete.
func FuzzBlocks(f *testing.F) {
	f.Add("0u.a|0w.{}|0x|1t.hi|1x")
	f.Add("0u.|1u.|0w.{|0x|1w.{}")
	f.Add("0h.|0s.sig|0w.hm|0x|0r.data")
	f.Fuzz(func(t *testing.T, script string) {
		s := newBlocks(0, "m")
		for _, line := range strings.Split(script, "|") {
			if len(line) < 2 {
				continue
			}
			index := int64(line[0] - '0')
			_, text, _ := strings.Cut(line, ".")
			switch line[1] {
			case 'u':
				s.start(index, contentBlock{kind: kindToolUse, id: text, name: "f"}, "")
			case 't':
				s.start(index, contentBlock{kind: kindText}, text)
			case 'h':
				s.start(index, contentBlock{kind: kindThinking}, text)
			case 'r':
				s.start(index, contentBlock{kind: kindRedacted, redacted: text}, "")
			case 'w':
				s.write(index, text)
			case 's':
				s.sign(index, text)
			case 'x':
				s.stop(index)
			}
		}
		for _, stop := range []model.Stop{model.StopEnd, model.StopMaxOutputTokens} {
			parts := s.parts(stop)
			if len(parts) == 0 {
				t.Fatalf("%q: no parts", script)
			}
			for _, p := range parts {
				if p.Type == state.PartToolCall && (p.ID == "" || p.Arguments == "") {
					t.Fatalf("%q: call %+v", script, p)
				}
			}
		}
		for _, p := range s.known() {
			if p.ID == "" || p.Arguments == "" {
				t.Fatalf("%q: incomplete call %+v", script, p)
			}
		}
	})
}
