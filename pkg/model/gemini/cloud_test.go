package gemini_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const vertexURL = "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global"

func TestVertex(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream(piece(`{"text":"Hello."}`, stop)))
	})
	account := c.ServiceAccount(t)
	p := gemini.New(gemini.Config{Client: c.Client})
	history := []state.Message{
		state.UserText("How warm is it?"),
		{Role: state.RoleAssistant, Parts: []state.Part{call("c1", "weather", `{"city":"Bonn"}`)}},
		{Role: state.RoleTool, Parts: []state.Part{{Type: state.PartToolResult, ID: "c1", Name: "weather", Text: "20"}}},
	}
	for range 2 {
		resp, err := p.Generate(t.Context(), model.Request{
			Run: "r1", Model: "gemini-2.5-flash", BaseURL: vertexURL, APIKey: account, Messages: history,
			Tools: []model.ToolSpec{{Name: "weather", Schema: []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`)}},
		}, nil)
		if err != nil || len(resp.Parts) != 1 || resp.Parts[0].Text != "Hello." {
			t.Fatalf("%+v, %v", resp.Parts, err)
		}
	}
	got := c.Last(t)
	if want := "/v1/projects/my-project/locations/global/publishers/google/models/gemini-2.5-flash:streamGenerateContent"; got.URL.Path != want || got.Host != "aiplatform.googleapis.com" {
		t.Errorf("it was sent to %s%s, want %s", got.Host, got.URL.Path, want)
	}
	if got.Header.Get("Authorization") != "Bearer token-1" || got.Header.Get("X-Goog-Api-Key") != "" || got.Header.Get("X-Client-Request-Id") != "r1/0" || c.Tokens() != 1 {
		t.Errorf("headers %v after %d tokens", got.Header, c.Tokens())
	}
	if !strings.Contains(got.Body, `"functionCall"`) || !strings.Contains(got.Body, `"functionResponse"`) {
		t.Errorf("body %s", got.Body)
	}
}

func TestVertexFails(t *testing.T) {
	t.Parallel()
	c := modeltest.NewCloud(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `[{"error":{"code":429,"message":"Resource exhausted. Please try again later.","status":"RESOURCE_EXHAUSTED"}}]`)
	})
	generate := func(base, secret string) model.Class {
		_, err := gemini.New(gemini.Config{Client: c.Client}).Generate(t.Context(), model.Request{Model: "gemini-2.5-flash", BaseURL: base, APIKey: secret, Messages: []state.Message{state.UserText("hi")}}, nil)
		e, ok := errors.AsType[*model.Error](err)
		if !ok {
			t.Fatalf("not a model error: %v", err)
		}
		return e.Class
	}
	account := c.ServiceAccount(t)
	if got := generate(vertexURL, account); got != model.RateLimited {
		t.Errorf("an exhausted quota is %s", got)
	}
	if got := generate(vertexURL, "AIza-some-key"); got != model.Auth {
		t.Errorf("a secret that is not an account is %s", got)
	}
	if got := generate("https://aiplatform.googleapis.com/v1beta", account); got != model.InvalidRequest {
		t.Errorf("an address without a project is %s", got)
	}
}
