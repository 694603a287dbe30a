package gemini_test

import (
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/modeltest"
)

// The provider's own SDK talks real HTTP to the mock model server.
func TestProvider(t *testing.T) {
	t.Parallel()
	modeltest.Exercise(t, modeltest.Features{Name: "gemini", Wire: true, Signed: true, CacheRead: true, WholeCalls: true}, open)
}

func open(t *testing.T, s modeltest.Script) (model.Provider, model.Request) {
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
	return gemini.New(gemini.Config{Client: client}), model.Request{Model: "mock-1", BaseURL: h.URL, APIKey: modeltest.Key}
}
