package openai_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
)

// The provider's own SDK uses real HTTP against the mock model server.
func TestChat(t *testing.T) {
	t.Parallel()
	modeltest.Exercise(t, modeltest.Features{Name: "openai", Wire: true, Signed: true, CacheRead: true, CacheWrite: true}, open(model.APIChat))
}

func TestResponses(t *testing.T) {
	t.Parallel()
	modeltest.Exercise(t, modeltest.Features{Name: "openai", Wire: true, Signed: true, CacheRead: true, CacheWrite: true}, open(model.APIResponses))
}

func open(api model.API) modeltest.Open {
	return func(t *testing.T, s modeltest.Script) (model.Provider, model.Request) {
		t.Helper()
		url, client := testbed.Model(t, s)
		return openai.New(openai.Config{Client: client}), model.Request{Model: "mock-1", API: api, BaseURL: url + "/v1", APIKey: modeltest.Key}
	}
}

func TestMemoryOfResponses(t *testing.T) {
	t.Parallel()
	for _, api := range []model.API{model.APIChat, model.APIResponses} {
		modeltest.Memory(t, modeltest.Features{Name: "openai"}, open(api))
	}
}
