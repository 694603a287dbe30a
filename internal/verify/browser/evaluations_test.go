//go:build browser

package browser

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A viewer sees the table of an evaluation that an author ran in a terminal: both versions, the differences,
// and for each case its runs and the reasons of failures.
func TestEvaluationsOnPage(t *testing.T) {
	s, address := start(t, "TURNPIKE_AUTH=keys")
	s.client = api.New(s.url, api.WithToken(firstKey(t, address)))
	key := func(roles ...string) string {
		t.Helper()
		made, err := s.client.CreateKey(t.Context(), api.KeyRequest{Name: roles[0], Tenant: "default", Roles: roles})
		if err != nil {
			t.Fatal(err)
		}
		return made.Key
	}
	author, viewer := key("author", "submitter", "operator"), key("viewer")
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	login := func(key, hash string) {
		t.Helper()
		b.goTo(hash)
		b.write("input[name=key]", key)
		b.press(".login", "Log in with an API key")
		b.text("#who", "key:")
	}
	login(viewer, "#/evaluations")
	b.text(".state", "turnpike eval cases.yaml --agent AGENT")

	for _, answer := range []string{"Paris.", "<img src=x onerror=alert(1)>"} {
		if _, err := s.client.PutAgent(t.Context(), "capitals", fmt.Appendf(nil, `{"model": {"provider": "scripted", "responses": [{"text": %q}]}}`, answer)); err != nil {
			t.Fatal(err)
		}
	}
	cases := "cases:\n"
	for i := range 6 { // the minimum for a difference beyond chance
		cases += fmt.Sprintf("  - {name: \"<b>case %d</b>\", input: Where, expect: [{matches: Paris}]}\n", i+1)
	}
	file := filepath.Join(t.TempDir(), "capitals.yaml")
	if err := os.WriteFile(file, []byte(cases), 0o600); err != nil {
		t.Fatal(err)
	}
	evaluate := func(status int, args ...string) {
		t.Helper()
		env := []string{"TURNPIKE_URL=" + s.url, "TURNPIKE_TOKEN=" + author, "XDG_CACHE_HOME=" + t.TempDir()}
		err := s.spawn("turnpike", env, append([]string{"eval", file}, args...)...).Wait()
		if exit, _ := errors.AsType[*exec.ExitError](err); err != nil && (exit == nil || exit.ExitCode() != status) || err == nil && status != 0 {
			t.Fatalf("eval %v: %v, want exit code %d", args, err, status)
		}
	}
	evaluate(0, "--agent", "capitals@1", "--against", "capitals@2", "--repeat", "2")
	evaluate(1, "--agent", "capitals@2")

	b.goTo("#/agents/capitals")
	b.press(".view-acts", "Its evaluations")
	b.text("h1", "Evaluations of capitals")
	b.shows("two evaluations, the newest first", `[...document.querySelectorAll("tr[data-evaluation]")].map(r => r.innerText.includes("capitals@1")).join() === "false,true"`)
	b.text("tr[data-evaluation]", "12 of 12 passed")
	b.text("tr[data-evaluation]", "capitals@1 is better")
	b.picture("evaluations")
	b.shows("the link", `(() => { const a = [...document.querySelectorAll("tr[data-evaluation]")].find(r => r.innerText.includes("capitals@1")).querySelector("a"); a.click(); return true })()`)
	b.text("[data-figure=passed]", "12 of 12")
	b.text("[data-figure=passed] .chip", "capitals@1 is better")
	b.text("[data-figure=passed]", "100 % and 0 %, p = 0.03")
	b.text("[data-figure=turns]", "the same")
	b.text("[data-case]", "<b>case 1</b>")
	b.text("[data-case]", "matches: the output does not contain Paris")
	b.unfold()
	b.shows("the runs of a case", `document.querySelectorAll("[data-case] a[href^='#run_']").length === 24`)
	b.picture("evaluation")
	if got := eval[bool](b, `[...document.querySelectorAll("main button")].some(e => e.textContent.trim() === "Delete")`); got {
		t.Error("the page offers a viewer to delete it")
	}

	// If a run is deleted, its figures stay, and its link leads to a page that says so.
	run := eval[string](b, `document.querySelector("[data-case] a[href^='#run_']").title`)
	if err := s.client.Delete(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	b.shows("the link of the run", `(() => { document.querySelector("[data-case] a[href^='#run_']").click(); return true })()`)
	b.text("main", "Not here")
	eval[bool](b, `(() => { history.back(); return true })()`)
	b.text("[data-figure=passed]", "12 of 12")
	b.press(".view-acts", "Its runs")
	b.shows("the runs that are left", `document.querySelectorAll(".row").length === 23`)
	b.goTo("#/evaluations/eval_nothing")
	b.text(".problem", "there is no evaluation")
	b.press("#who", "Log out")

	login(author, "#/evaluations?agent=nobody")
	b.text(".state", "No evaluation of nobody yet")
	b.press(".view-head", "All agents")
	b.shows("the link", `(() => { const a = document.querySelector("tr[data-evaluation] a"); a?.click(); return !!a })()`)
	b.press("main", "With failures 6")
	b.shows("the failures", `document.querySelectorAll("[data-case]").length === 6 && location.hash.includes("only=failures")`)
	b.press(".view-acts", "Delete")
	b.press("dialog", "Delete")
	b.shows("the other one alone", `document.querySelectorAll("tr[data-evaluation]").length === 1`)
	if page, err := s.client.Evaluations(t.Context(), "", "", 0); err != nil || len(page.Items) != 1 {
		t.Errorf("after the deletion: %+v, %v", page.Items, err)
	}

	// A run that was deleted before the evaluation read it has no link.
	gone := api.EvaluationReport{EvaluationTotals: api.EvaluationTotals{Repeat: 1, Versions: []api.EvaluationVersion{{Version: "capitals@1", Runs: 1}}}, Results: []api.EvaluationResult{
		{Case: "one", Version: "capitals@1", Repeat: 1, RunID: run, Status: api.EvaluationRunDeleted, Failures: []string{"the run was deleted"}},
	}}
	if _, err := s.client.PutEvaluation(t.Context(), "eval_gone", gone); err != nil {
		t.Fatal(err)
	}
	b.goTo("#/evaluations/eval_gone")
	b.text("[data-case]", "failed, run deleted")
	b.shows("no link to the run", `document.querySelectorAll("[data-case] [title^='run_']").length === 1 && !document.querySelector("[data-case] a")`)
}
