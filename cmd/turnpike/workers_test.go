package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

func TestWorkersAndVersions(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/workers", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"items":[{"id":"w1","status":"alive","version":"v1","slots":8,"heard_at":"2026-11-20T12:00:00Z","holds":3,"runs":[]},{"id":"w2","status":"unreachable","heard_at":null,"holds":1,"runs":[]}],"next_cursor":null}`)
	})
	mux.HandleFunc("GET /v1/agents/hello/versions", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") != "20" {
			t.Errorf("query is %s", r.URL.RawQuery)
		}
		fmt.Fprint(w, `{"items":[{"version":2,"created_at":"2026-11-20T12:00:00Z","latest":true,"runs":{"total":5,"statuses":{"completed":3,"failed":1,"running":1},"cost_usd":0.25,"duration_ms":{"p50":1500,"p95":60000}}},{"version":1,"created_at":"2026-11-20T11:00:00Z","latest":false,"runs":{"total":7,"statuses":{"completed":7},"cost_usd":null,"duration_ms":{"p50":2,"p95":3}}}],"next_cursor":null,"examined":5,"complete":true}`)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for want, command := range map[string]interface{ Run(e *env) error }{
		"w1 alive v1 8 3; w2 unreachable - 0 1 -":      &workersCmd{},
		"5 3 1 0 $0.2500 1.5s 1m0s; 7 7 0 0 - 2ms 3ms": &agentsVersionsCmd{Name: "hello", Limit: 20},
	} {
		var out bytes.Buffer
		e := newEnv(&out, &out, false, false)
		e.ctx, e.client, e.server = t.Context(), api.New(s.URL), s.URL
		if err := command.Run(e); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(strings.Fields(out.String()), " ")
		for part := range strings.SplitSeq(want, "; ") {
			if !strings.Contains(got, part) {
				t.Errorf("%q is not in %q", part, got)
			}
		}
	}
}
