package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxEvaluations is the number of evaluations that a tenant keeps.
	maxEvaluations = 500

	// maxEvaluation bounds a report, in bytes of JSON.
	maxEvaluation = 1 << 20

	// maxEvaluationFile bounds the name of a file of cases, in bytes.
	maxEvaluationFile = 255
)

var (
	evaluationID      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	evaluationVersion = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}@[1-9][0-9]{0,8}$`)
	evaluationFigures = []string{api.FigurePassed, api.FigureCostUSD, api.FigureTokens, api.FigureTurns, api.FigureSeconds}
)

// Evaluations are the stored reports of a tenant's evaluations. A report and its summary are separate documents.
// The summary is stored first and deleted last, so a list shows each report that exists. If a request fails in
// between, a summary remains without a report, or with the report that it should have replaced.
type Evaluations struct{ *core }

func evaluationNotFound(id string) error {
	return notFound(api.CodeEvaluationNotFound, "there is no evaluation %.64q: list them with GET /v1/evaluations", id)
}

// Put stores the report of an evaluation, in place of any earlier one with that id. Beyond 500 (maxEvaluations) it
// deletes the oldest; if that fails, Put returns the error although the report is stored. first reports whether
// the evaluation is new.
func (s *Evaluations) Put(ctx context.Context, c access.Caller, id string, report api.EvaluationReport) (out api.EvaluationSummary, first bool, err error) {
	if err := s.permit(ctx, c, PutEvaluation); err != nil {
		return api.EvaluationSummary{}, false, err
	}
	out, first, err = s.put(ctx, c, id, report)
	s.note(ctx, c, PutEvaluation, id, err)
	if err == nil {
		err = s.trim(ctx, c, id)
	}
	return out, first, err
}

func (s *Evaluations) put(ctx context.Context, c access.Caller, id string, report api.EvaluationReport) (out api.EvaluationSummary, first bool, err error) {
	if err := checkReport(id, report); err != nil {
		return out, false, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return out, false, err
	}
	report.ID = id
	e := api.Evaluation{EvaluationReport: report, UpdatedAt: now, UpdatedBy: c.Principal.Name}
	out = api.EvaluationSummary{ID: id, EvaluationTotals: report.EvaluationTotals, Cases: casesOf(report), UpdatedAt: now, UpdatedBy: c.Principal.Name}
	data, err := json.Marshal(e)
	if err != nil {
		return out, false, err
	}
	if len(data) > maxEvaluation {
		return out, false, problem(tooLarge, api.CodeBodyTooLarge, "the report of the evaluation has %d bytes, at most %d are allowed: split the file of cases, or repeat each case fewer times", len(data), maxEvaluation)
	}
	summary, err := json.Marshal(out)
	if err != nil {
		return out, false, err
	}
	_, err = s.store.Document(ctx, state.EvaluationSummariesOf(c.Tenant), id)
	if first = errors.Is(err, state.ErrNotFound); err != nil && !first {
		return out, false, err
	}
	if err := s.store.PutDocument(ctx, state.EvaluationSummariesOf(c.Tenant), id, summary); err != nil {
		return out, false, err
	}
	return out, first, s.store.PutDocument(ctx, state.EvaluationsOf(c.Tenant), id, data)
}

// casesOf returns the number of cases of a report.
func casesOf(report api.EvaluationReport) int {
	cases := map[string]bool{}
	for _, r := range report.Results {
		cases[r.Case] = true
	}
	return len(cases)
}

// checkReport returns a problem if a report is refused. Its counts must be those of its results, so that a list cannot
// show others.
func checkReport(id string, report api.EvaluationReport) error {
	switch {
	case !evaluationID.MatchString(id):
		return invalid("evaluation %.80q: the id is not valid: use 1 to 64 letters, digits, _ and -", id)
	case report.ID != "" && report.ID != id:
		return invalid("id is %.80q, but the path has %s: remove id", report.ID, id)
	case len(report.File) > maxEvaluationFile:
		return invalid("file: the name has %d bytes, at most %d are allowed: send a shorter name, without its directory", len(report.File), maxEvaluationFile)
	case report.Repeat < 1:
		return invalid("repeat is %d: set 1 or more", report.Repeat)
	case len(report.Versions) < 1 || len(report.Versions) > 2:
		return invalid("versions has %d entries: send one or two", len(report.Versions))
	case report.JudgeCostUSD < 0:
		return invalid("judge_cost_usd is %v: send 0 or more", report.JudgeCostUSD)
	case len(report.Results) == 0:
		return invalid("results is empty: send an entry for each run")
	}
	counted, err := countResults(report)
	if err != nil {
		return err
	}
	for i, v := range report.Versions {
		switch n := counted[v.Version]; {
		case !evaluationVersion.MatchString(v.Version):
			return invalid("versions[%d].version: %.80q is not NAME@VERSION of an agent: write one such as support@3", i, v.Version)
		case i > 0 && v.Version == report.Versions[0].Version:
			return invalid("versions[%d].version: %s is already the first version: name another one", i, v.Version)
		case min(v.CostUSD, v.Tokens, v.Turns, v.Seconds) < 0:
			return invalid("versions[%d] has the cost_usd %v, tokens %v, turns %v and seconds %v, and one of them is negative: send 0 or more in each", i, v.CostUSD, v.Tokens, v.Turns, v.Seconds)
		case v.Runs != n.runs || v.Passed != n.passed:
			return invalid("versions[%d]: it counts %d runs, %d passed, but results has %d, %d passed: correct the counts", i, v.Runs, v.Passed, n.runs, n.passed)
		}
	}
	return checkDifferences(report)
}

func checkDifferences(report api.EvaluationReport) error {
	if len(report.Differences) > 0 && len(report.Versions) != 2 {
		return invalid("differences: versions has only one entry, so there is nothing to compare: remove differences")
	}
	var seen []string
	for i, d := range report.Differences {
		switch {
		case !slices.Contains(evaluationFigures, d.Figure):
			return invalid("differences[%d].figure is %.40q: use one of %s", i, d.Figure, strings.Join(evaluationFigures, ", "))
		case slices.Contains(seen, d.Figure):
			return invalid("differences[%d].figure: %s is given twice: remove one", i, d.Figure)
		case d.P < 0 || d.P > 1:
			return invalid("differences[%d].p is %g: send a number from 0 to 1", i, d.P)
		}
		seen = append(seen, d.Figure)
	}
	return nil
}

// resultCount is the number of runs of a version, and of those that passed.
type resultCount struct{ runs, passed int }

// countResults checks the results of a report, and counts them by version.
func countResults(report api.EvaluationReport) (map[string]resultCount, error) {
	type place struct {
		of, version string
		repeat      int
	}
	seen, counted := map[place]bool{}, map[string]resultCount{}
	for i, r := range report.Results {
		at := place{r.Case, r.Version, r.Repeat}
		switch _, err := state.ParseRunID(r.RunID); {
		case r.Case == "":
			return nil, invalid("results[%d].case is empty: name the case", i)
		case !slices.ContainsFunc(report.Versions, func(v api.EvaluationVersion) bool { return v.Version == r.Version }):
			return nil, invalid("results[%d].version: %.80q is not one of the entries of versions: add it there, or correct it", i, r.Version)
		case r.Repeat < 1 || r.Repeat > report.Repeat:
			return nil, invalid("results[%d].repeat is %d: send a number from 1 to %d", i, r.Repeat, report.Repeat)
		case err != nil:
			return nil, invalid("results[%d].run_id: %.80q: %v", i, r.RunID, err)
		case !state.Status(r.Status).Terminal() && r.Status != api.EvaluationRunDeleted:
			return nil, invalid("results[%d].status: %.40q is not the status of an ended run: send completed, incomplete, failed, cancelled or %s", i, r.Status, api.EvaluationRunDeleted)
		case r.Status == api.EvaluationRunDeleted && len(r.Failures) == 0:
			return nil, invalid("results[%d]: its run was deleted (status %s), so it has not passed, but failures is empty: add a failure that says so", i, r.Status)
		case r.Turns < 0 || r.Tokens < 0 || min(r.CostUSD, r.Seconds) < 0:
			return nil, invalid("results[%d] has the cost_usd %v, tokens %v, turns %v and seconds %v, and one of them is negative: send 0 or more in each", i, r.CostUSD, r.Tokens, r.Turns, r.Seconds)
		case seen[at]:
			return nil, invalid("results[%d]: case, version and repeat are those of an earlier entry (%.80q, %s, %d): remove one, or correct its repeat", i, r.Case, r.Version, r.Repeat)
		}
		seen[at] = true
		n := counted[r.Version]
		n.runs++
		if len(r.Failures) == 0 {
			n.passed++
		}
		counted[r.Version] = n
	}
	return counted, nil
}

// trim deletes the oldest evaluations beyond maxEvaluations, but not the one that was just stored.
func (s *Evaluations) trim(ctx context.Context, c access.Caller, stored string) error {
	names, err := s.store.DocumentNames(ctx, state.EvaluationSummariesOf(c.Tenant))
	if err != nil || len(names) <= maxEvaluations {
		return err
	}
	all, err := s.summaries(ctx, c.Tenant)
	if err != nil {
		return err
	}
	for _, e := range all[min(maxEvaluations, len(all)):] {
		if e.ID == stored {
			continue
		}
		err := s.remove(ctx, c.Tenant, e.ID)
		s.note(ctx, c, DeleteEvaluation, e.ID, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// summaries returns the evaluations of a tenant without their results, newest first.
func (s *Evaluations) summaries(ctx context.Context, tenant string) ([]api.EvaluationSummary, error) {
	documents, err := s.store.Documents(ctx, state.EvaluationSummariesOf(tenant))
	if err != nil {
		return nil, err
	}
	all := make([]api.EvaluationSummary, 0, len(documents))
	for id, raw := range documents {
		var e api.EvaluationSummary
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fmt.Errorf("decode evaluation %s: %w", id, err)
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b api.EvaluationSummary) int { return placeOf(a).compare(placeOf(b)) })
	return all, nil
}

// evaluationPlace is the position of an evaluation in a list, and the cursor of the evaluations after it. It stays
// valid if evaluations are stored or deleted. An evaluation that is stored again moves to the beginning of the list.
type evaluationPlace struct {
	at state.Time
	id string
}

func placeOf(e api.EvaluationSummary) evaluationPlace { return evaluationPlace{e.UpdatedAt, e.ID} }

// compare returns a negative number if p is newer than q.
func (p evaluationPlace) compare(q evaluationPlace) int {
	return cmp.Or(q.at.Compare(p.at.Time), strings.Compare(p.id, q.id))
}

func (p evaluationPlace) cursor() string { return p.at.Format("20060102T150405.000") + "~" + p.id }

func parseEvaluationPlace(cursor string) (evaluationPlace, error) {
	text, id, _ := strings.Cut(cursor, "~")
	at, err := time.Parse("20060102T150405.000", text)
	if err != nil || !evaluationID.MatchString(id) {
		return evaluationPlace{}, invalidCursor()
	}
	return evaluationPlace{state.At(at), id}, nil
}

// List returns the evaluations of a tenant without their results, newest first. If agent is not empty, only those with
// a version of that agent.
func (s *Evaluations) List(ctx context.Context, c access.Caller, agent string, p Page) (api.Page[api.EvaluationSummary], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.EvaluationSummary]{}, err
	}
	all, err := s.summaries(ctx, c.Tenant)
	if err != nil {
		return api.Page[api.EvaluationSummary]{}, err
	}
	if agent != "" {
		all = slices.DeleteFunc(all, func(e api.EvaluationSummary) bool {
			return !slices.ContainsFunc(e.Versions, func(v api.EvaluationVersion) bool { return strings.HasPrefix(v.Version, agent+"@") })
		})
	}
	if p.Cursor != "" {
		after, err := parseEvaluationPlace(p.Cursor)
		if err != nil {
			return api.Page[api.EvaluationSummary]{}, err
		}
		all = slices.DeleteFunc(all, func(e api.EvaluationSummary) bool { return placeOf(e).compare(after) <= 0 })
	}
	next := ""
	if len(all) > p.Limit {
		all = all[:p.Limit]
		next = placeOf(all[p.Limit-1]).cursor()
	}
	return api.NewPage(all, next), nil
}

// Get returns an evaluation with its results. The problem is evaluation_not_found if it does not exist.
func (s *Evaluations) Get(ctx context.Context, c access.Caller, id string) (api.Evaluation, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Evaluation{}, err
	}
	if !evaluationID.MatchString(id) {
		return api.Evaluation{}, evaluationNotFound(id)
	}
	raw, err := s.store.Document(ctx, state.EvaluationsOf(c.Tenant), id)
	if errors.Is(err, state.ErrNotFound) {
		return api.Evaluation{}, evaluationNotFound(id)
	}
	if err != nil {
		return api.Evaluation{}, err
	}
	var e api.Evaluation
	if err := json.Unmarshal(raw, &e); err != nil {
		return api.Evaluation{}, fmt.Errorf("decode evaluation %s: %w", id, err)
	}
	return e, nil
}

// Delete deletes an evaluation. The runs of its cases stay. The problem is evaluation_not_found if it does not exist.
func (s *Evaluations) Delete(ctx context.Context, c access.Caller, id string) error {
	if err := s.permit(ctx, c, DeleteEvaluation); err != nil {
		return err
	}
	if !evaluationID.MatchString(id) {
		return evaluationNotFound(id)
	}
	_, err := s.store.Document(ctx, state.EvaluationSummariesOf(c.Tenant), id)
	if err == nil {
		err = s.remove(ctx, c.Tenant, id)
	}
	if errors.Is(err, state.ErrNotFound) {
		err = evaluationNotFound(id)
	}
	s.note(ctx, c, DeleteEvaluation, id, err)
	return err
}

func (s *Evaluations) remove(ctx context.Context, tenant, id string) error {
	if err := s.store.DeleteDocument(ctx, state.EvaluationsOf(tenant), id); err != nil {
		return err
	}
	return s.store.DeleteDocument(ctx, state.EvaluationSummariesOf(tenant), id)
}

// removeAll deletes the evaluations of a tenant.
func (s *Evaluations) removeAll(ctx context.Context, tenant string) error {
	return s.eachDocument(ctx, state.EvaluationSummariesOf(tenant), func(ctx context.Context, id string) error { return s.remove(ctx, tenant, id) })
}
