package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A setting that the model does not support, or that the operator does not allow, returns 400 with its
// location.
func TestModelSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		allow       []string
		model, want string // the expected error; empty: none
	}{
		{nil, `{provider: openai, name: gpt-4.1, temperature: 0.2, extra: {verbosity: low}}`, ""},
		{nil, `{provider: openai, name: gpt-4.1, top_k: 5}`, "model.top_k: openai does not support it: remove it"},
		{nil, `{provider: scripted, top_k: 5, fallback: [{provider: anthropic, name: claude-opus-4-7, top_k: 5}]}`, "model.fallback[0].top_k: "},
		{nil, `{provider: openai, name: gpt-4.1, extra: {prompt_cache_retention: 24h}}`, "add openai:prompt_cache_retention to TURNPIKE_MODEL_EXTRA"},
		{[]string{"openai:prompt_cache_retention"}, `{provider: openai, name: gpt-4.1, extra: {prompt_cache_retention: 24h}}`, ""},
		{[]string{"openai:prompt_cache_retention"}, `{provider: openai, name: gpt-4.1, extra: {store: true}}`, "model.extra.store: it is not allowed, since Turnpike sets this field"},
	} {
		g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{ModelExtra: tt.allow})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1/v1/agents/a", strings.NewReader("model: "+tt.model))
		g.Handler().ServeHTTP(w, r)
		if ok := w.Code == http.StatusCreated; ok != (tt.want == "") || !ok && (w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), tt.want)) {
			t.Errorf("%s with %q allowed: %d %s, want %q", tt.model, tt.allow, w.Code, w.Body, tt.want)
		}
	}
	if _, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{ModelExtra: []string{"openai:tools"}}); err == nil {
		t.Error("a gateway starts with tools allowed as an extra field")
	}
}
