package worker

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/secret"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// hiding is a provider that keeps the key of its calls out of all that comes back
// of them, whatever a server repeats and wherever.
type hiding struct {
	model.Provider
	secrets *secret.Hider
}

func (h hiding) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	var deltas *hidingDeltas
	if onDelta != nil {
		deltas = &hidingDeltas{secrets: h.secrets, onDelta: onDelta}
		onDelta = deltas.add
	}
	resp, err := h.Provider.Generate(ctx, r, onDelta)
	if deltas != nil {
		deltas.flush()
	}
	resp.Model = h.secrets.Hide(resp.Model)
	for i := range resp.Parts {
		p := &resp.Parts[i]
		for _, field := range []*string{&p.Text, &p.ID, &p.Name, &p.Arguments} {
			*field = h.secrets.Hide(*field)
		}
		if p.Opaque != nil {
			p.Opaque = json.RawMessage(h.secrets.Hide(string(p.Opaque)))
		}
	}
	resp.Parts = h.together(h.together(resp.Parts, state.PartText), state.PartThinking)
	if err == nil {
		return resp, nil
	}
	e := *asModelError(err)
	e.Message, e.Partial = h.secrets.Hide(e.Message), h.secrets.Hide(e.Partial)
	return resp, &e
}

// together hides what a server has spread over several parts of one type, which
// readers see as one text: the first gets what is left of it, the others go.
func (h hiding) together(parts []state.Part, of state.PartType) []state.Part {
	var whole strings.Builder
	for _, p := range parts {
		if p.Type == of {
			whole.WriteString(p.Text)
		}
	}
	hidden := h.secrets.Hide(whole.String())
	if hidden == whole.String() {
		return parts
	}
	rest := slices.Clone(parts)
	for i := range rest {
		if rest[i].Type == of {
			rest[i].Text, rest[i].Opaque, rest[i].OpaqueBy, hidden = hidden, nil, "", ""
		}
	}
	return slices.DeleteFunc(rest, func(p state.Part) bool { return p.Type == of && p.Text == "" })
}

// hidingDeltas passes pieces of a response on. It holds back an end that may be the
// beginning of a key, until what follows tells.
type hidingDeltas struct {
	secrets *secret.Hider
	onDelta func(model.Delta)
	kept    model.Delta
}

func (h *hidingDeltas) add(d model.Delta) {
	k := &h.kept
	if k.Text != "" && d.Text == "" || k.Thinking != "" && d.Thinking == "" ||
		k.Arguments != "" && (d.Arguments == "" || d.CallID != "" || d.Index != k.Index) {
		h.flush()
	}
	d.CallID, d.Name, k.Index = h.secrets.Hide(d.CallID), h.secrets.Hide(d.Name), d.Index
	d.Text, k.Text = h.secrets.Cut(k.Text + d.Text)
	d.Thinking, k.Thinking = h.secrets.Cut(k.Thinking + d.Thinking)
	d.Arguments, k.Arguments = h.secrets.Cut(k.Arguments + d.Arguments)
	h.pass(d)
}

func (h *hidingDeltas) flush() {
	h.pass(h.kept)
	h.kept = model.Delta{}
}

func (h *hidingDeltas) pass(d model.Delta) {
	if d != (model.Delta{Index: d.Index}) {
		h.onDelta(d)
	}
}
