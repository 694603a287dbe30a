package budget

import (
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// DefaultWarnAt is the fraction of a limit at which a run gets a warning.
const DefaultWarnAt = 0.8

// Names of the limits in events and details.
const (
	MaxTurns     = "max_turns"
	OutputTokens = "output_tokens"
	TotalTokens  = "total_tokens"
	CostUSD      = "cost_usd"
	Deadline     = "deadline"
)

// meter is one limit and the amount used. 0 means no limit.
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

// Exhausted returns the reason why a run ends, and the name of the limit, if usage allows no
// further model call. turns are those that count against max_turns.
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

// CallsLeft returns the number of calls of a given size that fit into the rest of the limits, and
// false if no limit applies.
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

// Warning reports that a limit is nearly used up.
type Warning struct {
	Limit    string
	Fraction float64
}

// Warnings returns the limits that have newly reached the soft threshold. It omits those in warned,
// and max_turns, whose end is foreseeable.
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

// FractionOf returns the used fraction of the limit with a name, from 0. It may exceed 1 by the amount that the
// last call spent. It is 1 for Deadline, and for a limit that is not set.
func FractionOf(name string, l state.Limits, u state.Usage, turns int) float64 {
	for _, m := range meters(l, u, turns) {
		if m.name == name && m.limit > 0 {
			return m.used / m.limit
		}
	}
	return 1
}

// UsedFraction returns the used fraction of the run's tightest limit, from 0. It may exceed 1 by
// the amount that the last call spent. It is 0 for a run without limits.
func UsedFraction(l state.Limits, u state.Usage, turns int, createdAt, now time.Time) float64 {
	var most float64
	for _, m := range meters(l, u, turns) {
		if m.limit > 0 {
			most = max(most, m.used/m.limit)
		}
	}
	if !l.DeadlineAt.IsZero() {
		used := 1.0 // the deadline had passed at creation
		if whole := l.DeadlineAt.Sub(createdAt); whole > 0 {
			used = float64(now.Sub(createdAt)) / float64(whole)
		}
		most = max(most, min(1, used))
	}
	return most
}
