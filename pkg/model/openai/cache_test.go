package openai_test

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// transport answers requests itself.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A run's calls use its id as the cache key at OpenAI and Azure, and at no other server. Models that charge for
// cache writes get none if caching is off.
func TestCacheKey(t *testing.T) {
	t.Parallel()
	extra := map[string]json.RawMessage{"prompt_cache_key": json.RawMessage(`"mine"`)}
	for name, test := range map[string]struct {
		request model.Request
		want    any
		options any // prompt_cache_options
	}{
		"responses":      {model.Request{Run: "run_x"}, "run_x", nil},
		"chat":           {model.Request{Run: "run_x", API: model.APIChat}, "run_x", nil},
		"azure":          {model.Request{Run: "run_x", BaseURL: "https://mine.openai.azure.com/openai/v1"}, "run_x", nil},
		"another server": {model.Request{Run: "run_x", BaseURL: "https://models.example.com/v1"}, nil, nil},
		"no run":         {model.Request{}, nil, nil},
		"off":            {model.Request{Run: "run_x", Settings: model.Settings{Cache: model.CacheOff}}, nil, nil},
		"off, gpt-5.6": {
			model.Request{Run: "run_x", Model: "gpt-5.6-mini", Settings: model.Settings{Cache: model.CacheOff}}, nil, map[string]any{"mode": "explicit"},
		},
		"off, gpt-5.6 in chat": {
			model.Request{Run: "run_x", Model: "gpt-5.6", API: model.APIChat, Settings: model.Settings{Cache: model.CacheOff}}, nil, map[string]any{"mode": "explicit"},
		},
		"gpt-5.6":               {model.Request{Run: "run_x", Model: "gpt-5.6"}, "run_x", nil},
		"a key of a definition": {model.Request{Run: "run_x", Settings: model.Settings{Extra: extra}}, "mine", nil},
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
			r.Model, r.APIKey, r.Messages = cmp.Or(r.Model, "gpt-5"), "key", []state.Message{state.UserText("hi")}
			_, err := openai.New(openai.Config{Client: client}).Generate(t.Context(), r, nil)
			if err == nil || body == nil {
				t.Fatalf("no request was made: %v", err)
			}
			if got := body["prompt_cache_key"]; got != test.want {
				t.Errorf("prompt_cache_key is %v, want %v", got, test.want)
			}
			if got := body["prompt_cache_options"]; !reflect.DeepEqual(got, test.options) {
				t.Errorf("prompt_cache_options is %v, want %v", got, test.options)
			}
		})
	}
}
