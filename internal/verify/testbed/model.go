package testbed

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Model serves a script of the suite of providers in all of their formats, for requests with
// modeltest.Key. Use the client only for it.
func Model(tb testing.TB, s modeltest.Script) (url string, client *http.Client) {
	tb.Helper()
	script := mockmodel.Script{Count: mockmodel.CountCalls}
	for _, r := range s.Responses {
		script.Responses = append(script.Responses, mockmodel.Response{Scripted: r, Pace: model.Duration(s.Pace), CutAfter: s.CutAfter})
	}
	server, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{script}, APIKey: modeltest.Key})
	if err != nil {
		tb.Fatal(err)
	}
	h := httptest.NewServer(server)
	tb.Cleanup(h.Close)
	client = h.Client()
	tb.Cleanup(client.CloseIdleConnections)
	return h.URL, client
}
