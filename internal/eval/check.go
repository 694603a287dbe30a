package eval

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// check is a compiled expectation. For the criterion of a judge, fails returns "": the judge decides.
type check interface {
	// fails returns the reason why a run does not meet the expectation, or "". tools are the names of the tools that
	// the model called, in order; left is the budget of the expressions of all checks.
	fails(r api.Run, tools []string, left *rule.Budget) string
}

type condition struct {
	text  string
	holds rule.Condition
}

func (c condition) fails(r api.Run, tools []string, left *rule.Budget) string {
	values := map[string]any{
		"output": text(r), "json": value(r), "status": r.Status, "reason": "", "turns": r.TurnCount, "tokens": tokens(r), "cost_usd": cost(r), "seconds": seconds(r),
		"tools": tools,
	}
	if r.Reason != nil {
		values["reason"] = *r.Reason
	}
	yes, err := c.holds(left.Evaluation(values))
	switch {
	case err != nil:
		return fmt.Sprintf("cel %s: %v", c.text, err)
	case !yes:
		return "cel: false: " + c.text
	default:
		return ""
	}
}

type shape json.RawMessage

func (s shape) fails(r api.Run, _ []string, _ *rule.Budget) string {
	output := text(r)
	if len(r.StructuredOutput) > 0 && string(r.StructuredOutput) != "null" {
		output = string(r.StructuredOutput)
	}
	if _, err := jsonschema.ValidateOutput(json.RawMessage(s), output); err != nil {
		return fmt.Sprintf("schema: %v", err)
	}
	return ""
}

type pattern struct{ *regexp.Regexp }

func (p pattern) fails(r api.Run, _ []string, _ *rule.Budget) string {
	if p.MatchString(text(r)) {
		return ""
	}
	return "matches: the output does not contain " + p.String()
}

// criterion is what a judge checks.
type criterion string

func (criterion) fails(api.Run, []string, *rule.Budget) string { return "" }

func text(r api.Run) string {
	if r.Output == nil {
		return ""
	}
	return *r.Output
}

// value returns the structured output of a run, or its output decoded as JSON, or nil if that is not JSON.
func value(r api.Run) any {
	var v any
	if json.Unmarshal(r.StructuredOutput, &v) == nil && v != nil {
		return v
	}
	if json.Unmarshal([]byte(text(r)), &v) != nil {
		return nil
	}
	return v
}

func tokens(r api.Run) int64 { return r.Usage.InputTokens + r.Usage.OutputTokens }

func cost(r api.Run) float64 {
	if r.Usage.CostUSD == nil {
		return 0
	}
	return float64(*r.Usage.CostUSD) / 1e6
}

// seconds returns the time from the start of a run to its end, in seconds.
func seconds(r api.Run) float64 {
	since := r.StartedAt
	if since.IsZero() {
		since = r.CreatedAt
	}
	return r.Took(since.Time, r.UpdatedAt.Time).Seconds()
}
