package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// The figures that an evaluation compares between two versions.
const (
	FigurePassed  = "passed"   // 1 if a run has passed, else 0
	FigureCostUSD = "cost_usd" // cost of a run, in US dollars
	FigureTokens  = "tokens"
	FigureTurns   = "turns"
	FigureSeconds = "seconds" // duration of a run from its start to its end
)

// EvaluationRunDeleted is the Status of an EvaluationResult whose run was deleted before the evaluation had read all
// that it needs. Such a result has a failure.
const EvaluationRunDeleted = "deleted"

// EvaluationReport is the result of an evaluation: cases that ran against one or two versions of an agent. As JSON it
// has at most 1 MiB.
type EvaluationReport struct {
	// ID is the id of the evaluation: 1 to 64 letters, digits, _ and -. A request may omit it, because its path has the
	// id.
	ID string `json:"id,omitempty"`

	EvaluationTotals

	Results []EvaluationResult `json:"results"` // one for each case, version and repeat
}

// EvaluationTotals are the figures of a report without its cases.
type EvaluationTotals struct {
	File         string                 `json:"file,omitempty"`        // name of the file of cases, without its directory
	Repeat       int                    `json:"repeat"`                // number of runs of each case and version
	Versions     []EvaluationVersion    `json:"versions"`              // one or two; the first is compared with the second
	Differences  []EvaluationDifference `json:"differences,omitempty"` // between two versions
	JudgeCostUSD float64                `json:"judge_cost_usd"`        // cost of the model calls that judged the runs
}

// EvaluationVersion has the totals of the runs of one version. Tokens and Turns are means per run, Seconds is the
// median, and the other figures are sums.
type EvaluationVersion struct {
	Version string  `json:"version"` // NAME@VERSION of an agent
	Runs    int     `json:"runs"`
	Passed  int     `json:"passed"`
	CostUSD float64 `json:"cost_usd"`
	Tokens  float64 `json:"tokens"`
	Turns   float64 `json:"turns"`
	Seconds float64 `json:"seconds"`
}

// EvaluationDifference compares the means of two versions in one figure: First is that of the first version of
// EvaluationTotals.Versions, Second that of the second. P is the probability of a difference of at least this size, in
// either direction, if the versions were equal.
type EvaluationDifference struct {
	Figure string  `json:"figure"` // FigurePassed or another figure
	First  float64 `json:"first"`
	Second float64 `json:"second"`
	P      float64 `json:"p"`
	Chance bool    `json:"within_chance"` // whether P is above 0.05
}

// EvaluationResult is one run of a case. The run has passed if the result has no failures.
type EvaluationResult struct {
	Case     string   `json:"case"`
	Version  string   `json:"version"`
	Repeat   int      `json:"repeat"` // from 1
	RunID    string   `json:"run_id"` // the run may have been deleted since
	Status   string   `json:"status"` // the status in which the run ended, or EvaluationRunDeleted
	Failures []string `json:"failures,omitempty"`
	Turns    int      `json:"turns"`
	Tokens   int64    `json:"tokens"`
	CostUSD  float64  `json:"cost_usd"`
	Seconds  float64  `json:"seconds"`
}

// Evaluation is a stored report of a tenant.
type Evaluation struct {
	EvaluationReport

	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}

// EvaluationSummary is an evaluation without its results.
type EvaluationSummary struct {
	ID string `json:"id"`

	EvaluationTotals

	Cases     int        `json:"cases"` // number of different cases
	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}
