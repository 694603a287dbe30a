package standard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/standard"
)

// A model's base_url may reach public addresses and those that a setting allows, redirects included. A refusal
// is not retried, and names the setting.
func TestBaseURL(t *testing.T) {
	t.Parallel()
	var inside atomic.Int32
	internal := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	defer internal.Close()
	outside := httptest.NewServer(http.RedirectHandler(internal.URL, http.StatusTemporaryRedirect))
	defer outside.Close()
	allowed := strings.TrimPrefix(outside.URL, "http://")
	providers, err := standard.Providers(allowed)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"openai", "anthropic", "gemini"} {
		for _, url := range []string{internal.URL, "https://169.254.169.254/latest", "http://1.1.1.1/v1", "https://[::1]/v1", "https://localhost/v1", outside.URL} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			_, err := providers[name].Generate(ctx, model.Request{Model: "m", BaseURL: url, APIKey: "sk-c4n4ry-0123456789"}, nil)
			cancel()
			failed, ok := errors.AsType[*model.Error](err)
			switch {
			case !ok:
				t.Errorf("%s at %s: %v", name, url, err)
			case url == outside.URL:
				if failed.Status != http.StatusTemporaryRedirect {
					t.Errorf("%s at a server that redirects elsewhere: %v", name, err)
				}
			case failed.Class != model.InvalidRequest || !strings.Contains(failed.Message, "TURNPIKE_MODEL_ALLOW"):
				t.Errorf("%s at %s: %s %v; want a refusal", name, url, failed.Class, err)
			}
		}
	}
	if inside.Load() != 0 {
		t.Errorf("%d requests reached a private address", inside.Load())
	}
	if _, err := standard.Providers("nonsense"); err == nil || !strings.Contains(err.Error(), "TURNPIKE_MODEL_ALLOW") {
		t.Errorf("an invalid address: %v", err)
	}
}
