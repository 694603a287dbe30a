package anthropic_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
)

// The provider's own SDK uses real HTTP against the mock model server.
func TestProvider(t *testing.T) {
	t.Parallel()
	modeltest.Exercise(t, modeltest.Features{Name: "anthropic", Wire: true, Signed: true, CacheRead: true, CacheWrite: true}, open)
}

func open(t *testing.T, s modeltest.Script) (model.Provider, model.Request) {
	url, client := testbed.Model(t, s)
	return anthropic.New(anthropic.Config{Client: client}), model.Request{Model: "mock-1", BaseURL: url, APIKey: modeltest.Key}
}

func TestMemoryOfResponses(t *testing.T) {
	t.Parallel()
	modeltest.Memory(t, modeltest.Features{Name: "anthropic"}, open)
}
