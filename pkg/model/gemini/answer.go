package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	sdk "google.golang.org/genai"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// answer is a response in flight.
type answer struct {
	r       model.Request
	onDelta func(model.Delta)

	model     string
	segments  []*segment
	calls     calls
	finish    sdk.FinishReason
	detail    string // message of the finish reason
	blocked   string // reason why the prompt was blocked
	usage     usage
	delivered bool
	received  int // bytes
	receipt   *model.Receipt

	grounding *sdk.GroundingMetadata
	pages     []*sdk.URLMetadata
	ran       int64 // number of programs that ran
}

// usage is counted as Google does: candidates exclude thoughts.
type usage struct{ prompt, tools, candidates, thoughts, cached int32 }

// segment is a part of the response in flight.
type segment struct {
	kind      state.PartType
	text      strings.Builder
	call      *toolCall
	use       *use
	signature []byte // ends the segment
}

func newAnswer(r model.Request, onDelta func(model.Delta)) *answer {
	return &answer{r: r, onDelta: onDelta, model: r.Model, calls: calls{prefix: fmt.Sprintf("call_%d_", r.Call)}}
}

// add processes a piece of the response. event is the original event of the piece.
func (a *answer) add(p *sdk.GenerateContentResponse, event []byte) {
	if p.ModelVersion != "" {
		a.model = p.ModelVersion
	}
	if f := p.PromptFeedback; f != nil && !strings.HasSuffix(string(f.BlockReason), "_UNSPECIFIED") { // with another prefix at Vertex AI
		a.blocked = strings.TrimSpace(string(f.BlockReason) + " " + f.BlockReasonMessage)
	}
	a.count(p.UsageMetadata)
	known := len(a.segments)
	defer func() { a.receipt.KeepItems(len(a.segments) - known) }()
	raw, ok := candidates(event)
	a.calls.broken = a.calls.broken || !ok || len(raw) != len(p.Candidates)
	if a.calls.broken {
		return
	}
	for i, c := range p.Candidates {
		if c == nil || c.Index != 0 || a.finish != "" {
			continue
		}
		if c.Content != nil {
			for j, part := range c.Content.Parts {
				if part != nil {
					a.part(part, raw[i].call(j))
				}
			}
		}
		a.ground(c)
		if c.FinishReason != sdk.FinishReasonUnspecified {
			a.finish, a.detail = c.FinishReason, raw[i].FinishMessage
		}
	}
}

func (a *answer) part(p *sdk.Part, piece callPiece) {
	switch {
	case a.hosted(p):
	case p.FunctionCall != nil:
		c, d := a.calls.add(piece)
		if c != nil {
			a.segments = append(a.segments, &segment{kind: state.PartToolCall, call: c, signature: p.ThoughtSignature})
		}
		a.emit(d)
	case p.Thought:
		a.write(state.PartThinking, p.Text, p.ThoughtSignature)
		a.emit(model.Delta{Thinking: p.Text})
	default:
		a.write(state.PartText, p.Text, p.ThoughtSignature)
		a.emit(model.Delta{Text: p.Text})
	}
}

// write adds text to the current segment, or begins another. A signature without text belongs to the preceding text of
// that kind.
func (a *answer) write(kind state.PartType, text string, signature []byte) {
	if text == "" {
		for _, s := range slices.Backward(a.segments) {
			if s.kind == kind && len(signature) > 0 {
				s.signature = signature
				return
			}
		}
		return
	}
	var s *segment
	if n := len(a.segments); n > 0 && a.segments[n-1].kind == kind && a.segments[n-1].signature == nil {
		s = a.segments[n-1]
	} else {
		s = &segment{kind: kind}
		a.segments = append(a.segments, s)
	}
	s.text.WriteString(text)
	if len(signature) > 0 {
		s.signature = signature
	}
}

// count records the totals so far, which may shrink; an omitted total stays
// unchanged.
func (a *answer) count(u *sdk.GenerateContentResponseUsageMetadata) {
	if u == nil {
		return
	}
	for total, n := range map[*int32]int32{
		&a.usage.prompt: u.PromptTokenCount, &a.usage.tools: u.ToolUsePromptTokenCount, &a.usage.cached: u.CachedContentTokenCount,
		&a.usage.candidates: u.CandidatesTokenCount, &a.usage.thoughts: u.ThoughtsTokenCount,
	} {
		if n > 0 {
			*total = n
		}
	}
}

// total returns the usage, with thoughts counted as output.
func (u usage) total() state.Usage {
	return state.Usage{
		InputTokens: int64(u.prompt) + int64(u.tools), OutputTokens: int64(u.candidates) + int64(u.thoughts), CacheReadTokens: int64(u.cached),
	}
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
func (a *answer) end(ctx context.Context, c *call, err error) (model.Response, error) {
	stop, ok := a.stop()
	if ok && a.calls.whole(stop != model.StopEnd && stop != model.StopToolCalls) {
		return a.response(stop), nil
	}
	e := a.failure(ctx, c, err)
	e.Streamed, e.Partial, e.Received = a.delivered, a.said(), a.received
	resp := model.Response{Provider: provider, Model: a.model, Usage: a.usage.total()}
	resp.Usage.Estimated = a.usage != (usage{}) // so far
	if e.Class == model.Cancelled {
		resp.Parts = a.known()
	}
	return resp, e
}

// stop returns the reason why the model stopped, or false if it did not stop or if
// the reason is a failure.
func (a *answer) stop() (model.Stop, bool) {
	switch a.finish {
	case "":
		return "", false
	case sdk.FinishReasonMaxTokens:
		return model.StopMaxOutputTokens, true
	case sdk.FinishReasonSafety, sdk.FinishReasonProhibitedContent, sdk.FinishReasonImageSafety, sdk.FinishReasonImageProhibitedContent:
		return model.StopRefusal, true
	case sdk.FinishReasonRecitation, sdk.FinishReasonBlocklist, sdk.FinishReasonSPII, sdk.FinishReasonImageRecitation:
		return model.StopContentFilter, true
	default:
	}
	switch {
	case model.Classify(model.Failure{Status: http.StatusOK, Body: a.finishFault()}).Class != model.Transport:
		return "", false
	case len(a.calls.list) > 0:
		return model.StopToolCalls, true
	default:
		return model.StopEnd, true
	}
}

// finishFault returns a finish reason as the body of an error: the table of errors recognizes the reasons that are
// failures.
func (a *answer) finishFault() []byte {
	text := a.detail
	if text == "" {
		text = "the model's response ended with " + string(a.finish) + ": retry, or use another model"
	}
	return fault("finish_reason", string(a.finish), text)
}

func fault(kind, code, message string) []byte {
	b, err := json.Marshal(map[string]any{"error": map[string]string{"type": kind, "code": code, "message": message}})
	if err != nil {
		return nil // texts cannot fail
	}
	return b
}

// failure returns the cause of a missing response: the end of the context, else the
// provider's error, else the connection's.
func (a *answer) failure(ctx context.Context, c *call, err error) *model.Error {
	classify := func(body []byte) *model.Error {
		return model.Classify(model.Failure{Provider: provider, Secret: c.key, Status: http.StatusOK, Body: body})
	}
	_, classified := errors.AsType[*model.Error](err)
	switch {
	case ctx.Err() != nil || classified:
		return model.Broken(ctx, provider, c.key, err)
	case err != nil && !c.sent:
		return invalid(model.Redact(err.Error(), c.key)) // the SDK refused to send it
	case c.stream == nil:
		return model.Broken(ctx, provider, c.key, err)
	case a.calls.broken, a.finish != "" && a.calls.open() != nil:
		return &model.Error{Class: model.Transport, Provider: provider, Message: "the provider's response has an incomplete tool call: retry, or use another model"}
	case a.finish != "":
		return classify(a.finishFault())
	case a.blocked != "":
		return classify(fault("prompt_blocked", "", "the provider blocked the prompt ("+a.blocked+"): change the input or the instructions"))
	case c.stream.said() != nil:
		return classify(c.stream.said())
	case c.stream.err == nil && err != nil:
		return model.Broken(ctx, provider, c.key, errShape) // the error of the SDK contains the whole event
	default:
		return model.Broken(ctx, provider, c.key, c.stream.err)
	}
}

func (a *answer) response(stop model.Stop) model.Response {
	resp := model.Response{Provider: provider, Model: a.model, Stop: stop, Usage: a.billed(a.usage.total())}
	said, uses := false, &model.Uses{Seal: model.SealedBy(provider, a.r.Model)}
	grounded := a.grounded(uses)
	for _, s := range a.segments {
		if s.call != nil && !s.call.closed {
			continue // the output limit, or a filter, cut it off
		}
		if s.kind != state.PartThinking {
			said = true
			resp.Parts = append(resp.Parts, grounded...)
			grounded = nil
		}
		if u := s.use; u != nil {
			resp.Parts = append(resp.Parts, uses.Part(state.Part{ID: u.id, Name: u.name, Arguments: u.args, Content: u.content, IsError: u.failed}, u.parts...))
			continue
		}
		resp.Parts = append(resp.Parts, a.seal(s))
	}
	if !said {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartText})
	}
	return resp
}

// opaque is the content that a part must be sent back with.
type opaque struct {
	Signature []byte `json:"thought_signature"`
}

func (a *answer) seal(s *segment) state.Part {
	p := state.Part{Type: s.kind, Text: s.text.String()}
	if s.call != nil {
		p = s.call.part()
	}
	if raw, err := json.Marshal(opaque{s.signature}); err == nil && len(s.signature) > 0 {
		p.Opaque, p.OpaqueBy = raw, model.SealedBy(provider, a.r.Model)
	}
	return p
}

// known returns the tool calls that are complete although the response is not.
func (a *answer) known() []state.Part {
	var parts []state.Part
	for _, s := range a.segments {
		if s.call != nil && s.call.closed {
			parts = append(parts, a.seal(s))
		}
	}
	return parts
}

// said returns the text received so far.
func (a *answer) said() string {
	var text strings.Builder
	for _, s := range a.segments {
		if s.kind == state.PartText {
			text.WriteString(s.text.String())
		}
	}
	return text.String()
}
