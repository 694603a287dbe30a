package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The client reads all pages of a log.
func TestEntriesOfAllPages(t *testing.T) {
	t.Parallel()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/runs/run_1/events" || r.Header.Get("Accept") != "application/json" {
			http.Error(w, "no page of a log", http.StatusNotFound)
			return
		}
		if r.URL.Query().Get("cursor") == "" {
			fmt.Fprint(w, `{"items":[{"seq":1},{"seq":2}],"next_cursor":"2"}`)
			return
		}
		fmt.Fprintf(w, `{"items":[{"seq":3,"after":%s}],"next_cursor":null}`, r.URL.Query().Get("cursor"))
	}))
	defer gateway.Close()
	entries, err := api.New(gateway.URL).Entries(t.Context(), "run_1")
	if got := fmt.Sprintf("%s", entries); err != nil || got != `[{"seq":1} {"seq":2} {"seq":3,"after":2}]` {
		t.Errorf("Entries = %s, %v", got, err)
	}
}
