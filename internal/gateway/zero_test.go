package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// A bound of 0 on a tool is refused with the minimum: it does not mean unbounded.
func TestZeroBoundsOfTools(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for tool, want := range map[string]string{
		`{"kind": "provider", "name": "web_search", "max_uses": 0}`:                "max_uses: 0 is not between 1 and",
		`{"kind": "memory", "name": "memory", "scope": "tenant", "max_bytes": 0}`:  "max_bytes: 0 is not between 1 and",
		`{"kind": "provider", "name": "web_search", "max_uses": 1}`:                "",
		`{"kind": "memory", "name": "memory", "scope": "tenant", "max_bytes": 99}`: "",
	} {
		code, _, p := s.call("PUT", "/v1/agents/zero", `{"model": {"provider": "scripted", "responses": [{"text": "x"}]}, "tools": [`+tool+`]}`)
		detail, _ := p["detail"].(string)
		if refused := code == http.StatusBadRequest; refused != (want != "") || !strings.Contains(detail, want) {
			t.Errorf("%s: %d %s, want %q", tool, code, detail, want)
		}
	}
}
