package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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

// The client reads all pages of agents and drafts.
func TestAgentsOfAllPages(t *testing.T) {
	t.Parallel()
	var asked []string
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Encode())
		fmt.Fprint(w, map[string]string{
			"": `{"items":[{"name":"a"}],"next_cursor":"1"}`, "1": `{"items":[],"next_cursor":"2"}`, "2": `{"items":[{"name":"b"}],"next_cursor":null}`,
		}[r.FormValue("cursor")])
	}))
	defer gateway.Close()
	c := api.New(gateway.URL)
	agents, err := c.Agents(t.Context())
	if want := []string{"", "cursor=1", "cursor=2"}; err != nil || len(agents) != 2 || agents[1].Name != "b" || !slices.Equal(asked, want) {
		t.Errorf("agents %+v, %v, requests %q", agents, err, asked)
	}
	asked = nil
	drafts, err := c.AgentDrafts(t.Context())
	if want := []string{"status=draft", "cursor=1&status=draft", "cursor=2&status=draft"}; err != nil || len(drafts) != 2 || drafts[1].Name != "b" || !slices.Equal(asked, want) {
		t.Errorf("drafts %+v, %v, requests %q", drafts, err, asked)
	}
}
