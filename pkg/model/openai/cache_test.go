package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// transport answers requests itself.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A run's calls have its id as cache key at OpenAI and Azure, and at no other server.
func TestCacheKey(t *testing.T) {
	t.Parallel()
	extra := map[string]json.RawMessage{"prompt_cache_key": json.RawMessage(`"mine"`)}
	for name, test := range map[string]struct {
		request model.Request
		want    any
	}{
		"responses":             {model.Request{Run: "run_x"}, "run_x"},
		"chat":                  {model.Request{Run: "run_x", API: model.APIChat}, "run_x"},
		"azure":                 {model.Request{Run: "run_x", BaseURL: "https://mine.openai.azure.com/openai/v1"}, "run_x"},
		"another server":        {model.Request{Run: "run_x", BaseURL: "https://models.example.com/v1"}, nil},
		"no run":                {model.Request{}, nil},
		"off":                   {model.Request{Run: "run_x", Settings: model.Settings{Cache: model.CacheOff}}, nil},
		"a key of a definition": {model.Request{Run: "run_x", Settings: model.Settings{Extra: extra}}, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body map[string]any
			client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				return &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
			})}
			r := test.request
			r.Model, r.APIKey, r.Messages = "gpt-5", "key", []state.Message{state.UserText("hi")}
			_, err := openai.New(openai.Config{Client: client}).Generate(t.Context(), r, nil)
			if err == nil || body == nil {
				t.Fatalf("no request was made: %v", err)
			}
			if got := body["prompt_cache_key"]; got != test.want {
				t.Errorf("prompt_cache_key is %v, want %v", got, test.want)
			}
		})
	}
}
