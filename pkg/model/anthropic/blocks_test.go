package anthropic

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

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
