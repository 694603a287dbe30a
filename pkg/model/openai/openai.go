// Package openai calls models through OpenAI's chat completions, the format that
// most compatible servers speak too. Requests always stream, and the SDK makes no
// retries of its own.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	provider       = "openai"
	defaultBaseURL = "https://api.openai.com/v1"

	// reasoningField is what compatible servers call thinking; a few leave out the
	// second word.
	reasoningField      = "reasoning_content"
	reasoningFieldShort = "reasoning"
)

// Config of a Provider.
type Config struct {
	// BaseURL, with its version path, is used where a request has none; empty is
	// OpenAI's own.
	BaseURL string

	// APIKey is used where a request has none, and only towards BaseURL: a key is
	// never sent to a server that an agent's definition names.
	APIKey string

	// Client makes the HTTP requests; nil is one without time-outs, since the
	// context of a call bounds it. Redirects are not followed.
	Client *http.Client
}

// Provider calls chat completions.
type Provider struct {
	cfg    Config
	client *http.Client
}

var _ model.Provider = (*Provider)(nil)

// New returns a provider.
func New(cfg Config) *Provider {
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBaseURL
	}
	client := http.Client{}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	// A redirect would carry the conversation, and perhaps the key, elsewhere.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Provider{cfg, &client}
}

// Generate makes one streaming call.
func (p *Provider) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	base, key := r.BaseURL, r.APIKey
	if base == "" || base == p.cfg.BaseURL {
		base = p.cfg.BaseURL
		if key == "" {
			key = p.cfg.APIKey
		}
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return model.Response{}, &model.Error{Class: model.InvalidRequest, Provider: provider, Message: "base_url is not a URL"}
	}
	service := sdk.NewChatCompletionService(
		option.WithBaseURL(base),
		option.WithHTTPClient(p.client),
		option.WithMaxRetries(0),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			if key != "" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			if r.Run != "" {
				// OpenAI logs it, so a call can be traced with their support.
				req.Header.Set("X-Client-Request-Id", fmt.Sprintf("%s/%d", r.Run, r.Call))
			}
			resp, err := next(req)
			if err != nil {
				return nil, err
			}
			if err := model.CheckHTTP(provider, key, resp); err != nil {
				return nil, err
			}
			return resp, nil
		}),
	)
	a := newAnswer(r, u.Host, onDelta)
	stream := service.NewStreaming(ctx, params(r, official(u), u.Host))
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		a.add(stream.Current())
	}
	return a.end(ctx, key, stream.Err())
}

// answer is a response under way.
type answer struct {
	r       model.Request
	host    string
	onDelta func(model.Delta)

	model     string
	text      strings.Builder
	thinking  strings.Builder
	refused   bool
	calls     *calls
	finish    string
	usage     state.Usage
	delivered bool
}

func newAnswer(r model.Request, host string, onDelta func(model.Delta)) *answer {
	return &answer{r: r, host: host, onDelta: onDelta, model: r.Model, calls: newCalls(r.Call)}
}

func (a *answer) add(c sdk.ChatCompletionChunk) {
	if c.Model != "" {
		a.model = c.Model
	}
	if c.JSON.Usage.Valid() {
		a.usage = usage(c.Usage)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		a.delta(choice.Delta)
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

func (a *answer) delta(d sdk.ChatCompletionChunkChoiceDelta) {
	for _, name := range []string{reasoningField, reasoningFieldShort} {
		var text string
		if f, ok := d.JSON.ExtraFields[name]; ok && json.Unmarshal([]byte(f.Raw()), &text) == nil && text != "" {
			a.thinking.WriteString(text)
			a.emit(model.Delta{Thinking: text})
			break
		}
	}
	if text := d.Content + d.Refusal; text != "" {
		a.refused = a.refused || d.Refusal != ""
		a.text.WriteString(text)
		a.emit(model.Delta{Text: text})
	}
	for _, c := range d.ToolCalls {
		a.emit(a.calls.add(piece{
			index: c.Index, hasIndex: c.JSON.Index.Valid(), id: c.ID, name: c.Function.Name, args: c.Function.Arguments,
		}))
	}
}

func (a *answer) emit(d model.Delta) {
	if a.onDelta != nil {
		a.delivered = true
		a.onDelta(d)
	}
}

// end makes the response, or the error. A finish reason makes a response whole:
// what may still follow is usage, and a response that was paid for is not thrown
// away because its usage got lost.
func (a *answer) end(ctx context.Context, key string, err error) (model.Response, error) {
	if a.finish != "" {
		return a.response(), nil
	}
	e := a.failure(ctx, key, err)
	if strings.Contains(e.Message, "max_tokens or model output limit was reached") {
		// Reasoning models say so with an error when they got nowhere.
		a.finish = "length"
		return a.response(), nil
	}
	e.Streamed, e.Partial = a.delivered, a.text.String()
	resp := model.Response{}
	if e.Class == model.Cancelled {
		resp = model.Response{Provider: provider, Model: a.model, Parts: a.calls.known()}
	}
	return resp, e
}

func (a *answer) failure(ctx context.Context, key string, err error) *model.Error {
	if event, ok := errors.AsType[*ssestream.StreamError](err); ok && ctx.Err() == nil {
		return model.Classify(model.Failure{Provider: provider, Secret: key, Status: http.StatusOK, Body: event.Event.Data})
	}
	return model.Broken(ctx, provider, key, err)
}

func (a *answer) response() model.Response {
	stop := a.stop()
	resp := model.Response{Provider: provider, Model: a.model, Stop: stop, Usage: a.usage}
	if a.thinking.Len() > 0 {
		resp.Parts = append(resp.Parts, state.Part{
			Type: state.PartThinking, Text: a.thinking.String(),
			Opaque: json.RawMessage(`"` + reasoningField + `"`), OpaqueBy: opaqueBy(a.host),
		})
	}
	calls := a.calls.parts(stop)
	if a.text.Len() > 0 || len(calls) == 0 {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartText, Text: a.text.String()})
	}
	resp.Parts = append(resp.Parts, calls...)
	return resp
}

func (a *answer) stop() model.Stop {
	switch {
	case a.finish == "length":
		return model.StopMaxOutputTokens
	case a.finish == "content_filter":
		return model.StopContentFilter
	case a.refused:
		return model.StopRefusal
	case len(a.calls.list) > 0:
		return model.StopToolCalls
	default:
		return model.StopEnd
	}
}

func usage(u sdk.CompletionUsage) state.Usage {
	return state.Usage{
		InputTokens: max(0, u.PromptTokens), OutputTokens: max(0, u.CompletionTokens),
		CacheReadTokens: max(0, u.PromptTokensDetails.CachedTokens),
	}
}
