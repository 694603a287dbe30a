package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A tenant may use the provider tools that an admin allows. A cost limit requires a bound on their uses:
// checked at the definition if it has the limit, else at the submission.
func TestProviderToolsOfTenant(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	admin, author, submitter := s.key("*", access.Admin), s.key("acme", access.Author), s.key("acme", access.Submitter)
	definition := func(more string) string {
		return `{"model": {"provider": "scripted", "responses": [{"text": "x"}], "fallback": [{"provider": "anthropic", "name": "claude-haiku-4-5"}]},
			"tools": [{"name": "web_search", "kind": "provider"` + more + `}]}`
	}
	if status, p := s.do(http.MethodPut, "/v1/agents/a", author, "", definition(``)); status != http.StatusCreated {
		t.Fatalf("%d %+v", status, p)
	}
	limited := `{"agent": "a", "input": "x", "limits": {"cost_usd": 1}}`
	if status, p := s.do(http.MethodPost, "/v1/runs", submitter, "", limited); status != http.StatusBadRequest || !strings.Contains(p.Detail, "limits.cost_usd: the run has a cost limit") {
		t.Errorf("a submission with a limit: %d %s", status, p.Detail)
	}
	if status, p := s.do(http.MethodPut, "/v1/agents/a", author, "", definition(`, "max_uses": 5`)); status >= 300 {
		t.Fatalf("%d %+v", status, p)
	}
	if status, p := s.do(http.MethodPost, "/v1/runs", submitter, "", limited); status >= 300 {
		t.Errorf("with max_uses: %d %s", status, p.Detail)
	}
	for settings, want := range map[string]string{
		`{"provider_tools": []}`:                  "tools[0].name: tool scripted/web_search is not among the providers' tools that agents of tenant acme may use (none)",
		`{"provider_tools": ["scripted/*"]}`:      "tools[0].name: tool anthropic/web_search is not among",
		`{"provider_tools": ["code_execution"]}`:  "tools[0].name: tool scripted/web_search is not among",
		`{"provider_tools": ["web_search"]}`:      "",
		`{"provider_tools": ["*/web_s*", "x/*"]}`: "",
	} {
		if status, p := s.do(http.MethodPut, "/v1/tenants/acme", admin, "", settings); status != http.StatusOK {
			t.Fatalf("settings %s: %d %+v", settings, status, p)
		}
		status, p := s.do(http.MethodPut, "/v1/agents/a", author, "", definition(`, "max_uses": 5`))
		if want == "" && status >= 300 || want != "" && (status != http.StatusForbidden || p.Code != api.CodeNotPermitted || !strings.Contains(p.Detail, want)) {
			t.Errorf("%s: %d %s, want %q", settings, status, p.Detail, want)
		}
	}
	if status, p := s.do(http.MethodPut, "/v1/tenants/acme", admin, "", `{"provider_tools": ["web_serch"]}`); status != http.StatusBadRequest || !strings.Contains(p.Detail, "provider_tools[0]") {
		t.Errorf("an unknown provider tool: %d %+v", status, p)
	}
}
