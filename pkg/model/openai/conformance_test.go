package openai_test

import (
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
)

// The provider's own SDK talks real HTTP to the mock model server.
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
		script := mockmodel.Script{Count: mockmodel.CountCalls}
		for _, r := range s.Responses {
			answer := mockmodel.Response{Scripted: r, Pace: model.Duration(s.Pace), CutAfter: s.CutAfter}
			script.Responses = append(script.Responses, answer)
		}
		server, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{script}, APIKey: modeltest.Key})
		if err != nil {
			t.Fatal(err)
		}
		h := httptest.NewServer(server)
		t.Cleanup(h.Close)
		client := h.Client()
		t.Cleanup(client.CloseIdleConnections)
		r := model.Request{Model: "mock-1", API: api, BaseURL: h.URL + "/v1", APIKey: modeltest.Key}
		return openai.New(openai.Config{Client: client}), r
	}
}
