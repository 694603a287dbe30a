package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// compared is the report of one case that ran against two versions, of which the second failed.
const compared = `{
	"file": "capitals.yaml", "repeat": 1, "judge_cost_usd": 0,
	"versions": [
		{"version": "capitals@2", "runs": 1, "passed": 1, "cost_usd": 0.5, "tokens": 10, "turns": 1, "seconds": 0.25},
		{"version": "capitals@1", "runs": 1, "passed": 0, "cost_usd": 0.25, "tokens": 10, "turns": 1, "seconds": 0.25}
	],
	"differences": [{"figure": "passed", "first": 1, "second": 0, "p": 0.5, "within_chance": true}],
	"results": [
		{"case": "france", "version": "capitals@2", "repeat": 1, "run_id": "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "status": "completed", "turns": 1, "tokens": 10, "cost_usd": 0.5, "seconds": 0.25},
		{"case": "france", "version": "capitals@1", "repeat": 1, "run_id": "run_01ARZ3NDEKTSV4RRFFQ69G5FAW", "status": "completed", "failures": ["matches: the output does not contain Paris"], "turns": 1, "tokens": 10, "cost_usd": 0.25, "seconds": 0.25}
	]
}`

func report(t *testing.T) api.EvaluationReport {
	t.Helper()
	var r api.EvaluationReport
	if err := api.Decode([]byte(compared), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// An evaluation is stored, listed without its results, read by a viewer, replaced and deleted.
func TestEvaluations(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	author, viewer, admin := s.client("acme", access.Author), s.client("acme", access.Viewer), s.client("acme", access.Admin)
	want := report(t)
	made, err := author.PutEvaluation(t.Context(), "eval_1", want)
	if err != nil || made.ID != "eval_1" || made.Cases != 1 || made.UpdatedAt.IsZero() || made.UpdatedBy == "" {
		t.Fatalf("PutEvaluation: %+v, %v", made, err)
	}
	e, err := viewer.Evaluation(t.Context(), "eval_1")
	want.ID = "eval_1"
	if diff := cmp.Diff(want, e.EvaluationReport); err != nil || diff != "" || e.UpdatedBy != made.UpdatedBy {
		t.Errorf("Evaluation: %v, by %q\n%s", err, e.UpdatedBy, diff)
	}
	page, err := viewer.Evaluations(t.Context(), "capitals", "", 0)
	if diff := cmp.Diff([]api.EvaluationSummary{made}, page.Items); err != nil || diff != "" {
		t.Errorf("Evaluations: %v\n%s", err, diff)
	}
	for _, other := range []string{"capital", "capitals@2", "x"} {
		if page, err := viewer.Evaluations(t.Context(), other, "", 0); err != nil || len(page.Items) != 0 {
			t.Errorf("evaluations of agent %s: %+v, %v", other, page.Items, err)
		}
	}
	want.File = "again.yaml" // a report of the command has its id
	if again, err := author.PutEvaluation(t.Context(), "eval_1", want); err != nil || again.File != "again.yaml" {
		t.Errorf("PutEvaluation again: %+v, %v", again, err)
	}
	if page, err := viewer.Evaluations(t.Context(), "", "", 0); err != nil || len(page.Items) != 1 || page.Items[0].File != "again.yaml" {
		t.Errorf("after the change: %+v, %v", page.Items, err)
	}
	if err := author.DeleteEvaluation(t.Context(), "eval_1"); err != nil {
		t.Error(err)
	}
	_, err = viewer.Evaluation(t.Context(), "eval_1")
	for _, err := range []error{err, author.DeleteEvaluation(t.Context(), "eval_1"), author.DeleteEvaluation(t.Context(), "a b")} {
		if p := refused(t, "an evaluation that does not exist", err, api.CodeEvaluationNotFound); !errors.Is(p, api.ErrNotFound) {
			t.Errorf("%v is not ErrNotFound", p)
		}
	}
	audit, err := admin.Audit(t.Context(), "", 0)
	var actions []string
	for _, a := range audit.Items {
		if a.Target == "eval_1" {
			actions = append(actions, a.Action)
		}
	}
	if diff := cmp.Diff([]string{"evaluation.delete", "evaluation.put", "evaluation.put"}, actions); err != nil || diff != "" {
		t.Errorf("the audit: %v\n%s", err, diff)
	}
}

// Pages are newest first, and each evaluation is on exactly one, whatever is stored in between.
func TestEvaluationPages(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	c := s.client("acme", access.Author, access.Viewer)
	put := func(id string) {
		if _, err := c.PutEvaluation(t.Context(), id, report(t)); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprint("e", i))
		put(want[i])
	}
	var got []api.EvaluationSummary
	for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
		page, err := c.Evaluations(t.Context(), "", cursor, 2)
		if err != nil || len(page.Items) > 2 {
			t.Fatalf("page %d: %d, %v", n, len(page.Items), err)
		}
		got, cursor = append(got, page.Items...), ""
		if page.NextCursor != nil {
			cursor = *page.NextCursor
		}
		put(fmt.Sprint("z", n))
	}
	if !slices.IsSortedFunc(got, func(a, b api.EvaluationSummary) int { return b.UpdatedAt.Compare(a.UpdatedAt.Time) }) {
		t.Errorf("not newest first: %+v", got)
	}
	var ids []string
	for _, e := range got {
		if strings.HasPrefix(e.ID, "e") {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Error(diff)
	}
	for _, cursor := range []string{"x", "20260102T150405.000", "20260102T150405.000~a b"} {
		_, err := c.Evaluations(t.Context(), "", cursor, 2)
		refused(t, cursor, err, api.CodeInvalidCursor)
	}
}

// A tenant keeps its newest 500 evaluations.
func TestOldestEvaluationGoes(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	c := s.client("acme", access.Author, access.Viewer, access.Admin)
	for i := range 500 {
		for _, kind := range []state.DocumentKind{state.EvaluationSummariesOf("acme"), state.EvaluationsOf("acme")} {
			document := fmt.Sprintf(`{"id":"e%d","updated_at":"2026-01-01T%02d:%02d:00.000Z"}`, i, i/60, i%60)
			if err := s.store.PutDocument(t.Context(), kind, fmt.Sprint("e", i), []byte(document)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.PutEvaluation(t.Context(), "new", report(t)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []state.DocumentKind{state.EvaluationSummariesOf("acme"), state.EvaluationsOf("acme")} {
		names, err := s.store.DocumentNames(t.Context(), kind)
		if err != nil || len(names) != 500 || slices.Contains(names, "e0") || !slices.Contains(names, "e1") || !slices.Contains(names, "new") {
			t.Errorf("%s has %d documents, %v", kind, len(names), err)
		}
	}
	audit, err := c.Audit(t.Context(), "", 0)
	if err != nil || len(audit.Items) == 0 || audit.Items[0].Action != "evaluation.delete" || audit.Items[0].Target != "e0" {
		t.Errorf("the audit begins with %+v, %v", audit.Items, err)
	}
}

// Reports that contradict themselves are refused with the location and the remedy.
func TestEvaluationRefusals(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	token := s.key("acme", access.Author)
	for from, to := range map[[2]string]string{
		{`"file"`, `"id": "other", "file"`}:                                              "id is",
		{`"file"`, `"flie"`}:                                                             "flie",
		{`"repeat": 1, "judge`, `"repeat": 0, "judge`}:                                   "repeat is 0",
		{`"judge_cost_usd": 0`, `"judge_cost_usd": -1`}:                                  "judge_cost_usd",
		{`{"version": "capitals@2"`, `{"version": "capitals"`}:                           "results[0].version",
		{`"capitals@2"`, `"Capitals@2"`}:                                                 "results[0].version",
		{`{"version": "capitals@1"`, `{"version": "capitals@2"`}:                         "results[1].version",
		{`"runs": 1`, `"runs": 2`}:                                                       "versions[0]: it counts 2 runs",
		{`"passed": 0`, `"passed": 1`}:                                                   "versions[1]: it counts 1 runs, 1 passed",
		{`"tokens": 10`, `"tokens": -1`}:                                                 "versions[0] has the cost_usd 0.5, tokens -1",
		{`"figure": "passed"`, `"figure": "beauty"`}:                                     "differences[0].figure",
		{`"p": 0.5`, `"p": 2`}:                                                           "differences[0].p",
		{`"case": "france"`, `"case": ""`}:                                               "results[0].case",
		{`"run_01ARZ3NDEKTSV4RRFFQ69G5FAV"`, `"javascript:alert(1)"`}:                    "results[0].run_id",
		{`"status": "completed"`, `"status": "running"`}:                                 "results[0].status",
		{`"status": "completed"`, `"status": "deleted"`}:                                 "results[0]: its run was deleted",
		{`"version": "capitals@1", "repeat": 1`, `"version": "capitals@1", "repeat": 2`}: "results[1].repeat is 2",
		{`"version": "capitals@1", "repeat"`, `"version": "capitals@2", "repeat"`}:       "results[1]: case",
		{`"capitals.yaml"`, `"` + strings.Repeat("x", 256) + `"`}:                        "file: the name has 256 bytes",
	} {
		status, p := s.doJSON(http.MethodPut, "/v1/evaluations/x", token, strings.Replace(compared, from[0], from[1], 1))
		if status != http.StatusBadRequest || !strings.Contains(p.Detail, to) {
			t.Errorf("%.80s: %d %.300s, want %q", from[1], status, p.Detail, to)
		}
	}
	if status, p := s.doJSON(http.MethodPut, "/v1/evaluations/x", token, strings.ReplaceAll(compared, "capitals@2", "Capitals@2")); status != http.StatusBadRequest || !strings.Contains(p.Detail, "versions[0].version") {
		t.Errorf("an invalid agent name: %d %s", status, p.Detail)
	}
	if status, p := s.doJSON(http.MethodPut, "/v1/evaluations/a%20b", token, compared); status != http.StatusBadRequest || !strings.Contains(p.Detail, "the id is not valid") {
		t.Errorf("a bad id: %d %s", status, p.Detail)
	}
	if status, p := s.doJSON(http.MethodPut, "/v1/evaluations/x", token, strings.Replace(compared, "does not contain", strings.Repeat("x", 1<<20), 1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a report above 1 MiB: %d %s", status, p.Detail)
	}
}

// An evaluation belongs to one tenant and is deleted with it.
func TestEvaluationsOfTenants(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	admin := s.client("*", access.Admin)
	for _, tenant := range []string{"acme", "other"} {
		if _, err := admin.PutTenant(t.Context(), tenant, api.TenantSettings{}); err != nil {
			t.Fatal(err)
		}
	}
	acme, other := s.client("acme", access.Author, access.Viewer), s.client("other", access.Author, access.Viewer)
	if _, err := acme.PutEvaluation(t.Context(), "e", report(t)); err != nil {
		t.Fatal(err)
	}
	_, err := other.Evaluation(t.Context(), "e")
	refused(t, "an evaluation of another tenant", err, api.CodeEvaluationNotFound)
	refused(t, "its deletion", other.DeleteEvaluation(t.Context(), "e"), api.CodeEvaluationNotFound)
	if page, err := other.Evaluations(t.Context(), "", "", 0); err != nil || len(page.Items) != 0 {
		t.Errorf("evaluations of another tenant: %+v, %v", page.Items, err)
	}
	theirs := report(t)
	theirs.File = "theirs.yaml"
	if _, err := other.PutEvaluation(t.Context(), "e", theirs); err != nil {
		t.Fatal(err)
	}
	if e, err := acme.Evaluation(t.Context(), "e"); err != nil || e.File != "capitals.yaml" {
		t.Errorf("another tenant could change it: %+v, %v", e, err)
	}
	if err := admin.DeleteTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []state.DocumentKind{state.EvaluationSummariesOf("acme"), state.EvaluationsOf("acme")} {
		if names, err := s.store.DocumentNames(t.Context(), kind); err != nil || len(names) != 0 {
			t.Errorf("after the deletion of the tenant, %s has %q, %v", kind, names, err)
		}
	}
	if _, err := other.Evaluation(t.Context(), "e"); err != nil {
		t.Errorf("the other tenant's: %v", err)
	}
}
