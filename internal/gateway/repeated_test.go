package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A parameter that has one value and is given several times is refused on every route: the first value need not be the
// one that the caller means.
func TestRepeatedParameters(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, nil))
		return w
	}
	var api struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &api); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for path, methods := range api.Paths {
		for method, route := range methods {
			for _, p := range route.Parameters {
				if p.In != "query" || p.Name == "tenant" || strings.HasPrefix(path, "/v1/hooks/") || path == "/v1/runs" && p.Name == "status" {
					continue
				}
				tried++
				at := strings.NewReplacer("{", "", "}", "").Replace(path)
				w := do(strings.ToUpper(method), fmt.Sprintf("%s?%s=a&%s=a", at, p.Name, p.Name))
				if want := fmt.Sprintf(`parameter \"%s\" is given 2 times: give it once`, p.Name); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s %s with %s twice: %d %.300s", method, path, p.Name, w.Code, w.Body)
				}
			}
		}
	}
	if tried < 20 {
		t.Errorf("openapi.json has %d parameters", tried)
	}
	for path, want := range map[string]int{
		"/v1/runs?status=failed&status=completed":   http.StatusOK,
		"/v1/runs?metadata.a=1&metadata.b=2":        http.StatusOK,
		"/v1/runs?metadata.a=1&metadata.a=2":        http.StatusBadRequest,
		"/v1/agents?status=draft&status=draft":      http.StatusBadRequest,
		"/v1/memory/a?scope=tenant&scope=agent:a":   http.StatusBadRequest,
		"/v1/memory/a?scope=tenant&%73cope=agent:a": http.StatusBadRequest,
		"/v1/whoami?tenant=default&tenant=other":    http.StatusBadRequest,
		"/v1/nothing?a=1&a=2":                       http.StatusNotFound,
	} {
		if w := do(http.MethodGet, path); w.Code != want {
			t.Errorf("GET %s = %d %.300s, want %d", path, w.Code, w.Body, want)
		}
	}
}
