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
