package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// The end of an id selects a run among the newest; an ambiguous one lists the candidates.
func TestRunsByTheEndsOfTheirIDs(t *testing.T) {
	t.Parallel()
	const one, two, other = "run_01M848HY4KCXMSBXXTGTJACQES", "run_01M848HY4KCXMSBXXTGTJACQET", "run_01M848HY4KCXMSBXYTGTJACQES"
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/runs" {
			run := `{"id":%q,"agent":"hello","agent_version":1,"status":"running"}`
			if r.FormValue("cursor") == "" { // a page may have fewer runs than its limit
				fmt.Fprintf(w, `{"items":[`+run+`,`+run+`],"next_cursor":"rest"}`, one, two)
			} else {
				fmt.Fprintf(w, `{"items":[`+run+`],"next_cursor":null}`, other)
			}
			return
		}
		fmt.Fprintf(w, `{"id":%q,"agent":"hello","status":"running"}`, one)
	}))
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "http://") // as people write it
	for _, test := range []struct{ id, asks, says string }{
		{"jacqet", two, "abort accepted"},
		{"XTGTJACQES", one, "abort accepted"},
		{one, one, "abort accepted"},
		{"ACQES", "", "the ids of 2 runs end in ACQES"},
		{"ZZZZ", "", "no id of the newest 3 runs ends in ZZZZ"},
	} {
		asked = nil
		cmd := exec.CommandContext(t.Context(), os.Args[0], "cancel", test.id)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "TURNPIKE_TEST_COMMAND=1", "TURNPIKE_URL="+address)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (test.asks != "") || !bytes.Contains(out, []byte(test.says)) {
			t.Errorf("cancel %s: %v, %s", test.id, err, out)
		}
		if last := asked[len(asked)-1]; test.asks != "" && last != "POST /v1/runs/"+test.asks+"/cancel" || test.asks == "" && last != "GET /v1/runs" {
			t.Errorf("cancel %s requested %q", test.id, asked)
		}
		if test.id == "ACQES" && (!bytes.Contains(out, []byte(one)) || !bytes.Contains(out, []byte(other)) || bytes.Contains(out, []byte(two))) {
			t.Errorf("the matches are %s", out)
		}
	}
}

// The help of a command shows its own flags before the common ones, and its example, which is a call of that
// command.
func TestHelpOfCommands(t *testing.T) {
	out, code := command(t, t.TempDir(), "ps", "--help")
	own, common := strings.Index(out, "--since"), strings.Index(out, "--server")
	if code != 0 || own < 0 || common < own || !strings.Contains(out, "turnpike ps --status waiting") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for name, example := range examples {
		k, err := kong.New(&cli{}, kong.Vars{"version": ""}, kong.ExplicitGroups(groups))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := k.Parse(strings.Fields(example)[1:])
		if err != nil {
			t.Errorf("%s: %v", example, err)
			continue
		}
		if got := nameOf(parsed.Selected()); got != name {
			t.Errorf("%q calls %s, not %s", example, got, name)
		}
	}
}
