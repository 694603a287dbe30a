package gemini

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	sdk "google.golang.org/genai"

	"github.com/turnpike-dev/turnpike/internal/credential/cloudlogin"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

const (
	provider       = "gemini"
	defaultBaseURL = "https://generativelanguage.googleapis.com"
	defaultVersion = "v1beta"
)

// Config of a Provider.
type Config struct {
	// BaseURL is the address of requests without one. Default: that of Google. Its path may end with a version of the
	// API; the default is /v1beta.
	BaseURL string

	// APIKey is the key of requests that have no key and go to BaseURL: it is not sent to another server that an
	// agent's definition names. The provider never takes a key from the variables that Google's SDK reads.
	APIKey string

	// Client makes the HTTP requests. Default: a client without timeouts, because the context of a call bounds it. The
	// provider follows no redirects.
	Client *http.Client
}

// Provider calls streamGenerateContent of the Gemini API, also on Google Vertex AI if a request has such an address.
type Provider struct {
	cfg    Config
	client *http.Client
	sdk    *sdk.Client
	err    error // why there is no sdk; nil if there is
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
	logins := cloudlogin.New(client)
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Transport = transport{client.Transport}
	// One for all calls: making one reads the environment. The transport sets the key.
	c, err := sdk.NewClient(context.Background(), &sdk.ClientConfig{
		Backend: sdk.BackendGeminiAPI, APIKey: "set by the transport", HTTPClient: client,
		HTTPOptions: sdk.HTTPOptions{BaseURL: defaultBaseURL},
	})
	return &Provider{cfg, client, c, err, logins}
}

var versionPath = regexp.MustCompile(`/v\d[a-z0-9]*$`)

// Generate implements model.Provider. It makes one streaming call.
func (p *Provider) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	r, _ = r.Hosting(provider)
	if r.BesideTools() && !three(r.Model) && len(r.ProviderTools) == 0 {
		return model.AnswerByTool(ctx, r, onDelta, true, p.generate) // the API refuses a schema together with tools
	}
	return p.generate(ctx, r, onDelta)
}

func (p *Provider) generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if p.err != nil {
		return model.Response{}, invalid(fmt.Sprintf("Gemini cannot be used (%v): check the variables of the worker that begin with GOOGLE_ and GEMINI_, and restart it", p.err))
	}
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
	client, c, err := p.callAt(ctx, at, key)
	if err != nil {
		return model.Response{}, err
	}
	q := newQuestion(r)
	q.config.HTTPOptions = httpOptions(at, u)
	q.config.HTTPOptions.ExtrasRequestProvider = q.exact
	if r.Run != "" {
		c.id = fmt.Sprintf("%s/%d", r.Run, r.Call)
	}
	next, stop := iter.Pull2(client.Models.GenerateContentStream(context.WithValue(ctx, callKey{}, c), r.Model, q.contents, q.config))
	defer stop()
	a := newAnswer(r, onDelta)
	a.receipt = model.ReceiptFrom(ctx)
	for ctx.Err() == nil { // pieces that arrived after an abort are ignored
		var piece *sdk.GenerateContentResponse
		var more bool
		if piece, err, more = take(next); err != nil || !more {
			break
		}
		a.add(piece, c.stream.pop())
	}
	return a.end(ctx, c, err)
}

// httpOptions returns the address to which the SDK sends a request.
func httpOptions(at model.CloudAddress, u *url.URL) *sdk.HTTPOptions {
	if at.Cloud == model.Vertex {
		return &sdk.HTTPOptions{BaseURL: at.Base, APIVersion: "v1"}
	}
	base := *u
	base.Path = strings.TrimRight(base.Path, "/")
	version := strings.TrimPrefix(versionPath.FindString(base.Path), "/")
	base.Path = strings.TrimSuffix(base.Path, "/"+version)
	if version == "" {
		version = defaultVersion
	}
	return &sdk.HTTPOptions{BaseURL: base.String(), APIVersion: version}
}

// callAt returns the client of the SDK for an address, and the call with its credentials. A client of
// Google Vertex AI has the project and the location of the address.
func (p *Provider) callAt(ctx context.Context, at model.CloudAddress, key string) (*sdk.Client, *call, error) {
	if at.Cloud != model.Vertex {
		return p.sdk, &call{key: key}, nil
	}
	token, err := p.logins.Google(ctx, key)
	if err != nil {
		return nil, nil, model.LoginFailed(ctx, provider, key, cloudlogin.IsRefused(err), err)
	}
	client, err := sdk.NewClient(ctx, &sdk.ClientConfig{
		Backend: sdk.BackendVertexAI, Project: at.Project, Location: at.Region, HTTPClient: p.client, HTTPOptions: sdk.HTTPOptions{BaseURL: at.Base},
	})
	if err != nil {
		return nil, nil, invalid(fmt.Sprintf("Google Vertex AI cannot be used (%v): check the secret and base_url", err))
	}
	return client, &call{key: key, token: token}, nil
}

func invalid(text string) *model.Error {
	return &model.Error{Class: model.InvalidRequest, Provider: provider, Message: text}
}

var errShape = errors.New("the provider's stream has an event that is not in Gemini's format: check base_url")

// take returns the next piece of a response. The SDK panics on some events that are JSON but not in its format; take
// returns errShape for them.
//
//nolint:revive // the order of iter.Pull2
func take(next func() (*sdk.GenerateContentResponse, error, bool)) (piece *sdk.GenerateContentResponse, err error, ok bool) {
	defer func() {
		if recover() != nil {
			piece, err, ok = nil, errShape, true
		}
	}()
	return next()
}

// call is the state that a call of Generate shares with the transport.
type call struct {
	key    string
	token  string // of a cloud, in place of the key
	id     string
	sent   bool
	stream *events // nil without a response
}

type callKey struct{}

// transport sits between the SDK and the network: it sets the key, classifies errors by the provider's original
// response, and converts the stream to a format that the SDK can read.
type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, errors.New("send request: the request does not belong to a call of a model: report this bug in Turnpike")
	}
	c.sent = true
	req = req.Clone(req.Context())
	req.Header.Del("X-Goog-Api-Key")
	switch {
	case c.token != "":
		req.Header.Set("Authorization", "Bearer "+c.token)
	case c.key != "":
		req.Header.Set("X-Goog-Api-Key", c.key)
	}
	if c.id != "" {
		req.Header.Set("X-Client-Request-Id", c.id)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := model.CheckHTTP(provider, c.key, resp); err != nil {
		return nil, err
	}
	c.stream = newEvents(resp.Body)
	resp.Body = c.stream
	return resp, nil
}
