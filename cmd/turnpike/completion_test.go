package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The last of several words is completed as a command, a flag, or the value of an argument or a flag.
func TestCompletions(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/runs":
			fmt.Fprint(w, `{"items":[{"id":"run_1"},{"id":"run_2"}],"next_cursor":null}`)
		case "/v1/agents":
			fmt.Fprint(w, `{"items":[{"name":"anna"},{"name":"bob"}],"next_cursor":null}`)
		default:
			t.Errorf("%s was requested", r.URL)
		}
	}))
	t.Cleanup(s.Close)
	for _, c := range []struct {
		words string // separated by spaces
		want  []string
		lacks string
	}{
		{"", []string{"ps", "run", "agents", "completion"}, "complete"},
		{"agents pu", []string{"put", "publish"}, "ls"},
		{"keys cre", []string{"create"}, ""},
		{"ps --a", []string{"--agent"}, "--batch"},
		{"ps --agent ", []string{"anna", "bob"}, ""},
		{"ps --agent b", []string{"bob"}, "anna"},
		{"ps --agent anna --ba", []string{"--batch"}, ""},
		{"--output json ps --agent ", []string{"anna", "bob"}, ""},
		{"watch ", []string{"run_1", "run_2"}, ""},
		{"watch run_2", []string{"run_2"}, "run_1"},
		{"watch run_2 ", nil, ""},
		{"watch --stream ", []string{"turns", "deltas"}, "run_1"},
		{"watch --stream turns ", []string{"run_1", "run_2"}, ""},
		{"-o ", []string{"json"}, "ps"},
		{"-o json ", []string{"ps"}, "json"},
		{"run ", []string{"anna", "bob"}, ""},
		{"ps --quiet ", nil, ""},
		{"agents rm --unknown ", []string{"anna", "bob"}, ""},
		{"show --raw ", []string{"run_1", "run_2"}, ""},
		{"ps --limit ", nil, ""},
		{"completion ", []string{"bash", "zsh", "fish"}, ""},
	} {
		text, err := says(t, api.New(s.URL), append([]string{"complete", "--"}, strings.Split(c.words, " ")...)...)
		got := strings.Fields(text)
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q, %v lacks %s", c.words, got, err, want)
			}
		}
		if err != nil || slices.Contains(got, c.lacks) || c.want == nil && len(got) > 0 {
			t.Errorf("%q: %q, %v; want %q, and not %q", c.words, got, err, c.want, c.lacks)
		}
	}
	// Without an answer of the gateway there is nothing to print, an error least of all.
	if text, err := says(t, api.New("http://127.0.0.1:1"), "complete", "--", "watch", ""); text != "" || err != nil {
		t.Errorf("without a gateway: %q, %v", text, err)
	}
	if text, err := says(t, api.New(s.URL), "complete"); err != nil || !strings.Contains(text, "\nps\n") {
		t.Errorf("without a word: %q, %v", text, err)
	}
}
