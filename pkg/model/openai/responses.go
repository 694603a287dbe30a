package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The kinds of items that become parts, together with those of hosted.go.
const (
	itemMessage   = "message"
	itemReasoning = "reasoning"
	itemCall      = "function_call"
)

// respond makes a call of the Responses API. If the server cannot decrypt sealed thinking, because it came from another
// organisation's key or the server has new keys, respond repeats the call once without any sealed
// thinking.
func respond(ctx context.Context, r model.Request, key string, options []option.RequestOption, onDelta func(model.Delta)) (model.Response, error) {
	resp, err := respondOnce(ctx, r, key, options, onDelta)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Class == model.InvalidRequest && strings.Contains(e.Message, "encrypted content") {
		if bare, had := unsealed(r); had {
			return respondOnce(ctx, bare, key, options, onDelta)
		}
	}
	return resp, err
}

func respondOnce(ctx context.Context, r model.Request, key string, options []option.RequestOption, onDelta func(model.Delta)) (model.Response, error) {
	a := &answer{r: r, receipt: model.ReceiptFrom(ctx), key: key, onDelta: onDelta, model: r.Model}
	stream := responseStream(ctx, r, options)
	defer func() { _ = stream.Close() }()
	for a.last == nil && a.failed == nil && stream.Next() {
		a.add(stream)
	}
	return a.end(ctx, stream.Err())
}

// responseStream makes the request.
func responseStream(ctx context.Context, r model.Request, options []option.RequestOption) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	service := responses.NewResponseService(options...)
	return service.NewStreaming(ctx, responsesParams(r))
}

// answer is a response of the Responses API in flight. Its deltas are for readers of the
// stream; the parts come from the items that the API reports as done.
type answer struct {
	r       model.Request
	key     string
	onDelta func(model.Delta)

	event     *responses.ResponseStreamEventUnion // the latest
	model     string
	items     []responses.ResponseOutputItemUnion
	last      *responses.Response // the response in the terminal event
	failed    *model.Error
	text      strings.Builder
	open      []*openCall
	thought   bool // a delta with thinking was sent
	delivered bool
	received  int // bytes
	receipt   *model.Receipt
	spent     state.Usage // of a failed response
}

// openCall is a tool call as far as deltas have reported it.
type openCall struct {
	slot  int
	id    string
	item  string
	index int64 // of the item; -1 if unknown
	wrote bool
}

// add processes the current event of the stream. An event has 10 KiB: one copy serves
// all events of a call, and none is on the stack while the call waits.
func (a *answer) add(stream *ssestream.Stream[responses.ResponseStreamEventUnion]) {
	if a.event == nil {
		a.event = new(responses.ResponseStreamEventUnion)
	}
	*a.event = stream.Current()
	e := a.event
	index := int64(-1)
	if e.JSON.OutputIndex.Valid() {
		index = e.OutputIndex
	}
	switch e.Type {
	case "response.created", "response.in_progress":
		a.named(&e.Response)
	case "response.output_text.delta", "response.refusal.delta":
		a.text.WriteString(e.Delta)
		a.emit(model.Delta{Text: e.Delta})
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		a.thought = true
		a.emit(model.Delta{Thinking: e.Delta})
	case "response.reasoning_summary_part.added":
		if e.SummaryIndex > 0 && a.thought {
			a.emit(model.Delta{Thinking: paragraph})
		}
	case "response.output_item.added":
		if e.Item.Type == itemCall {
			a.begin(&e.Item, index)
		}
	case "response.function_call_arguments.delta":
		a.write(a.find("", e.ItemID, index), e.Delta)
	case "response.output_item.done":
		a.done(&e.Item, index)
	case "response.completed", "response.incomplete":
		a.named(&e.Response)
		a.last = &e.Response
	case "response.failed":
		a.spent = responsesUsage(e.Response.Usage)
		body := e.Response.Error.RawJSON()
		if body == "" || body == "null" {
			body = `{"message":"the provider reports that the response failed, without a reason: retry, and check the provider's status"}`
		}
		a.failed = classify(a.key, []byte(body))
	case "error":
		a.failed = classify(a.key, []byte(e.RawJSON()))
	}
}

func (a *answer) named(r *responses.Response) {
	if r.Model != "" {
		a.model = r.Model
	}
}

// begin returns the call of an item. It reports a new call in a delta.
func (a *answer) begin(item *responses.ResponseOutputItemUnion, index int64) *openCall {
	c := a.find(item.CallID, item.ID, index)
	if c == nil {
		made := fmt.Sprintf("call_%d_%d", a.r.Call, len(a.open)) // some servers omit ids
		c = &openCall{slot: len(a.open), id: cmp.Or(item.CallID, made), item: item.ID, index: index}
		a.open = append(a.open, c)
		a.receipt.KeepItems(1)
		a.emit(model.Delta{Index: c.slot, CallID: c.id, Name: item.Name})
	}
	return c
}

// find returns the call of an event, or nil. Some servers give an item another id in each event; then its index
// identifies it.
func (a *answer) find(callID, item string, index int64) *openCall {
	for _, c := range a.open {
		if callID != "" && c.id == callID || item != "" && c.item == item {
			return c
		}
	}
	for _, c := range a.open {
		if callID == "" && index >= 0 && c.index == index {
			return c
		}
	}
	return nil
}

func (a *answer) write(c *openCall, arguments string) {
	if c != nil && arguments != "" {
		c.wrote = true
		a.emit(model.Delta{Index: c.slot, Arguments: arguments})
	}
}

// done stores a finished item, once.
func (a *answer) done(item *responses.ResponseOutputItemUnion, index int64) {
	switch item.Type {
	case itemCall, itemMessage, itemReasoning, itemSearch, itemCode:
	default:
		return
	}
	for _, known := range a.items {
		if item.ID != "" && known.ID == item.ID || item.CallID != "" && known.CallID == item.CallID {
			return
		}
	}
	if item.Type == itemCall {
		c := a.begin(item, index)
		if !c.wrote { // some servers send the arguments in one piece
			a.write(c, item.Arguments.OfString)
		}
		item.CallID = c.id
	}
	a.items = append(a.items, *item)
	a.receipt.KeepItems(1)
}

func (a *answer) emit(d model.Delta) {
	a.received += d.Len()
	a.receipt.Keep(d.Len())
	if a.onDelta != nil && d != (model.Delta{}) {
		a.delivered = true
		a.onDelta(d)
	}
}

// end returns the response, or the error.
func (a *answer) end(ctx context.Context, err error) (model.Response, error) {
	if a.last != nil {
		return a.response(), nil
	}
	e := a.failed
	if e == nil {
		e = failure(ctx, a.key, err)
	}
	e.Streamed, e.Partial, e.Received = a.delivered, a.text.String(), a.received
	resp := model.Response{Provider: provider, Model: a.model, Usage: a.spent}
	if e.Class == model.Cancelled {
		for _, item := range a.items {
			if p, ok := a.call(item, true); ok {
				resp.Parts = append(resp.Parts, p)
			}
		}
	}
	return resp, e
}

func (a *answer) response() model.Response {
	if len(a.items) == 0 {
		for i := range a.last.Output {
			a.done(&a.last.Output[i], int64(i))
		}
	}
	resp := model.Response{Provider: provider, Model: a.model, Usage: a.billed(responsesUsage(a.last.Usage))}
	uses := &model.Uses{Seal: model.SealedBy(provider, a.r.Model)}
	// Every incomplete reason except a content filter counts as a limit, so the loop may
	// continue the response.
	cut := a.last.Status == responses.ResponseStatusIncomplete || a.last.IncompleteDetails.Reason != ""
	said, called, refused := false, false, false
	for _, item := range a.items {
		switch item.Type {
		case itemMessage:
			for _, c := range item.Content {
				if text := c.Text + c.Refusal; text != "" {
					said, refused = true, refused || c.Refusal != ""
					resp.Parts = append(resp.Parts, messagePart(text, string(item.Phase), a.r.Model))
				}
			}
		case itemReasoning:
			if p, ok := a.reasoning(item); ok {
				resp.Parts = append(resp.Parts, p)
			}
		case itemCall:
			if p, ok := a.call(item, cut); ok {
				called = true
				resp.Parts = append(resp.Parts, p)
			}
		case itemSearch, itemCode:
			resp.Parts = append(resp.Parts, use(item, uses))
		}
	}
	if !said && !called { // some servers omit the item that was cut off
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartText, Text: a.text.String()})
	}
	switch {
	case a.last.IncompleteDetails.Reason == "content_filter":
		resp.Stop = model.StopContentFilter
	case cut:
		resp.Stop = model.StopMaxOutputTokens
	case refused:
		resp.Stop = model.StopRefusal
	case called:
		resp.Stop = model.StopToolCalls
	default:
		resp.Stop = model.StopEnd
	}
	return resp
}

// call returns the tool call of an item. If the response was cut off, it reports false for a partial call.
func (a *answer) call(item responses.ResponseOutputItemUnion, cut bool) (state.Part, bool) {
	args := item.Arguments.OfString
	if _, whole := state.CompactObject(args); item.Type != itemCall || item.Name == "" || cut && (!whole || item.Status == "incomplete") {
		return state.Part{}, false
	}
	if strings.TrimSpace(args) == "" {
		args = "{}"
	}
	return state.Part{Type: state.PartToolCall, ID: item.CallID, Name: item.Name, Arguments: args}, true
}

// paragraph separates the parts of a summary.
const paragraph = "\n\n"

// reasoning returns the thinking of an item. It reports false for an item without text that cannot be sent back.
func (a *answer) reasoning(item responses.ResponseOutputItemUnion) (state.Part, bool) {
	var said []string
	for _, s := range item.Summary {
		said = append(said, s.Text)
	}
	if len(said) == 0 {
		for _, c := range item.Content {
			said = append(said, c.Text)
		}
	}
	p := state.Part{Type: state.PartThinking, Text: strings.Join(said, paragraph)}
	if item.EncryptedContent == "" {
		return p, p.Text != ""
	}
	sealed := sealedReasoning{itemReasoning, item.ID, json.RawMessage(item.JSON.Summary.Raw()), item.EncryptedContent}
	if len(item.Summary) == 0 {
		sealed.Summary = json.RawMessage("[]") // the API requires it, even if it is empty
	}
	raw, err := json.Marshal(sealed)
	if err != nil {
		return p, p.Text != ""
	}
	p.Opaque, p.OpaqueBy = raw, model.SealedBy(provider, a.r.Model)
	return p, true
}

func responsesUsage(u responses.ResponseUsage) state.Usage {
	return state.Usage{
		InputTokens: max(0, u.InputTokens), OutputTokens: max(0, u.OutputTokens),
		CacheReadTokens: max(0, u.InputTokensDetails.CachedTokens), CacheWriteTokens: max(0, u.InputTokensDetails.CacheWriteTokens),
	}
}
