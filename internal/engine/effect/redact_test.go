package effect

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// answering is a provider with one fixed answer.
type answering []state.Part

func (a answering) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	return model.Response{Parts: a}, nil
}

// A key that a server spreads over parts, which a reader sees as one text, is redacted. Parts without it are
// unchanged.
func TestSpreadSecret(t *testing.T) {
	t.Parallel()
	text := func(s string) state.Part { return state.Part{Type: state.PartText, Text: s} }
	thought := func(s string) state.Part { return state.Part{Type: state.PartThinking, Text: s} }
	call := state.Part{Type: state.PartToolCall, ID: "c1", Name: "t", Arguments: "{}"}
	for name, tt := range map[string]struct{ parts, want []state.Part }{
		"whole":    {[]state.Part{text("a s3cret-key"), text("b")}, []state.Part{text("a [redacted]"), text("b")}},
		"spread":   {[]state.Part{text("a s3cr"), text("et-"), call, text("key b")}, []state.Part{text("a [redacted] b"), call}},
		"thoughts": {[]state.Part{thought("s3cret"), text("x"), thought("-key")}, []state.Part{thought("[redacted]"), text("x")}},
		// Data that only its provider can read may contain the key as well.
		"sealed": {
			[]state.Part{{Type: state.PartThinking, Text: "s3cret", Opaque: []byte(`"sealed"`), OpaqueBy: "p"}, thought("-key")},
			[]state.Part{thought("[redacted]")},
		},
		"neither":   {[]state.Part{text("a s3cr"), thought("et-key")}, []state.Part{text("a s3cr"), thought("et-key")}},
		"harmless":  {[]state.Part{text("a"), text("b")}, []state.Part{text("a"), text("b")}},
		"arguments": {[]state.Part{{Type: state.PartToolCall, Arguments: `{"k":"s3cret-key"}`}}, []state.Part{{Type: state.PartToolCall, Arguments: `{"k":"[redacted]"}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := redacting{answering(tt.parts), secret.New("s3cret-key")}.Generate(t.Context(), model.Request{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r.Parts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// failing is a provider whose response breaks off with an error.
type failing struct {
	parts []state.Part
	err   error
}

func (f failing) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	return model.Response{Parts: f.parts}, f.err
}

// A response that breaks off contains the key nowhere: neither in its message, nor in the text until then, which the
// history keeps, nor in its parts. The rest of the error stays.
func TestSecretInAFailedResponse(t *testing.T) {
	t.Parallel()
	broken := &model.Error{Class: model.Transport, Message: "refused s3cret-key", Partial: "your key is s3cret-key"}
	inner := failing{[]state.Part{{Type: state.PartText, Text: "your key is s3cret-key"}}, fmt.Errorf("call: %w", broken)}
	r, err := redacting{inner, secret.New("s3cret-key")}.Generate(t.Context(), model.Request{}, nil)
	want := model.Error{Class: model.Transport, Message: "refused [redacted]", Partial: "your key is [redacted]"}
	if got, ok := errors.AsType[*model.Error](err); !ok || !cmp.Equal(*got, want) {
		t.Errorf("error = %+v, want %+v", err, want)
	}
	if diff := cmp.Diff([]state.Part{{Type: state.PartText, Text: "your key is [redacted]"}}, r.Parts); diff != "" {
		t.Error(diff)
	}
	if broken.Partial != "your key is s3cret-key" {
		t.Errorf("the error of the provider itself was changed to %+v", broken)
	}
}

// The deltas of a response have what the model sent, each piece with its own call, and the key nowhere. The end of a
// text, a thought or the arguments that could begin the key is shown before another piece follows.
func TestDeltasWithoutTheSecret(t *testing.T) {
	t.Parallel()
	type ds = []model.Delta
	for name, tt := range map[string]struct{ sent, want ds }{
		"spread key":            {ds{{Text: "a s3cr"}, {Text: "et-key b"}}, ds{{Text: "a "}, {Text: "[redacted] b"}}},
		"end of the response":   {ds{{Text: "a s3c"}}, ds{{Text: "a "}, {Text: "s3c"}}},
		"text, then a call":     {ds{{Text: "a s3c"}, {CallID: "c1", Name: "t"}}, ds{{Text: "a "}, {Text: "s3c"}, {CallID: "c1", Name: "t"}}},
		"thought, then text":    {ds{{Thinking: "s3c"}, {Text: "b"}}, ds{{Thinking: "s3c"}, {Text: "b"}}},
		"arguments, then text":  {ds{{Arguments: "s3c"}, {Text: "b"}}, ds{{Arguments: "s3c"}, {Text: "b"}}},
		"another index":         {ds{{Arguments: "s3c"}, {Index: 1, Arguments: "ret-key"}}, ds{{Arguments: "s3c"}, {Index: 1, Arguments: "ret-key"}}},
		"another call":          {ds{{Arguments: "s3c"}, {CallID: "c2", Arguments: "ret-key"}}, ds{{Arguments: "s3c"}, {CallID: "c2", Arguments: "ret-key"}}},
		"one call":              {ds{{Index: 2, CallID: "c1", Name: "t", Arguments: "s3c"}, {Index: 2, Arguments: "ret-key"}}, ds{{Index: 2, CallID: "c1", Name: "t"}, {Index: 2, Arguments: "[redacted]"}}},
		"names of calls":        {ds{{CallID: "s3cret-key", Name: "s3cret-key"}}, ds{{CallID: "[redacted]", Name: "[redacted]"}}},
		"nothing is kept twice": {ds{{Text: "s3c"}, {Thinking: "x"}, {Text: "y"}}, ds{{Text: "s3c"}, {Thinking: "x"}, {Text: "y"}}},
	} {
		var got ds
		d := redactingDeltas{secrets: secret.New("s3cret-key"), onDelta: func(d model.Delta) { got = append(got, d) }}
		for _, piece := range tt.sent {
			d.add(piece)
		}
		d.flush()
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
