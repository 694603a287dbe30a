package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/turnpike-dev/turnpike/internal/credential/cloudlogin"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	provider       = "anthropic"
	defaultBaseURL = "https://api.anthropic.com"
)

// Config of a Provider.
type Config struct {
	// BaseURL is the address of requests without one. Default: that of Anthropic. A path /v1 at its end makes no
	// difference.
	BaseURL string

	// APIKey is the key of requests without one, only at BaseURL: it is never sent to a server that an agent's
	// definition names.
	APIKey string

	// Client makes the HTTP requests. Default: a client without timeouts, because the context of a call bounds it. The
	// provider follows no redirects.
	Client *http.Client
}

// Provider calls Anthropic's messages API, also on Amazon Bedrock and Google Vertex AI if a request has such an
// address.
type Provider struct {
	cfg    Config
	client *http.Client
	logins *cloudlogin.Logins
}

var _ model.Cancelable = (*Provider)(nil)

// Self implements model.Cancelable.
func (p *Provider) Self() model.Provider { return p }

// New returns a provider.
func New(cfg Config) *Provider {
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBaseURL
	}
	client := model.Direct(cfg.Client)
	return &Provider{cfg, client, cloudlogin.New(client)}
}

// Generate implements model.Provider. It makes one streaming call.
func (p *Provider) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	// A reasoning model cannot be forced to call a tool. With tool_choice none, it gets the
	// request for the answer in text instead.
	messages, whole := settled(r.Messages)
	r.Messages = messages
	r, intact := r.Hosting(provider)
	if !whole || !intact {
		r.Messages = uncited(r.Messages)
	}
	thinks := r.Reasoning != "" && r.Reasoning != model.EffortNone
	hosts := len(r.ProviderTools) > 0 // their citations cannot be part of an enforced answer
	if r.BesideTools() && (hosts || !enforced(r)) && !(thinks && r.ToolChoice.Mode == model.ToolsNone) {
		return model.AnswerByTool(ctx, r, onDelta, !thinks && !hosts, p.generate)
	}
	return p.generate(ctx, r, onDelta)
}

func (p *Provider) generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	var err error
	if r.Messages, err = model.SendFiles(model.Choice{Provider: provider, Model: r.Model}, r.Messages); err != nil {
		return model.Response{}, err
	}
	u, key, err := r.Endpoint(provider, p.cfg.BaseURL, p.cfg.APIKey)
	if err != nil {
		return model.Response{}, err
	}
	at, err := r.CloudAt(provider, u.String())
	if err != nil {
		return model.Response{}, err
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1") + "/"
	options := []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithBaseURL(u.String()),
		option.WithHTTPClient(p.client),
		option.WithMaxRetries(0),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			if key != "" && at.Cloud == "" {
				req.Header.Set("X-Api-Key", key)
			}
			if r.Run != "" {
				req.Header.Set("X-Client-Request-Id", fmt.Sprintf("%s/%d", r.Run, r.Call))
			}
			resp, err := next(req)
			if err != nil {
				return nil, err
			}
			if err := model.CheckHTTP(provider, key, resp); err != nil {
				return nil, err
			}
			resp.Body = withNames(resp.Body)
			return resp, nil
		}),
	}
	for _, f := range r.ExtraFields(provider) {
		options = append(options, option.WithJSONSet(f.Path, f.Value))
	}
	cloud, err := p.inCloud(ctx, at, key)
	if err != nil {
		return model.Response{}, err
	}
	options = append(options, cloud...)
	options = append(options, option.WithoutOpenTelemetry()) // the worker makes the span of a call
	service := sdk.NewMessageService(options...)
	a := &answer{onDelta: onDelta, receipt: model.ReceiptFrom(ctx), call: r.Call, asked: r.Model, model: r.Model, blocks: newBlocks(r.Call, r.Model)}
	body, lifetime := params(r)
	stream := service.NewStreaming(ctx, body)
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		a.add(stream)
	}
	resp, err := a.end(ctx, key, stream.Err())
	resp.Cache = lifetime
	return resp, err
}

// answer is a response in flight.
type answer struct {
	onDelta func(model.Delta)
	call    int
	asked   string // the model in the request

	begun     bool
	id        string
	model     string
	blocks    *blocks
	stop      sdk.StopReason
	finished  bool
	usage     tokens
	delivered bool
	received  int // bytes
	receipt   *model.Receipt
}

// tokens are counted as Anthropic does: input excludes tokens that were read from or written to the cache.
type tokens struct{ input, output, cacheRead, cacheWrite, cacheHour, searches, fetches int64 }

// add processes the current event of the stream. No other function has the event on its stack: the event has 5 KiB, and
// calls wait long.
func (a *answer) add(stream *ssestream.Stream[sdk.MessageStreamEventUnion]) {
	e, known := stream.Current(), len(a.blocks.list)
	defer func() { a.receipt.KeepItems(len(a.blocks.list) - known) }()
	switch e.Type {
	case "message_start":
		a.begin(e.Message)
	case "content_block_start":
		a.startBlock(e.Index, e.ContentBlock)
	case "content_block_delta":
		switch e.Delta.Type {
		case "text_delta":
			a.emit(a.blocks.write(e.Index, e.Delta.Text))
		case "thinking_delta":
			a.emit(a.blocks.write(e.Index, e.Delta.Thinking))
		case "input_json_delta":
			a.emit(a.blocks.write(e.Index, e.Delta.PartialJSON))
		case "signature_delta":
			a.blocks.sign(e.Index, e.Delta.Signature)
		case "citations_delta":
			a.blocks.cite(e.Index, e.Delta.Citation.RawJSON())
		}
	case "content_block_stop":
		a.blocks.stop(e.Index)
	case "message_delta":
		if e.Delta.StopReason != "" {
			a.stop, a.finished = e.Delta.StopReason, true
		}
		a.count(e.Usage)
	case "message_stop":
		a.finished = true
	}
}

// begin processes message_start, which may contain the first blocks. If a second one has the same
// id, begin updates only the model and the usage. If it has another id, the provider has started
// over, and begin discards the blocks of the first message.
func (a *answer) begin(m sdk.Message) {
	if !a.begun || a.id != m.ID {
		if a.begun {
			a.blocks = newBlocks(a.call, a.asked)
		}
		a.begun, a.id, a.stop, a.finished = true, m.ID, m.StopReason, false
		for i, b := range m.Content {
			a.wholeBlock(int64(i), b)
		}
	}
	if m.Model != "" {
		a.model = m.Model
	}
	u := m.Usage
	a.usage = tokens{
		u.InputTokens, u.OutputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.CacheCreation.Ephemeral1hInputTokens,
		u.ServerToolUse.WebSearchRequests, u.ServerToolUse.WebFetchRequests,
	}
}

// wholeBlock adds a block that arrived in one piece.
func (a *answer) wholeBlock(index int64, b sdk.ContentBlockUnion) {
	block := contentBlock{kind: b.Type, id: b.ID, name: b.Name, signature: b.Signature, redacted: b.Data, useID: b.ToolUseID}
	block.keep(b.RawJSON())
	a.open(index, block, string(b.Input), b.Text, b.Thinking)
	for _, c := range b.Citations {
		a.blocks.cite(index, c.RawJSON())
	}
	a.blocks.stop(index)
}

func (a *answer) startBlock(index int64, b sdk.ContentBlockStartEventContentBlockUnion) {
	block := contentBlock{kind: b.Type, id: b.ID, name: b.Name, signature: b.Signature, redacted: b.Data, useID: b.ToolUseID}
	block.keep(b.RawJSON())
	a.open(index, block, b.JSON.Input.Raw(), b.Text, b.Thinking)
}

func (a *answer) open(index int64, b contentBlock, input, text, thinking string) {
	if (b.kind == kindToolUse || b.kind == kindHostedUse) && input != "null" {
		b.input = input
	}
	if b.kind == kindThinking {
		text = thinking
	}
	a.emit(a.blocks.start(index, b, text))
}

// count records the totals so far; an omitted total stays unchanged.
func (a *answer) count(u sdk.MessageDeltaUsage) {
	if u.JSON.InputTokens.Valid() {
		a.usage.input = u.InputTokens
	}
	if u.JSON.OutputTokens.Valid() {
		a.usage.output = u.OutputTokens
	}
	if u.JSON.CacheReadInputTokens.Valid() {
		a.usage.cacheRead = u.CacheReadInputTokens
	}
	if u.JSON.CacheCreationInputTokens.Valid() {
		a.usage.cacheWrite = u.CacheCreationInputTokens
	}
	if u.JSON.ServerToolUse.Valid() {
		a.usage.searches, a.usage.fetches = u.ServerToolUse.WebSearchRequests, u.ServerToolUse.WebFetchRequests
	}
}

func (a *answer) emit(d model.Delta) {
	a.received += d.Len()
	a.receipt.Keep(d.Len())
	if a.onDelta != nil && d != (model.Delta{}) && (d != model.Delta{Index: d.Index}) {
		a.delivered = true
		a.onDelta(d)
	}
}

// end returns the response, or the error.
func (a *answer) end(ctx context.Context, key string, err error) (model.Response, error) {
	if a.finished {
		return a.response(), nil
	}
	e := a.failure(ctx, key, err)
	e.Streamed, e.Partial, e.Received = a.delivered, a.blocks.said(), a.received
	resp := model.Response{Provider: provider, Model: a.model}
	if a.usage != (tokens{}) {
		resp.Usage = a.usage.total()
		resp.Usage.Estimated = true // the total of the output comes at the end
	}
	if e.Class == model.Cancelled {
		resp.Parts = a.blocks.known()
	}
	return resp, e
}

// failure returns the error of a call. The SDK reports an error event as an error of the API with the status of the
// stream.
func (a *answer) failure(ctx context.Context, key string, err error) *model.Error {
	if api, ok := errors.AsType[*sdk.Error](err); ok && ctx.Err() == nil {
		return model.Classify(model.Failure{Provider: provider, Secret: key, Status: api.StatusCode, Body: []byte(api.RawJSON())})
	}
	return model.Broken(ctx, provider, key, err)
}

func (a *answer) response() model.Response {
	stop := a.reason()
	u := a.usage.total()
	u.CodeExecutions = a.blocks.executions()
	return model.Response{Provider: provider, Model: a.model, Stop: stop, Parts: a.blocks.parts(stop), Usage: u}
}

// total returns the usage, with cache reads and writes counted in the input tokens.
func (u tokens) total() state.Usage {
	read, write := max(0, u.cacheRead), max(0, u.cacheWrite)
	return state.Usage{
		InputTokens: max(0, u.input) + read + write, OutputTokens: max(0, u.output), CacheReadTokens: read, CacheWriteTokens: write,
		CacheHourTokens: min(max(0, u.cacheHour), write), WebSearches: max(0, u.searches), WebFetches: max(0, u.fetches),
	}
}

func (a *answer) reason() model.Stop {
	switch a.stop {
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return model.StopMaxOutputTokens
	case sdk.StopReasonRefusal:
		return model.StopRefusal
	case sdk.StopReasonPauseTurn:
		return model.StopPause
	default:
		if a.blocks.calls > 0 {
			return model.StopToolCalls
		}
		return model.StopEnd
	}
}
