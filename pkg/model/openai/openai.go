package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/turnpike-dev/turnpike/internal/credential/cloudlogin"
	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

const (
	provider       = "openai"
	defaultBaseURL = "https://api.openai.com/v1"
)

// Config of a Provider.
type Config struct {
	// BaseURL, with its version path, is the address of requests without one. Default: that of OpenAI.
	BaseURL string

	// APIKey is the key of requests without one, only at BaseURL: it is never sent to a server that an agent's
	// definition names.
	APIKey string

	// Client makes the HTTP requests. Default: a client without timeouts, because the context of a call bounds it. The
	// provider follows no redirects.
	Client *http.Client
}

// Provider calls the Responses API and chat completions, also on Azure OpenAI if a request has such an address.
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

// Generate implements model.Provider. It makes one streaming call. A request without an API uses the Responses API if
// it has no BaseURL and Config.BaseURL is that of OpenAI, and chat completions otherwise. If the Responses API cannot
// decrypt thinking in the history, Generate repeats the call without it.
func (p *Provider) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	u, key, err := r.Endpoint(provider, p.cfg.BaseURL, p.cfg.APIKey)
	if err != nil {
		return model.Response{}, err
	}
	api := r.API
	if api == "" {
		api = model.APIChat
		if r.BaseURL == "" && p.cfg.BaseURL == defaultBaseURL {
			api = model.APIResponses
		}
	}
	if r.Messages, err = model.SendFiles(model.Choice{Provider: provider, Model: r.Model, API: api}, r.Messages); err != nil {
		return model.Response{}, err
	}
	if api == model.APIChat {
		r.ProviderTools = nil // chat completions have none
	}
	r, _ = r.Hosting(provider)
	options, err := p.options(ctx, r, u, key)
	if err != nil {
		return model.Response{}, err
	}
	switch api {
	case model.APIResponses:
		return respond(ctx, r, key, options, onDelta)
	case model.APIChat:
		generate := func(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
			return chat(ctx, r, official(u), key, options, onDelta)
		}
		// Servers that constrain the output to a schema would prevent the model from
		// calling tools.
		if r.BesideTools() && !official(u) && r.ToolChoice.Mode != model.ToolsNone {
			return model.AnswerByTool(ctx, r, onDelta, false, generate)
		}
		return generate(ctx, r, onDelta)
	default:
		return model.Response{}, &model.Error{
			Class: model.InvalidRequest, Provider: provider, Message: fmt.Sprintf("api %q is not valid: write responses or chat", api),
		}
	}
}

func (p *Provider) options(ctx context.Context, r model.Request, base *url.URL, key string) ([]option.RequestOption, error) {
	at, err := r.CloudAt(provider, base.String())
	if err != nil {
		return nil, err
	}
	place, authorize := []option.RequestOption{option.WithBaseURL(base.String())}, bearer(key)
	if at.Cloud == model.Azure {
		if place, authorize, err = p.inCloud(ctx, at, key); err != nil {
			return nil, err
		}
	}
	options := []option.RequestOption{
		option.WithHTTPClient(p.client),
		option.WithMaxRetries(0),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			authorize(req.Header)
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
	}
	options = append(options, place...)
	// With a key for each run, the run's next call reaches the server that has its prompt. Other servers may refuse an
	// unknown field.
	switch {
	case !official(base):
	case r.Cache == model.CacheOff && modelname.OpenAI(r.Model) && modelname.GPT(r.Model).Since(5, 6):
		// These models bill what they write to the cache. Without a breakpoint they write nothing.
		options = append(options, option.WithJSONSet("prompt_cache_options.mode", "explicit"))
	case r.Cache != model.CacheOff && r.Run != "":
		options = append(options, option.WithJSONSet("prompt_cache_key", string(r.Run)))
	}
	for _, f := range r.ExtraFields(provider) {
		options = append(options, option.WithJSONSet(f.Path, f.Value))
	}
	return options, nil
}

// bearer returns a function that sets the header of a key, if there is one.
func bearer(key string) func(http.Header) {
	return func(h http.Header) {
		if key != "" {
			h.Set("Authorization", "Bearer "+key)
		}
	}
}

// failure returns the error of a call, also that of an error event.
func failure(ctx context.Context, key string, err error) *model.Error {
	if event, ok := errors.AsType[*ssestream.StreamError](err); ok && ctx.Err() == nil {
		return classify(key, event.Event.Data)
	}
	return model.Broken(ctx, provider, key, err)
}

// classify returns the error in an event of a stream.
func classify(key string, body []byte) *model.Error {
	return model.Classify(model.Failure{Provider: provider, Secret: key, Status: http.StatusOK, Body: body})
}
