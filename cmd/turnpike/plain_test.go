package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// TestEscapesOnTerminals: text from models, tools and callers is printed safely on a terminal, escaped in JSON
// on a terminal, and unchanged in JSON for programs.
func TestEscapesOnTerminals(t *testing.T) {
	t.Parallel()
	const id = "01J00000000000000000000000"
	bad, _ := json.Marshal("\x1b]52;c;cm0=\x07\u009b2J\u202e")
	run := fmt.Sprintf(`{"id":%q,"agent":%s,"status":"waiting","reason":%s,"output":%s,"waiting":{"reason":"waiting_human_input","question":%s,"calls":[{"id":%s,"tool":%s,"arguments":%s,"message":%s}]},"transition":{"reason":%s,"detail":%s},"error":{"code":%s,"message":%s}}`,
		id, bad, bad, bad, bad, bad, bad, bad, bad, bad, bad, bad, bad)
	items := func(item string) string { return `{"items":[` + item + `],"next_cursor":null}` }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/turns"), r.URL.Query().Has("parent"):
			fmt.Fprint(w, items(""))
		case strings.HasSuffix(path, "/messages"):
			fmt.Fprint(w, items(fmt.Sprintf(`{"role":"assistant","parts":[{"type":"text","text":%s},{"type":"tool_call","id":"1","name":%s,"arguments":"{}"}]}`, bad, bad)))
		case path == "/v1/runs":
			fmt.Fprint(w, items(run))
		case path == "/v1/dead":
			fmt.Fprint(w, items(fmt.Sprintf(`{"seq":1,"kind":%s,"cause":%s,"agent":%s}`, bad, bad, bad)))
		case path == "/v1/webhooks/pending":
			fmt.Fprint(w, items(fmt.Sprintf(`{"run_id":%s,"type":%s,"host":%s,"reason":%s,"last_error":%s}`, bad, bad, bad, bad, bad)))
		case path == "/v1/agents":
			fmt.Fprint(w, items(fmt.Sprintf(`{"name":%s,"version":1}`, bad)))
		default:
			fmt.Fprint(w, run)
		}
	}))
	t.Cleanup(s.Close)
	for name, command := range map[string]interface{ Run(e *env) error }{
		"ps": &psCmd{Limit: 1}, "show": &showCmd{ID: id}, "dead": &deadLsCmd{}, "agents": &agentsLsCmd{}, "webhooks": &webhooksPendingCmd{Limit: 1},
	} {
		for _, how := range []struct{ asJSON, terminal, raw bool }{{false, false, false}, {false, true, false}, {true, false, true}, {true, true, false}} {
			var out, errs bytes.Buffer
			e := newEnv(&out, &errs, how.asJSON, how.terminal)
			e.ctx, e.client, e.server = t.Context(), api.New(s.URL), s.URL
			if err := command.Run(e); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			text := out.String() + errs.String()
			if found := strings.ContainsAny(text, "\x07\u009b\u202e") || strings.Contains(text, "\x1b]"); found != how.raw {
				t.Errorf("%s, %+v: %q", name, how, text)
			}
			if how.asJSON && !json.Valid(out.Bytes()) {
				t.Errorf("%s, %+v: not JSON: %q", name, how, text)
			}
		}
	}
	var errs bytes.Buffer
	fmt.Fprintln(newEnv(&errs, &errs, true, false).errs, errors.New("\x1b[2J"))
	if strings.Contains(errs.String(), "\x1b") {
		t.Errorf("an error is %q", errs.String())
	}
}
