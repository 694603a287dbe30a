package budget

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Tokens is a budget of output tokens that a run should use: while most of it is left, and the
// model still makes progress, an answer does not end the run (A11).
type Tokens struct {
	OutputTokens int64 `json:"output_tokens"`

	// StopAt is the fraction of the budget at which an answer is accepted; 0 means 0.9.
	StopAt float64 `json:"stop_at,omitempty"`

	// Returns are diminishing if after MinCount continuations (0 means 3) the last two yielded less
	// than MinDelta tokens each (0 means 500).
	MinDelta int64 `json:"min_delta,omitempty"`
	MinCount int   `json:"min_count,omitempty"`
}

// Verdict is the decision of a token budget about an answer.
type Verdict int

// The verdicts.
const (
	Enough Verdict = iota // the budget is used up: accept the answer
	GoOn
	Diminishing
)

// Check returns an error if b is invalid.
func (b *Tokens) Check() error {
	switch {
	case b.OutputTokens <= 0:
		return fmt.Errorf("output_tokens is %d: write the budget as a number of tokens, 1 or more", b.OutputTokens)
	case !(b.StopAt >= 0 && b.StopAt <= 1):
		return fmt.Errorf("stop_at is %v, which is not between 0 and 1: write a number in that range, such as 0.9", b.StopAt)
	case b.MinDelta < 0 || b.MinCount < 0:
		return fmt.Errorf("min_delta is %d and min_count %d, and one of them is negative: write 0 or more", b.MinDelta, b.MinCount)
	}
	return nil
}

// Judge decides about an answer after total output tokens, and returns the tracker for the next
// call.
func (b *Tokens) Judge(n state.Nudges, total int64) (state.Nudges, Verdict) {
	stopAt, minDelta, minCount := b.StopAt, b.MinDelta, b.MinCount
	if stopAt == 0 {
		stopAt = 0.9
	}
	if minDelta == 0 {
		minDelta = 500
	}
	if minCount == 0 {
		minCount = 3
	}
	delta := total - n.LastTotal
	switch {
	case n.Count >= minCount && delta < minDelta && n.LastDelta < minDelta:
		return n, Diminishing
	case float64(total) < stopAt*float64(b.OutputTokens):
		return state.Nudges{Count: n.Count + 1, LastDelta: delta, LastTotal: total}, GoOn
	default:
		return n, Enough
	}
}
