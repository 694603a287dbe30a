package service

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A media type has a type and a subtype, and a length that every party accepts.
func TestLimitsOfMediaTypes(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"text/plain; charset=utf-8":        "text/plain",
		"Application/PDF":                  "application/pdf",
		"text/" + strings.Repeat("x", 122): "text/" + strings.Repeat("x", 122),
		"text/" + strings.Repeat("x", 123): "",
		"text":                             "",
		"text/plain/x":                     "",
		"":                                 "",
	} {
		got, err := mediaTypeOf(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.40s: %q, %v, want %q", given, got, err, want)
		}
	}
}

// The differences of a report are those between two versions, each figure once.
func TestDifferencesOfReports(t *testing.T) {
	t.Parallel()
	of := func(figure string, p float64) api.EvaluationDifference {
		return api.EvaluationDifference{Figure: figure, P: p}
	}
	for _, test := range []struct {
		what        string
		versions    int
		differences []api.EvaluationDifference
		want        string
	}{
		{"none", 1, nil, ""},
		{"one version", 1, []api.EvaluationDifference{of("tokens", 0)}, "nothing to compare"},
		{"probabilities", 2, []api.EvaluationDifference{of("tokens", 0), of("turns", 1), of("seconds", 0.5)}, ""},
		{"below 0", 2, []api.EvaluationDifference{of("tokens", 0), of("turns", -0.1)}, "differences[1].p is -0.1"},
		{"above 1", 2, []api.EvaluationDifference{of("tokens", 1.1)}, "differences[0].p is 1.1"},
		{"twice", 2, []api.EvaluationDifference{of("tokens", 0), of("turns", 0), of("tokens", 0)}, "differences[2].figure: tokens is given twice"},
		{"another", 2, []api.EvaluationDifference{of("beauty", 0)}, "differences[0].figure"},
	} {
		var report api.EvaluationReport
		report.Versions, report.Differences = make([]api.EvaluationVersion, test.versions), test.differences
		err := checkDifferences(report)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.what, err, test.want)
		}
	}
}
