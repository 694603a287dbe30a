package eval

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// reportOf returns a report about two versions with cases of two runs each, whose first version uses one token, turn
// and second more for each run than the one before, and whose second version uses ten times as much and fails in the
// second run of each case.
func reportOf(cases int) *Report {
	r := &Report{ID: "e1", EvaluationTotals: api.EvaluationTotals{Repeat: 2, Versions: []api.EvaluationVersion{{Version: "a@1"}, {Version: "a@2"}}}}
	for version, times := range []int64{1, 10} {
		for i := range 2 * cases {
			n := int64(i + 1)
			x := Result{of: i / 2, version: version, EvaluationResult: api.EvaluationResult{
				Case: fmt.Sprint("c", i/2), Version: r.Versions[version].Version, Repeat: i%2 + 1, RunID: fmt.Sprint("run", i),
				Tokens: times * n, CostUSD: float64(times * n), Seconds: float64(times * n),
			}}
			x.Turns = int(times * n)
			if version == 1 && i%2 == 1 {
				x.Failures = []string{"wrong"}
			}
			r.Results = append(r.Results, x)
		}
	}
	r.summarize()
	return r
}

// The figures of a version are the total of its costs, the means of tokens and turns, and the median of the times. The
// versions are compared by the means of each case.
func TestFiguresOfAReport(t *testing.T) {
	t.Parallel()
	r := reportOf(2)
	want := []api.EvaluationVersion{
		{Version: "a@1", Runs: 4, Passed: 4, CostUSD: 10, Tokens: 2.5, Turns: 2.5, Seconds: 2.5},
		{Version: "a@2", Runs: 4, Passed: 2, CostUSD: 100, Tokens: 25, Turns: 25, Seconds: 25},
	}
	if diff := cmp.Diff(want, r.Versions, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Error(diff)
	}
	var differences []api.EvaluationDifference
	for _, figure := range []string{api.FigurePassed, api.FigureCostUSD, api.FigureTokens, api.FigureTurns, api.FigureSeconds} {
		d := api.EvaluationDifference{Figure: figure, First: 2.5, Second: 25, P: 0.5, Chance: true}
		if figure == api.FigurePassed {
			d.First, d.Second = 1, 0.5
		}
		differences = append(differences, d)
	}
	if diff := cmp.Diff(differences, r.Differences, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Error(diff)
	}
	if !r.Passed() || r.Worse() {
		t.Errorf("the first version passed: %t, and is worse: %t", r.Passed(), r.Worse())
	}
	// With more cases the difference is not by chance, and in the other order the first version is the worse one.
	if d := reportOf(6).Differences[0]; d.Chance || d.P > 0.05 {
		t.Errorf("six cases: %+v", d)
	}
	if d := reportOf(15).Differences[0]; d.Chance || d.P > 0.05 {
		t.Errorf("fifteen cases: %+v", d)
	}
	for cases, worse := range map[int]bool{2: false, 6: true} {
		r := reportOf(cases)
		for i := range r.Results {
			r.Results[i].version = 1 - r.Results[i].version
		}
		r.Versions[0], r.Versions[1], r.Differences = api.EvaluationVersion{Version: "a@2"}, api.EvaluationVersion{Version: "a@1"}, nil
		if r.summarize(); r.Passed() || r.Worse() != worse {
			t.Errorf("the second version as the first, %d cases: it passed: %t, and is worse: %t", cases, r.Passed(), r.Worse())
		}
	}
	one := &Report{EvaluationTotals: api.EvaluationTotals{Repeat: 1, Versions: []api.EvaluationVersion{{}}}}
	if one.summarize(); one.Versions[0] != (api.EvaluationVersion{}) || one.Differences != nil {
		t.Errorf("without runs: %+v", one.EvaluationTotals)
	}
}

// The text lists as many failures as fit, and says how many more there are.
func TestTextOfAReport(t *testing.T) {
	t.Parallel()
	for failures, more := range map[int]string{20: "", 21: "and 1 more failures: see turnpike eval show e1"} {
		text := reportOf(failures).Text()
		if n := strings.Count(text, "FAIL "); n != 20 || strings.Contains(text, "more failures") != (more != "") || !strings.Contains(text, more) {
			t.Errorf("%d failures: %d are listed, want %q\n%s", failures, n, more, text)
		}
	}
	r := reportOf(1)
	for _, want := range []string{"a@1      2 of 2  $3.0000   2       1.5    1.5 s", "a@2      1 of 2  $30.0000  15      15.0   15.0 s", "passed: 1 and 0.5 a run, within chance (p = 1.00)", "FAIL c0  a@2  run1\n     wrong"} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("the text lacks %q:\n%s", want, r.Text())
		}
	}
	if strings.Contains(r.Text(), "judges") {
		t.Errorf("the text has judges:\n%s", r.Text())
	}
	var b bytes.Buffer
	if err := r.WriteJUnit(&b); err != nil || !strings.Contains(b.String(), `<testcase name="c0 #2" classname="a@2" time="20.000">`) || !strings.Contains(b.String(), "run1\nwrong") && !strings.Contains(b.String(), "run1&#xA;wrong") {
		t.Errorf("JUnit: %v\n%s", err, &b)
	}
}

// A stored report has a few reasons for each failure, of bounded length.
func TestStoredReasons(t *testing.T) {
	t.Parallel()
	exact := strings.Repeat("é", storedFailure)
	for _, tt := range []struct{ given, want []string }{
		{nil, nil},
		{[]string{exact}, []string{exact}},
		{[]string{exact + "x"}, []string{exact + "…"}},
		{[]string{"1", "2", "3", "4", "5"}, []string{"1", "2", "3", "4", "5"}},
		{[]string{"1", "2", "3", "4", "5", "6", "7"}, []string{"1", "2", "3", "4", "5", "and 2 more"}},
	} {
		if diff := cmp.Diff(tt.want, shortened(tt.given)); diff != "" {
			t.Error(diff)
		}
	}
}
