package budget

import (
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// DefaultWarnAt is the fraction of a limit at which a warning is given.
const DefaultWarnAt = 0.8

// Names of the limits, as events and details give them.
const (
	MaxTurns     = "max_turns"
	OutputTokens = "output_tokens"
	TotalTokens  = "total_tokens"
	CostUSD      = "cost_usd"
	Deadline     = "deadline"
)

// meter is one limit and how much of it is used. A limit of 0 is none.
type meter struct {
	name   string
	reason state.Reason
	used   float64
	limit  float64
}

func meters(l state.Limits, u state.Usage, turns int) [4]meter {
	var cost float64
	if u.CostUSD != nil {
		cost = float64(*u.CostUSD)
	}
	return [4]meter{
		{OutputTokens, state.EndTokenBudget, float64(u.OutputTokens), float64(l.OutputTokens)},
		{TotalTokens, state.EndTokenBudget, float64(u.InputTokens + u.OutputTokens), float64(l.TotalTokens)},
		{CostUSD, state.EndCostBudget, cost, float64(l.CostUSD)},
		{MaxTurns, state.EndMaxTurns, float64(turns), float64(l.MaxTurns)},
	}
}

// Exhausted returns the reason with which a run ends, and the limit's name, if
// what is used allows no other model call. turns are those that count
// against max_turns.
func Exhausted(l state.Limits, u state.Usage, turns int, now time.Time) (state.Reason, string, bool) {
	if !l.DeadlineAt.IsZero() && !now.Before(l.DeadlineAt.Time) {
		return state.EndDeadline, Deadline, true
	}
	for _, m := range meters(l, u, turns) {
		if m.limit > 0 && m.used >= m.limit {
			return m.reason, m.name, true
		}
	}
	return "", "", false
}

// CallsLeft returns how many calls of a size fit into what is left of the limits, and
// false if nothing limits them.
func CallsLeft(l state.Limits, used, call state.Usage) (int, bool) {
	size := meters(l, call, 0)
	left, limited := 0, false
	for i, m := range meters(l, used, 0) {
		if m.limit <= 0 || m.name == MaxTurns || size[i].used <= 0 {
			continue
		}
		if n := max(0, int((m.limit-m.used)/size[i].used)); !limited || n < left {
			left, limited = n, true
		}
	}
	return left, limited
}

// Warning says that a limit is nearly used up.
type Warning struct {
	Limit    string
	Fraction float64
}

// Warnings returns the limits that have newly reached the soft threshold: not
// those in warned, and not max_turns, whose end is foreseeable.
func Warnings(l state.Limits, u state.Usage, turns int, _ time.Time, warned []string) []Warning {
	at := l.WarnAt
	if at == 0 {
		at = DefaultWarnAt
	}
	var ws []Warning
	for _, m := range meters(l, u, turns) {
		if m.limit > 0 && m.name != MaxTurns && m.used >= at*m.limit && !slices.Contains(warned, m.name) {
			ws = append(ws, Warning{m.name, m.used / m.limit})
		}
	}
	return ws
}

// UsedFraction returns how much of its tightest limit a run has used, from 0; it
// may exceed 1 by what the last call spent. A run without limits has used 0.
func UsedFraction(l state.Limits, u state.Usage, turns int, createdAt, now time.Time) float64 {
	var most float64
	for _, m := range meters(l, u, turns) {
		if m.limit > 0 {
			most = max(most, m.used/m.limit)
		}
	}
	if !l.DeadlineAt.IsZero() {
		used := 1.0 // of a deadline that was past from the beginning
		if whole := l.DeadlineAt.Sub(createdAt); whole > 0 {
			used = float64(now.Sub(createdAt)) / float64(whole)
		}
		most = max(most, min(1, used))
	}
	return most
}
