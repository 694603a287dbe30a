package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/eval"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const capitals = `
agent: capitals
cases:
  - name: france
    input: What is the capital of France?
    expect: [{matches: Paris}]
  - name: italy
    input: What is the capital of Italy?
    expect: [{matches: Rome}]
`

// evaluated returns the address of a gateway with two versions of an agent, and a file of cases, of which the
// first passes with the first version only, and the others never. Interrupted evaluations are stored in a
// folder of the test.
func evaluated(t *testing.T) (server, file string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	server = workedAt(t)
	c := api.New(server)
	for _, answer := range []string{"Paris.", "Lyon."} {
		if _, err := c.PutAgent(t.Context(), "capitals", []byte(`{"name":"capitals","model":{"provider":"scripted","responses":[{"text":"`+answer+`"}]}}`)); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(t.TempDir(), "capitals.yaml")
	if err := os.WriteFile(file, []byte(capitals), 0o600); err != nil {
		t.Fatal(err)
	}
	return server, file
}

// exit returns the exit code of a command that ended with an error.
func exit(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	code, ok := errors.AsType[exitError](err)
	if !ok {
		t.Fatalf("the command ended with %v", err)
	}
	return int(code)
}

// The report of an evaluation is stored with the same figures that the command prints.
func TestEvalStoresItsReport(t *testing.T) {
	server, file := evaluated(t)
	c := api.New(server)
	var out bytes.Buffer
	err := execute(t, c, strings.NewReader(""), &out, "eval", file, "--agent", "capitals@1", "--against", "capitals@2", "--repeat", "2")
	if exit(t, err) != 1 {
		t.Errorf("it ended with %v, want 1: a case fails", err)
	}
	page, err := c.Evaluations(t.Context(), "capitals", "", 0)
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("stored: %+v, %v\n%s", page.Items, err, &out)
	}
	e, err := c.Evaluation(t.Context(), page.Items[0].ID)
	if err != nil || e.File != "capitals.yaml" || e.Repeat != 2 || len(e.Results) != 8 || len(e.Differences) != 5 || page.Items[0].Cases != 2 {
		t.Fatalf("the report: %+v, %v", e, err)
	}
	if v := e.Versions; v[0].Version != "capitals@1" || v[0].Passed != 2 || v[1].Version != "capitals@2" || v[1].Passed != 0 || !e.Differences[0].Chance {
		t.Errorf("versions: %+v, differences: %+v", v, e.Differences)
	}
	for _, r := range e.Results {
		if run, err := c.Get(t.Context(), r.RunID); err != nil || run.Status != r.Status || (len(r.Failures) == 0) != (r.Case == "france" && r.Version == "capitals@1") {
			t.Errorf("result %+v: %v", r, err)
		}
	}
	if !strings.Contains(out.String(), "stored as "+e.ID) {
		t.Errorf("the output does not say where the report is:\n%s", &out)
	}
	if _, err := says(t, c, "eval", file, "--agent", "capitals@1", "--no-store"); exit(t, err) != 1 {
		t.Errorf("with --no-store: %v", err)
	}
	if page, err := c.Evaluations(t.Context(), "", "", 0); err != nil || len(page.Items) != 1 {
		t.Errorf("with --no-store it stored %+v, %v", page.Items, err)
	}
	if text, err := says(t, c, "eval", "ls", "--agent", "capitals"); err != nil || !strings.Contains(text, e.ID) || !strings.Contains(text, "2 of 4") {
		t.Errorf("ls: %v\n%s", err, text)
	}
	if text, err := says(t, c, "eval", "ls", "--agent", "others"); err != nil || strings.Contains(text, e.ID) {
		t.Errorf("ls of another agent: %v\n%s", err, text)
	}
	if text, err := says(t, c, "eval", "show", e.ID); err != nil || !strings.Contains(out.String(), strings.TrimSpace(text)) {
		t.Errorf("show: %v\n%s\nwant the report of the command:\n%s", err, text, &out)
	}
	if text, err := says(t, c, "eval", "rm", e.ID); err != nil || !strings.Contains(text, "removed evaluation") {
		t.Errorf("rm: %v\n%s", err, text)
	}
	if text, err := says(t, c, "eval", "show", e.ID); err == nil || !strings.Contains(err.Error(), "there is no evaluation") {
		t.Errorf("show after rm: %v\n%s", err, text)
	}
}

// With --fail-if-worse only a difference beyond chance fails the command, and only if the other version is better.
func TestEvalFailsIfWorse(t *testing.T) {
	server, file := evaluated(t)
	c := api.New(server)
	many := "agent: capitals\ncases:\n"
	for i := range 6 {
		many += fmt.Sprintf("  - {name: c%d, input: The capital of France, expect: [{matches: Paris}]}\n", i)
	}
	six := filepath.Join(t.TempDir(), "six.yaml")
	if err := os.WriteFile(six, []byte(many), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, file, agent, against string
		code                       int
	}{
		{"worse in each of six cases", six, "capitals@2", "capitals@1", 1},
		{"better in each of six cases", six, "capitals@1", "capitals@2", 0},
		{"worse in one of two cases", file, "capitals@2", "capitals@1", 0},
	} {
		if text, err := says(t, c, "eval", test.file, "--agent", test.agent, "--against", test.against, "--fail-if-worse", "--no-store"); exit(t, err) != test.code {
			t.Errorf("%s: %v, want exit code %d\n%s", test.name, err, test.code, text)
		}
	}
	if text, err := says(t, c, "eval", file, "--agent", "capitals@1", "--fail-if-worse"); err == nil || !strings.Contains(err.Error(), "--against") {
		t.Errorf("without --against: %v\n%s", err, text)
	}
}

// The output of --output json equals the stored report, and can be stored by hand.
func TestEvalPrintsWhatItStores(t *testing.T) {
	server, file := evaluated(t)
	c := api.New(server)
	var printed api.EvaluationReport
	text, _ := says(t, c, "eval", file, "--agent", "capitals@1", "--output", "json", "--no-store")
	if err := api.Decode([]byte(text), &printed); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, err := c.PutEvaluation(t.Context(), printed.ID, printed); err != nil {
		t.Fatal(err)
	}
	e, err := c.Evaluation(t.Context(), printed.ID)
	if diff := cmp.Diff(printed, e.EvaluationReport); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// before returns a client of a gateway whose requests to store a report go to a handler.
func before(t *testing.T, gateway string, store http.HandlerFunc) *api.Client {
	t.Helper()
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/evaluations/") {
			store(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return api.New(server.URL)
}

// A report that cannot be stored causes a warning only: exit code and output are those of the evaluation.
func TestEvalThatCannotBeStored(t *testing.T) {
	server, file := evaluated(t)
	refusing := before(t, server, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeForbidden, Status: http.StatusForbidden, Detail: "ci lacks the required role in tenant acme: ask an admin for the role author"})
	})
	for _, want := range []int{1, 0} {
		if want == 0 {
			text := strings.Replace(capitals, "matches: Rome", "matches: Paris", 1)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text, err := says(t, refusing, "eval", file, "--agent", "capitals@1")
		if exit(t, err) != want {
			t.Errorf("it ended with %v, want %d", err, want)
		}
		for _, part := range []string{"capitals@1", "the gateway did not confirm that it stored the report", "the role author"} {
			if !strings.Contains(text, part) {
				t.Errorf("it lacks %q:\n%s", part, text)
			}
		}
	}
}

// dies ends the context of a command when the batch of its runs is accepted.
type dies struct {
	http.RoundTripper

	die context.CancelFunc
}

func (d dies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(r)
	if r.URL.Path == "/v1/runs:batch" {
		d.die()
	}
	return resp, err
}

// The report of an evaluation with a lost run is stored, and names the run.
func TestEvalOfDeletedRun(t *testing.T) {
	server, file := evaluated(t)
	c := api.New(server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mortal := api.NewWithHTTP(server, &http.Client{Transport: dies{http.DefaultTransport, cancel}})
	if err := executeIn(ctx, t, mortal, strings.NewReader(""), io.Discard, "eval", file, "--agent", "capitals@1"); exit(t, err) != 130 {
		t.Fatalf("it ended with %v", err)
	}
	runs, err := c.List(t.Context(), url.Values{"agent": {"capitals"}, "metadata.eval_case": {"2"}})
	if err != nil || len(runs.Items) != 1 {
		t.Fatalf("runs: %+v, %v", runs.Items, err)
	}
	gone := runs.Items[0].ID
	if _, err := c.Wait(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	text, err := says(t, c, "eval", file, "--agent", "capitals@1")
	if exit(t, err) != 1 || !strings.Contains(text, gone) || !strings.Contains(text, "the run was deleted") {
		t.Errorf("it ended with %v:\n%s", err, text)
	}
	e, err := c.Evaluation(t.Context(), runs.Items[0].Metadata["eval"])
	if err != nil || len(e.Results) != 2 || e.Results[0].Status != "completed" || e.Results[1].RunID != gone || e.Results[1].Status != api.EvaluationRunDeleted {
		t.Errorf("stored: %+v, %v", e.Results, err)
	}
}

// A resumed evaluation keeps the id of the interrupted one, so there is one report.
func TestInterruptedEvalHasOneReport(t *testing.T) {
	server, file := evaluated(t)
	c := api.New(server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mortal := api.NewWithHTTP(server, &http.Client{Transport: dies{http.DefaultTransport, cancel}})
	var out bytes.Buffer
	err := executeIn(ctx, t, mortal, strings.NewReader(""), &out, "eval", file, "--agent", "capitals@1")
	if !strings.Contains(out.String(), "interrupted: to continue the evaluation, run the same command again, without --fresh") {
		t.Errorf("it does not say how to continue:\n%s", &out)
	}
	if page, listed := c.Evaluations(t.Context(), "", "", 0); exit(t, err) != 130 || listed != nil || len(page.Items) != 0 {
		t.Fatalf("it ended with %v, and stored %+v, %v", err, page.Items, listed)
	}
	runs, err := c.List(t.Context(), url.Values{"agent": {"capitals"}})
	if err != nil || len(runs.Items) != 2 {
		t.Fatalf("runs: %+v, %v", runs.Items, err)
	}
	// The batch was submitted with another max_parallel, which the evaluation keeps. The second is a new one.
	for range 2 {
		if text, err := says(t, c, "eval", file, "--agent", "capitals@1", "--max-parallel", "1"); exit(t, err) != 1 {
			t.Errorf("it ended with %v: %s", err, text)
		}
	}
	page, err := c.Evaluations(t.Context(), "", "", 0)
	if err != nil || len(page.Items) != 2 || page.Items[1].ID != runs.Items[0].Metadata["eval"] || page.Items[0].ID == page.Items[1].ID {
		t.Errorf("stored %+v, %v; want %s and another one", page.Items, err, runs.Items[0].Metadata["eval"])
	}
}

// An interrupted evaluation whose id could not be stored starts over, and says so.
func TestInterruptedEvalWithoutCache(t *testing.T) {
	server, file := evaluated(t)
	t.Setenv("XDG_CACHE_HOME", file) // no directory
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mortal := api.NewWithHTTP(server, &http.Client{Transport: dies{http.DefaultTransport, cancel}})
	var out bytes.Buffer
	err := executeIn(ctx, t, mortal, strings.NewReader(""), &out, "eval", file, "--agent", "capitals@1")
	if exit(t, err) != 130 || !strings.Contains(out.String(), "interrupted: the same command starts the evaluation over") {
		t.Errorf("it ended with %v:\n%s", err, &out)
	}
}

// An interrupted evaluation is continued only by a command that evaluates the same.
func TestInterruptedEvalIsOfOneCommand(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path := func(change func(c *evalRunCmd, e *env, file *string)) interruptedEval {
		c, e, file := evalRunCmd{Agent: "a@3", Against: "a@1", Repeat: 1, MaxParallel: 10}, env{server: "http://a", tenant: "acme"}, capitals
		change(&c, &e, &file)
		return c.interrupted(&e, []byte(file))
	}
	of := path(func(*evalRunCmd, *env, *string) {})
	for name, change := range map[string]func(c *evalRunCmd, e *env, file *string){
		"--agent":        func(c *evalRunCmd, _ *env, _ *string) { c.Agent = "a@4" },
		"--against":      func(c *evalRunCmd, _ *env, _ *string) { c.Against = "a@2" },
		"no --against":   func(c *evalRunCmd, _ *env, _ *string) { c.Against = "" },
		"exchanged":      func(c *evalRunCmd, _ *env, _ *string) { c.Agent, c.Against = c.Against, c.Agent },
		"--repeat":       func(c *evalRunCmd, _ *env, _ *string) { c.Repeat = 2 },
		"another server": func(_ *evalRunCmd, e *env, _ *string) { e.server = "http://b" },
		"another tenant": func(_ *evalRunCmd, e *env, _ *string) { e.tenant = "evil" },
		"a changed case": func(_ *evalRunCmd, _ *env, file *string) { *file += "#" },
	} {
		if path(change) == of {
			t.Errorf("%s: it continues the other evaluation", name)
		}
	}
	same := path(func(c *evalRunCmd, _ *env, _ *string) {
		c.File, c.JUnit, c.MaxParallel, c.NoStore, c.FailIfWorse = "moved.yaml", "out.xml", 1, true, true
	})
	if of == "" || same != of {
		t.Errorf("the same evaluation is stored at %q and %q", of, same)
	}
}

// An evaluation can be continued if its id is stored, and says so if it is not.
func TestEvalWithoutStoredID(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "no", "id")
	if err := os.WriteFile(filepath.Dir(missing), nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	for f, want := range map[interruptedEval]string{
		"":                       "no cache directory",
		interruptedEval(missing): "cannot be stored",
		interruptedEval(filepath.Join(t.TempDir(), "eval", "id")): "",
	} {
		var errs bytes.Buffer
		var o eval.Options
		f.identify(&env{errs: &errs}, &o, false)
		if f.stored() != (want == "") || !strings.Contains(errs.String(), want) || want == "" && errs.Len() > 0 || o.ID == "" {
			t.Errorf("%q: stored %v, printed %q, want %q", f, f.stored(), errs.String(), want)
		}
	}
}
