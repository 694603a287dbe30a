package model_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func TestParseRateLimits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"- {provider: openai, model: ^gpt-5, requests_per_minute: 500}\n- {provider: openai, base_url: https://x.example/v1, tokens_per_minute: 200000}\n",
		`[{"provider":"openai","model":"^gpt-5","requests_per_minute":500},{"provider":"openai","base_url":"https://x.example/v1","tokens_per_minute":200000}]`,
	} {
		got, err := model.ParseRateLimits([]byte(text))
		if err != nil || len(got) != 2 {
			t.Fatalf("ParseRateLimits(%q) = %v, %v", text, got, err)
		}
		if _, q, ok := got.For("openai", "", "gpt-5-mini", "k"); !ok || q != (state.Quota{Requests: 500}) {
			t.Errorf("gpt-5-mini has %+v, %v", q, ok)
		}
		if _, q, ok := got.For("openai", "https://x.example/v1/", "llama", "k"); !ok || q != (state.Quota{Tokens: 200_000}) {
			t.Errorf("llama at x.example has %+v, %v", q, ok)
		}
		if _, q, _ := got.For("openai", "https://x.example/v1", "gpt-5", "k"); q != (state.Quota{Requests: 500}) {
			t.Errorf("gpt-5 at x.example has %+v, want the first row that matches", q)
		}
		if _, q, ok := got.For("openai", "", "gpt-4o", "k"); ok || q != (state.Quota{}) {
			t.Errorf("gpt-4o has %+v, %v", q, ok)
		}
	}
	most := "- {provider: openai, requests_per_minute: 1, tokens_per_minute: 1000000000}"
	if got, err := model.ParseRateLimits([]byte(most)); err != nil || got[0].Quota != (state.Quota{Requests: 1, Tokens: 1e9}) {
		t.Errorf("the lowest and the highest limit = %+v, %v", got, err)
	}
	if got, err := model.ParseRateLimits(nil); err != nil || len(got) != 0 {
		t.Errorf("ParseRateLimits of an empty file = %v, %v", got, err)
	}
	for text, says := range map[string]string{
		"- {requests_per_minute: 5}": "row 1: provider is missing",
		"- {provider: openai}":       "row 1: requests_per_minute and tokens_per_minute are both missing",
		"- {provider: a, tokens_per_minute: 1}\n- {provider: openai, tokens_per_minute: 0}": "row 2: tokens_per_minute: 0 is not between 1 and",
		strings.Replace(most, "1000000000", "1000000001", 1):                                "tokens_per_minute: 1000000001 is not between 1 and 1000000000",
		"- {provider: openai, requests_per_minute: -1}":                                     "requests_per_minute: -1 is not",
		"- {provider: openai, requests_per_minute: 1.5}":                                    "requests_per_minute",
		"- {provider: openai, rpm: 1}":                                                      `row 1: unknown field "rpm": write provider`,
		"- {provider: openai, requests_per_minute: 1, model: '('}":                          "model: error parsing regexp",
		"openai: 3": "the file is not a list",
		"- 3":       "row 1: it has the type number: write provider",
		"- {provider: openai, model: [a], requests_per_minute: 1}": "row 1: model has the type array: write provider",
		"- {": "parse rate limits",
	} {
		if _, err := model.ParseRateLimits([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseRateLimits(%q) = %v, want it to say %q", text, err, says)
		}
	}
}

// Models that a provider counts together share a quota; others do not.
func TestRateLimitKeys(t *testing.T) {
	t.Parallel()
	limits, err := model.ParseRateLimits([]byte("- {provider: openai, model: ^gpt-5, requests_per_minute: 5}\n- {provider: openai, model: ^o1, requests_per_minute: 5}\n- {provider: other, requests_per_minute: 5}"))
	if err != nil {
		t.Fatal(err)
	}
	key := func(provider, baseURL, name, apiKey string) string {
		k, _, _ := limits.For(provider, baseURL, name, apiKey)
		return k
	}
	of := key("openai", "", "gpt-5", "sk-1")
	if strings.Contains(of, "sk-1") || len(of) != 32 {
		t.Errorf("key = %q", of)
	}
	for _, same := range []string{key("openai", "", "gpt-5-mini", "sk-1"), key("openai", "/", "gpt-5", "sk-1")} {
		if same != of {
			t.Errorf("one quota has the keys %s and %s", same, of)
		}
	}
	if key("other", "", "a", "") != key("other", "", "b", "") {
		t.Error("a row without a model has one key per model")
	}
	seen := map[string]bool{of: true}
	for _, other := range []string{
		key("openai", "", "gpt-5", "sk-2"), key("openai", "https://x", "gpt-5", "sk-1"), key("anthropic", "", "gpt-5", "sk-1"),
		key("openai", "", "gpt-4o", "sk-1"), key("openai", "", "o3", "sk-1"), key("openai", "", "o1", "sk-1"), key("other", "", "gpt-5", "sk-1"), key("openai", "", "gpt-5s", "k-1"),
	} {
		if seen[other] {
			t.Errorf("two quotas have the key %s", other)
		}
		seen[other] = true
	}
}

// A file is refused with an error, or parsed to usable limits.
func FuzzParseRateLimits(f *testing.F) {
	for _, text := range []string{"", "- {provider: openai, model: ^gpt-5, requests_per_minute: 500}", "[{}]", "- a", "- {provider: x, tokens_per_minute: 1e3}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := model.ParseRateLimits([]byte(text))
		if err != nil {
			return
		}
		for _, l := range limits {
			if l.Provider == "" || l.Quota == (state.Quota{}) || l.Quota.Requests < 0 || l.Quota.Tokens < 0 {
				t.Fatalf("ParseRateLimits(%q) = %+v", text, l)
			}
		}
		limits.For("openai", "", "gpt-5", "")
	})
}
