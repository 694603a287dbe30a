package budget

import (
	"errors"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Tokens is a budget of output tokens that a run is to use: as long as most of it
// is left, and the model still adds something, an answer is not the end (A11).
type Tokens struct {
	OutputTokens int64 `json:"output_tokens"`

	// StopAt is the share of the budget at which an answer is accepted; 0 means
	// 0.9.
	StopAt float64 `json:"stop_at,omitempty"`

	// The returns diminish when after MinCount continuations (0 means 3) the last
	// two brought less than MinDelta tokens each (0 means 500).
	MinDelta int64 `json:"min_delta,omitempty"`
	MinCount int   `json:"min_count,omitempty"`
}

// Verdict is what a token budget says of an answer.
type Verdict int

// The verdicts.
const (
	Enough Verdict = iota // the budget is used up: the answer counts
	GoOn
	Diminishing
)

// Check returns what is wrong with b.
func (b *Tokens) Check() error {
	switch {
	case b.OutputTokens <= 0:
		return errors.New("output_tokens, the budget, must be 1 or more")
	case !(b.StopAt >= 0 && b.StopAt <= 1):
		return errors.New("stop_at is not between 0 and 1")
	case b.MinDelta < 0 || b.MinCount < 0:
		return errors.New("min_delta or min_count is negative")
	}
	return nil
}

// Judge decides about an answer after total output tokens, and returns the tracker
// for the next time.
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
