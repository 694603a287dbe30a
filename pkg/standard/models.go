package standard

import (
	"fmt"
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
)

// Providers returns the providers of models by the names that agents use. The base_url of a model must have a public
// address, TLS and port 443, or an address in allow. Each of allow is a host:port, where TLS is not required, or a
// network such as 10.1.0.0/16, with any port; in a network TLS is not required if the URL has an IP address or
// localhost as its host. Requests to the providers' own APIs go through the proxy of the environment, and others do
// not. The error reports an invalid entry of allow.
func Providers(allow ...string) (map[string]model.Provider, error) {
	guard, err := guard.New(allow)
	if err != nil {
		return nil, fmt.Errorf("TURNPIKE_MODEL_ALLOW (in Go, Config.ModelAllow or the arguments of Providers): %w", err)
	}
	own := map[string]bool{}
	for _, spec := range model.BuiltinSpecs() {
		own[spec.Host] = true
	}
	client := &http.Client{Transport: &transport{own: own, direct: http.DefaultTransport, guarded: guard.Client().Transport}}
	return map[string]model.Provider{
		"scripted": scripted.New(), "openai": openai.New(openai.Config{Client: client}), "anthropic": anthropic.New(anthropic.Config{Client: client}),
		"gemini": gemini.New(gemini.Config{Client: client}),
	}, nil
}

// transport sends requests for the providers' own APIs through the proxy of the environment,
// if set, and all others through a guard.
type transport struct {
	own             map[string]bool // "host:port"
	direct, guarded http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" && t.own[guard.HostPort(r.URL)] {
		return t.direct.RoundTrip(r)
	}
	resp, err := t.guarded.RoundTrip(r)
	if why := guard.Refusal(err); why != nil {
		// To try it again does not help.
		return nil, &model.Error{Class: model.InvalidRequest, Message: fmt.Sprintf("base_url: the request to %s was not sent: %v, or to TURNPIKE_MODEL_ALLOW (ModelAllow) for models alone", guard.HostPort(r.URL), why)}
	}
	return resp, err
}
