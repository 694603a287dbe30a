package mockmodel_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// cacheUsage is the cache usage in an answer, in any format.
type cacheUsage struct{ Read, Write, Hour int64 }

// ask makes a request without a network, so that a test can use a fake clock.
func ask(t *testing.T, s *mockmodel.Server, path, body string) cacheUsage {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	var a struct {
		Usage struct {
			Read     int64 `json:"cache_read_input_tokens"`
			Write    int64 `json:"cache_creation_input_tokens"`
			Creation struct {
				Hour int64 `json:"ephemeral_1h_input_tokens"`
			} `json:"cache_creation"`
			Chat      openAICached `json:"prompt_tokens_details"`
			Responses openAICached `json:"input_tokens_details"`
		}
		UsageMetadata struct {
			Cached int64 `json:"cachedContentTokenCount"` //nolint:tagliatelle // in Gemini's spelling
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	u := a.Usage
	return cacheUsage{
		u.Read + u.Chat.Read + u.Responses.Read + a.UsageMetadata.Cached, u.Write + u.Chat.Write + u.Responses.Write, u.Creation.Hour,
	}
}

type openAICached struct {
	Read  int64 `json:"cached_tokens"`
	Write int64 `json:"cache_write_tokens"`
}

// Entries of the prompt cache live as long as the provider's, counted from their last use.
func TestCacheExpires(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("instruct", 1000) // 2,000 tokens
	anthropic := func(ttl string) string {
		return fmt.Sprintf(`{"model":"m","system":[{"type":"text","text":%q,"cache_control":{"type":"ephemeral"%s}}],"messages":[{"role":"user","content":"hi"}]}`, long, ttl)
	}
	chat := func(name, key string) string {
		return fmt.Sprintf(`{"model":%q,"prompt_cache_key":%q,"messages":[{"role":"user","content":%q}]}`, name, key, long)
	}
	responses := func(name string) string {
		return fmt.Sprintf(`{"model":%q,"instructions":%q,"input":"hi"}`, name, long)
	}
	gemini := fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%q}]}]}`, long)
	type call struct {
		after time.Duration // since the previous one
		body  string
		want  cacheUsage
	}
	short := strings.Replace(anthropic(""), long, long[:4000], 1) // 1,000 tokens
	for name, test := range map[string]struct {
		path   string
		minute time.Duration
		calls  []call
	}{
		"anthropic, five minutes": {"/v1/messages", 0, []call{
			{0, anthropic(""), cacheUsage{0, 2006, 0}}, {5*time.Minute - 1, anthropic(""), cacheUsage{2006, 0, 0}},
			{5*time.Minute - 1, anthropic(""), cacheUsage{2006, 0, 0}}, {5 * time.Minute, anthropic(""), cacheUsage{0, 2006, 0}},
		}},
		"anthropic, an hour": {"/v1/messages", 0, []call{
			{0, anthropic(`,"ttl":"1h"`), cacheUsage{0, 2006, 2006}}, {time.Hour - 1, anthropic(`,"ttl":"1h"`), cacheUsage{2006, 0, 0}},
			{time.Hour, anthropic(`,"ttl":"1h"`), cacheUsage{0, 2006, 2006}},
		}},
		"anthropic, without breakpoints": {"/v1/messages", 0, []call{
			{0, `{"model":"m","system":"` + long + `","messages":[]}`, cacheUsage{}}, {0, `{"model":"m","system":"` + long + `","messages":[]}`, cacheUsage{}},
		}},
		"anthropic, a short prompt": {"/v1/messages", 0, []call{{0, short, cacheUsage{}}, {0, short, cacheUsage{}}}},
		"minutes of a second": {"/v1/messages", time.Second, []call{
			{0, anthropic(""), cacheUsage{0, 2006, 0}}, {5*time.Second - 1, anthropic(""), cacheUsage{2006, 0, 0}}, {5 * time.Second, anthropic(""), cacheUsage{0, 2006, 0}},
		}},
		"chat completions": {"/v1/chat/completions", 0, []call{
			{0, chat("gpt-5", "a"), cacheUsage{}}, {time.Minute, chat("gpt-5", "a"), cacheUsage{1920, 0, 0}},
			{0, chat("gpt-5", "b"), cacheUsage{}}, {0, chat("gpt-4.1", "a"), cacheUsage{}}, {5 * time.Minute, chat("gpt-5", "a"), cacheUsage{}},
		}},
		"Responses, gpt-5.6": {"/v1/responses", 0, []call{
			{0, responses("gpt-5.6"), cacheUsage{0, 1920, 0}}, {30*time.Minute - 1, responses("gpt-5.6"), cacheUsage{1920, 0, 0}},
			{30 * time.Minute, responses("gpt-5.6"), cacheUsage{0, 1920, 0}},
		}},
		"gemini": {"/v1beta/models/gemini-3-pro:generateContent", 0, []call{
			{0, gemini, cacheUsage{}}, {time.Minute, gemini, cacheUsage{1920, 0, 0}}, {5 * time.Minute, gemini, cacheUsage{}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, err := mockmodel.New(mockmodel.Config{
					CacheMinute: model.Duration(test.minute), Scripts: []mockmodel.Script{{Responses: []mockmodel.Response{{Scripted: model.Scripted{Text: "x"}}}}},
				})
				if err != nil {
					t.Fatal(err)
				}
				for i, c := range test.calls {
					time.Sleep(c.after) // the bubble's clock
					if diff := cmp.Diff(c.want, ask(t, s, test.path, c.body)); diff != "" {
						t.Errorf("call %d:\n%s", i, diff)
					}
				}
			})
		})
	}
	if _, err := mockmodel.New(mockmodel.Config{CacheMinute: -1}); err == nil || !strings.Contains(err.Error(), "cache_minute") {
		t.Errorf("a negative minute: %v", err)
	}
}
