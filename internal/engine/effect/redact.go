package effect

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// redacting is a provider that removes the key of its calls from the texts that a server returns: responses,
// deltas and messages of errors.
type redacting struct {
	model.Provider
	secrets *secret.Redactor
}

func (h redacting) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	var deltas *redactingDeltas
	if onDelta != nil {
		deltas = &redactingDeltas{secrets: h.secrets, onDelta: onDelta}
		onDelta = deltas.add
	}
	resp, err := h.Provider.Generate(ctx, r, onDelta)
	if deltas != nil {
		deltas.flush()
	}
	resp.Model = h.secrets.Redact(resp.Model)
	for i := range resp.Parts {
		p := &resp.Parts[i]
		for _, field := range []*string{&p.Text, &p.ID, &p.Name, &p.Arguments, &p.Content} {
			*field = h.secrets.Redact(*field)
		}
		if p.Opaque != nil {
			p.Opaque = json.RawMessage(h.secrets.Redact(string(p.Opaque)))
		}
	}
	resp.Parts = h.redactParts(h.redactParts(resp.Parts, state.PartText), state.PartThinking)
	if err == nil {
		return resp, nil
	}
	e := *asModelError(err)
	e.Message, e.Partial = h.secrets.Redact(e.Message), h.secrets.Redact(e.Partial)
	return resp, &e
}

// redactParts redacts a key that a server has spread over several parts of one type, which readers see
// as one text: the first part gets the redacted text, the others are removed.
func (h redacting) redactParts(parts []state.Part, of state.PartType) []state.Part {
	var whole strings.Builder
	for _, p := range parts {
		if p.Type == of {
			whole.WriteString(p.Text)
		}
	}
	redacted := h.secrets.Redact(whole.String())
	if redacted == whole.String() {
		return parts
	}
	rest := slices.Clone(parts)
	for i := range rest {
		if rest[i].Type == of {
			rest[i].Text, rest[i].Opaque, rest[i].OpaqueBy, redacted = redacted, nil, "", ""
		}
	}
	return slices.DeleteFunc(rest, func(p state.Part) bool { return p.Type == of && p.Text == "" })
}

// redactingDeltas forwards the deltas of a response. If the end may be a prefix of a key, it holds
// that end back until the next delta.
type redactingDeltas struct {
	secrets *secret.Redactor
	onDelta func(model.Delta)
	pending model.Delta
}

func (h *redactingDeltas) add(d model.Delta) {
	k := &h.pending
	if k.Text != "" && d.Text == "" || k.Thinking != "" && d.Thinking == "" ||
		k.Arguments != "" && (d.Arguments == "" || d.CallID != "" || d.Index != k.Index) {
		h.flush()
	}
	d.CallID, d.Name, k.Index = h.secrets.Redact(d.CallID), h.secrets.Redact(d.Name), d.Index
	d.Text, k.Text = h.secrets.Cut(k.Text + d.Text)
	d.Thinking, k.Thinking = h.secrets.Cut(k.Thinking + d.Thinking)
	d.Arguments, k.Arguments = h.secrets.Cut(k.Arguments + d.Arguments)
	h.forward(d)
}

func (h *redactingDeltas) flush() {
	h.forward(h.pending)
	h.pending = model.Delta{}
}

func (h *redactingDeltas) forward(d model.Delta) {
	if d != (model.Delta{Index: d.Index}) {
		h.onDelta(d)
	}
}
