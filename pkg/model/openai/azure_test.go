package openai_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const principal = `{"appId":"5b0e6c2e-0000-4000-8000-000000000001","displayName":"turnpike","password":"azure-password","tenant":"5b0e6c2e-0000-4000-8000-000000000002"}`

func azure(t *testing.T) *modeltest.Cloud {
	t.Helper()
	return modeltest.NewCloud(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.HasSuffix(r.URL.Path, "/responses") {
			_, _ = fmt.Fprint(w, `event: response.completed`+"\n"+`data: {"type":"response.completed","response":{"id":"r","model":"m","status":"completed","output":[{"type":"message","id":"i","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}]}}`+"\n\n")
			return
		}
		_, _ = io.WriteString(w, `data: {"id":"c","model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	})
}

func TestAzure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, base, secret string
		api                model.API
		path, query        string
		header, value      string
	}{
		{"key", "https://my.openai.azure.com/openai/v1", "azure-key", "", "/openai/v1/chat/completions", "", "Api-Key", "azure-key"},
		{"key, responses", "https://my.openai.azure.com/openai/v1/", "azure-key", model.APIResponses, "/openai/v1/responses", "", "Api-Key", "azure-key"},
		{"principal", "https://my.services.ai.azure.com/openai/v1", principal, "", "/openai/v1/chat/completions", "", "Authorization", "Bearer token-1"},
		{"key, version", "https://my.openai.azure.com?api-version=2025-04-01-preview", "azure-key", "", "/openai/deployments/mini/chat/completions", "api-version=2025-04-01-preview", "Api-Key", "azure-key"},
		{"key, version, responses", "https://my.openai.azure.com/openai?api-version=2025-04-01-preview", "azure-key", model.APIResponses, "/openai/responses", "api-version=2025-04-01-preview", "Api-Key", "azure-key"},
		{"principal, version", "https://my.openai.azure.com?api-version=2024-10-21", principal, "", "/openai/deployments/mini/chat/completions", "api-version=2024-10-21", "Authorization", "Bearer token-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cloud := azure(t)
			p := openai.New(openai.Config{Client: cloud.Client, APIKey: "of-the-worker"})
			for range 2 {
				resp, err := p.Generate(t.Context(), model.Request{Run: "r1", Call: 3, Model: "mini", API: c.api, BaseURL: c.base, APIKey: c.secret, Messages: []state.Message{state.UserText("hi")}}, nil)
				if err != nil || len(resp.Parts) != 1 || resp.Parts[0].Text != "Hello." {
					t.Fatalf("%+v, %v", resp.Parts, err)
				}
			}
			got := cloud.Last(t)
			if got.URL.Path != c.path || got.URL.RawQuery != c.query {
				t.Errorf("it was sent to %s, want %s?%s", got.URL, c.path, c.query)
			}
			if got.Header.Get(c.header) != c.value || got.Header.Get("Api-Key") != "" && got.Header.Get("Authorization") != "" || got.Header.Get("X-Client-Request-Id") != "r1/3" {
				t.Errorf("headers %v", got.Header)
			}
			if cloud.Tokens() > 1 {
				t.Errorf("%d tokens for two calls", cloud.Tokens())
			}
		})
	}
}

func TestAzureRefuses(t *testing.T) {
	t.Parallel()
	cloud := azure(t)
	generate := func(base, secret string) *model.Error {
		_, err := openai.New(openai.Config{Client: cloud.Client}).Generate(t.Context(), model.Request{Model: "mini", BaseURL: base, APIKey: secret, Messages: []state.Message{state.UserText("hi")}}, nil)
		e, ok := errors.AsType[*model.Error](err)
		if !ok {
			t.Fatalf("not a model error: %v", err)
		}
		return e
	}
	wrong := strings.Replace(principal, "azure-password", "not-shown", 1)
	for _, base := range []string{"https://my.openai.azure.com/openai/v1", "https://my.openai.azure.com?api-version=2024-10-21"} {
		if e := generate(base, wrong); e.Class != model.Auth || strings.Contains(e.Message, "not-shown") || !strings.Contains(e.Message, "check appId") {
			t.Errorf("a wrong password: %v", e)
		}
		if e := generate(base, `{"appId":"a"}`); e.Class != model.Auth || !strings.Contains(e.Message, `"tenant"`) {
			t.Errorf("half an identity: %v", e)
		}
	}
	if e := generate("https://my.openai.azure.com/deployments", "k"); e.Class != model.InvalidRequest || !strings.Contains(e.Message, "/openai/v1") {
		t.Errorf("an address without a version: %v", e)
	}
	if e := generate("http://my.openai.azure.com/openai/v1", "k"); e.Class != model.InvalidRequest || !strings.Contains(e.Message, "https://") {
		t.Errorf("an address without TLS: %v", e)
	}
}
