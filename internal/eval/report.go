package eval

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Report is the result of an evaluation.
type Report struct {
	ID string `json:"id"`

	api.EvaluationTotals

	Results []Result `json:"results"`
}

// Result is the result of one run of a case. A run without failures has passed.
type Result struct {
	api.EvaluationResult

	of, version int // the indexes of its case and its version
	run         api.Run
}

// Limits of the reasons for failures in a stored report: an expectation may quote a whole answer.
const (
	storedFailures = 5
	storedFailure  = 500 // characters of one reason
)

// Stored returns the report in the form in which a gateway stores it. It shortens long reasons of failures.
func (r *Report) Stored() api.EvaluationReport {
	out := api.EvaluationReport{ID: r.ID, EvaluationTotals: r.EvaluationTotals, Results: make([]api.EvaluationResult, len(r.Results))}
	for i, x := range r.Results {
		out.Results[i] = x.EvaluationResult
		out.Results[i].Failures = shortened(x.Failures)
	}
	return out
}

func shortened(failures []string) []string {
	var out []string
	for i, text := range failures {
		if i == storedFailures {
			return append(out, fmt.Sprintf("and %d more", len(failures)-i))
		}
		if runes := []rune(text); len(runes) > storedFailure {
			text = string(runes[:storedFailure]) + "…"
		}
		out = append(out, text)
	}
	return out
}

// Passed reports whether all runs of the first version have passed. Failures of the second version, which the first is
// compared with, do not count.
func (r *Report) Passed() bool {
	return !slices.ContainsFunc(r.Results, func(x Result) bool { return x.version == 0 && len(x.Failures) > 0 })
}

// Worse reports whether runs of the first version pass less often than those of the second, by a difference that is not
// within chance.
func (r *Report) Worse() bool {
	return slices.ContainsFunc(r.Differences, func(d api.EvaluationDifference) bool {
		return d.Figure == api.FigurePassed && d.First < d.Second && !d.Chance
	})
}

// figures are the figures that are compared between versions.
var figures = []struct {
	name string
	of   func(Result) float64
}{
	{api.FigurePassed, func(r Result) float64 {
		if len(r.Failures) > 0 {
			return 0
		}
		return 1
	}},
	{api.FigureCostUSD, func(r Result) float64 { return r.CostUSD }},
	{api.FigureTokens, func(r Result) float64 { return float64(r.Tokens) }},
	{api.FigureTurns, func(r Result) float64 { return float64(r.Turns) }},
	{api.FigureSeconds, func(r Result) float64 { return r.Seconds }},
}

// summarize sets the figures of the versions and their differences.
func (r *Report) summarize() {
	for v := range r.Versions {
		sum := &r.Versions[v]
		var took []float64
		for _, x := range r.Results {
			if x.version != v {
				continue
			}
			sum.Runs++
			if len(x.Failures) == 0 {
				sum.Passed++
			}
			sum.CostUSD += x.CostUSD
			sum.Tokens += float64(x.Tokens)
			sum.Turns += float64(x.Turns)
			took = append(took, x.Seconds)
		}
		if sum.Runs > 0 {
			sum.Tokens /= float64(sum.Runs)
			sum.Turns /= float64(sum.Runs)
			sum.Seconds = median(took)
		}
	}
	if len(r.Versions) != 2 {
		return
	}
	for _, f := range figures {
		first, second := r.means(0, f.of), r.means(1, f.of)
		p := signFlip(first, second)
		r.Differences = append(r.Differences, api.EvaluationDifference{Figure: f.name, First: mean(first), Second: mean(second), P: p, Chance: p > 0.05})
	}
}

// means returns the mean of a figure for each case of a version.
func (r *Report) means(version int, of func(Result) float64) []float64 {
	var sums []float64
	for _, x := range r.Results {
		if x.version != version {
			continue
		}
		for len(sums) <= x.of {
			sums = append(sums, 0)
		}
		sums[x.of] += of(x) / float64(r.Repeat)
	}
	return sums
}

const (
	exactCases = 14     // maximum number of cases for which signFlip counts all ways to exchange the versions
	flips      = 20_000 // number of random ways that it tries for more cases
)

// signFlip returns the two-sided p-value of a paired permutation test: if the versions did not differ, exchanging the
// figures of a case would be equally likely.
func signFlip(first, second []float64) float64 {
	differences := make([]float64, len(first))
	observed := 0.0
	for i := range first {
		differences[i] = first[i] - second[i]
		observed += differences[i]
	}
	observed = math.Abs(observed) * (1 - 1e-9) // sums in another order differ in the last bits
	if observed == 0 {
		return 1
	}
	if n := len(differences); n <= exactCases {
		extreme := 0
		for mask := range 1 << n {
			sum := 0.0
			for i, d := range differences {
				if mask>>i&1 == 1 {
					d = -d
				}
				sum += d
			}
			if math.Abs(sum) >= observed {
				extreme++
			}
		}
		return float64(extreme) / float64(int(1)<<n)
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same figures give the same p-value
	extreme := 1
	for range flips {
		sum := 0.0
		for _, d := range differences {
			if random.Uint64()&1 == 1 {
				d = -d
			}
			sum += d
		}
		if math.Abs(sum) >= observed {
			extreme++
		}
	}
	return float64(extreme) / (flips + 1)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// maxShown is the maximum number of failures that Text lists.
const maxShown = 20

// Text returns the report as a table, followed by failures.
func (r *Report) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tPASSED\tCOST\tTOKENS\tTURNS\tMEDIAN")
	for _, v := range r.Versions {
		cost := "-" // a call without a known price counts as 0
		if v.CostUSD > 0 {
			cost = fmt.Sprintf("$%.4f", v.CostUSD)
		}
		fmt.Fprintf(w, "%s\t%d of %d\t%s\t%.0f\t%.1f\t%.1f s\n", v.Version, v.Passed, v.Runs, cost, v.Tokens, v.Turns, v.Seconds)
	}
	_ = w.Flush() // a strings.Builder takes everything
	for _, d := range r.Differences {
		verdict := "differs"
		if d.Chance {
			verdict = "within chance"
		}
		if d.First == d.Second {
			verdict = "the same"
		}
		fmt.Fprintf(&b, "%s: %s and %s a run, %s (p = %.2f)\n", d.Figure, short(d.First), short(d.Second), verdict, d.P)
	}
	if r.JudgeCostUSD > 0 {
		fmt.Fprintf(&b, "judges cost $%.4f\n", r.JudgeCostUSD)
	}
	shown := 0
	for _, x := range r.Results {
		if len(x.Failures) == 0 {
			continue
		}
		if shown++; shown > maxShown {
			continue
		}
		fmt.Fprintf(&b, "FAIL %s  %s  %s\n     %s\n", x.Case, x.Version, x.RunID, strings.Join(x.Failures, "\n     "))
	}
	if shown > maxShown {
		fmt.Fprintf(&b, "and %d more failures: see turnpike eval show %s --output json, or the file of --junit\n", shown-maxShown, r.ID)
	}
	return strings.TrimRight(b.String(), "\n")
}

// short formats a figure with three significant digits.
func short(v float64) string { return fmt.Sprintf("%.3g", v) }

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Seconds string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as JUnit XML: a test suite for each version, a test case for each run.
func (r *Report) WriteJUnit(w io.Writer) error {
	suites := junitSuites{}
	for v, version := range r.Versions {
		suite := junitSuite{Name: version.Version, Tests: version.Runs, Failures: version.Runs - version.Passed}
		for _, x := range r.Results {
			if x.version != v {
				continue
			}
			c := junitCase{Name: x.Case, Class: version.Version, Seconds: fmt.Sprintf("%.3f", x.Seconds)}
			if r.Repeat > 1 {
				c.Name = fmt.Sprintf("%s #%d", x.Case, x.Repeat)
			}
			if len(x.Failures) > 0 {
				c.Failure = &junitFailure{Message: x.Failures[0], Text: x.RunID + "\n" + strings.Join(x.Failures, "\n")}
			}
			suite.Cases = append(suite.Cases, c)
		}
		suites.Suites = append(suites.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	return enc.Encode(suites)
}
