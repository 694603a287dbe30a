package service

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Accepted input reads back unchanged from its transcript, with the instructions once. Provider-specific data
// is the same JSON but not the same bytes: the transcript has no white space.
func FuzzInput(f *testing.F) {
	f.Add([]byte(`"hello"`))
	f.Add([]byte(`[{"role":"user","content":"a"},{"role":"assistant","parts":[{"type":"thinking","text":"t","opaque":{"a":1},"opaque_by":"p"},{"type":"tool_call","id":"c","name":"t","arguments":{"x":[1]}}]},{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"r","is_error":true}]}]`))
	f.Add([]byte(`[{"role":"assistant","parts":[{"type":"thinking","text":"t","opaque":{"a":	[1, "<"]},"opaque_by":"p"}]}]`))
	f.Add([]byte(`[{"parts":[{"type":"image","media_type":"image/png","data":"AAAA"},{"type":"text","text":"x"}]}]`))
	f.Add([]byte(`[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t","arguments":"no JSON"}]},{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":""}]}]`))
	f.Add([]byte(`[{"parts":[{"type":"file","file_id":"file_x"},{"type":"file","media_type":"Text/Plain; a=b","data":"aGk=","name":"n"},{"type":"file","media_type":"application/pdf","url":"https://example.com"}]}]`))
	f.Add([]byte(`[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t"}]},{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"","files":[{"type":"file","file_id":"file_x","name":"n"},{"media_type":"audio/mp3","data":"aGk="}]}]}]`))
	f.Add([]byte(`[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t"}]},{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"","files":[{"files":[{"files":[]}],"url":"u","media_type":"a/b"}]}]}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		messages, err := inputOf(raw, "Be kind.")
		if err != nil {
			return
		}
		var transcript bytes.Buffer
		to := json.NewEncoder(&transcript)
		to.SetEscapeHTML(false) // like the gateway's responses
		if err := to.Encode(api.MessagesOf(messages)); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		again, err := inputOf(transcript.Bytes(), "Be kind.")
		if err != nil {
			t.Fatalf("the transcript of %s is refused: %v\n%s", raw, err, &transcript)
		}
		if diff := cmp.Diff(messages, again, cmpopts.EquateEmpty(), sameJSON); diff != "" {
			t.Fatalf("%s:\n%s", raw, diff)
		}
	})
}

// Callers may mark what came from outside, but nothing as said by a person: rules about foreign content would skip it.
func TestOriginOfInput(t *testing.T) {
	t.Parallel()
	for origin, want := range map[string]state.Origin{"web": state.OriginWeb, "agent": state.OriginAgent, "tool": "", "person": "", "": ""} {
		messages, err := inputOf([]byte(`[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"t"}]},{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"r","origin":"`+origin+`"}]}]`), "")
		if err != nil {
			t.Errorf("origin %q: %v", origin, err)
		} else if got := messages[len(messages)-1].Parts[0].Origin; got != want {
			t.Errorf("origin %q became %q, want %q", origin, got, want)
		}
	}
	if _, err := inputOf([]byte(`[{"role":"user","parts":[{"type":"text","text":"x","origin":"me"}]}]`), ""); err == nil {
		t.Error("an unknown origin is accepted")
	}
}

var sameJSON = cmp.FilterValues(func(a, b json.RawMessage) bool {
	return json.Valid(a) && json.Valid(b)
}, cmp.Transformer("JSON", func(raw json.RawMessage) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		panic(err)
	}
	return value
}))
