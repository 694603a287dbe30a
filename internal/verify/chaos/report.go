package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Report is the result of a campaign.
type Report struct {
	Seed       uint64
	Replay     string // the command that repeats it
	Dir        string // of logs and evidence
	Took       time.Duration
	Phases     []*Phase
	Violations []Violation
}

// Phase is the record of one deployment of a campaign. It has many fields because it has every figure of the
// report.
type Phase struct {
	Name, Settings string

	Runs     int // including child runs
	Ended    map[state.Reason]int
	Turns    int64
	Effects  int
	Deleted  int            // by users
	Expired  int            // by gateways, at the end of their retention
	Events   int            // that readers received
	Messages int            // that became runs
	Firings  int            // of the schedule, by itself
	Called   int            // events that the webhook receiver accepted
	Attempts int            // requests to it
	Faults   map[string]int // by kind
	Inside   map[string]int // by kind: faults that workers caused themselves
	Recovery []time.Duration

	// Repeated counts actions that the run did not need: model answers that were not committed,
	// effects of tools that may be repeated, and of those that may not.
	RepeatedAnswers, RepeatedEffects, RepeatedOnce int

	Violations []Violation

	began, rested time.Time
}

// sum computes the figures.
func (p *Phase) sum(e Evidence) {
	p.Ended, p.Faults, p.Inside = map[state.Reason]int{}, map[string]int{}, map[string]int{}
	known := map[string]bool{}
	committed := 0
	for _, w := range e.Runs {
		switch {
		case !w.Deleted.IsZero():
			p.Deleted++
		case !w.Found && !w.Ended.IsZero() && w.Kind == "kept":
			p.Expired++
		}
		if !w.Found {
			continue
		}
		known[w.ID] = true
		p.Runs++
		if w.Message {
			p.Messages++
		}
		p.Ended[w.Run.Transition.Reason]++
		p.Turns += w.Run.Version
		p.Events += len(w.Seen)
		for _, entry := range w.Log {
			if entry.Type == state.EntryModel {
				committed++
			}
		}
	}
	p.Firings = len(e.Firings)
	for _, all := range e.Deliveries {
		p.Attempts += len(all)
		for _, d := range all {
			if d.Taken {
				p.Called++
			}
		}
	}
	for _, a := range e.Answers {
		if known[a.Run] && !a.Failed {
			p.RepeatedAnswers++
		}
	}
	p.RepeatedAnswers = max(0, p.RepeatedAnswers-committed)
	keys := map[string]bool{}
	for _, effect := range e.Effects {
		switch {
		case effect.Fault != "":
			p.Inside[effect.Fault]++
			continue
		case effect.Hook != "":
			continue
		case keys[effect.Key] && startedOnce(effect.Tool):
			p.RepeatedOnce++
		case keys[effect.Key]:
			p.RepeatedEffects++
		}
		p.Effects++
		keys[effect.Key] = true
	}
	for _, f := range e.Faults {
		p.Faults[f.Kind]++
	}
	for _, r := range e.Recoveries {
		p.Recovery = append(p.Recovery, r.Took)
	}
	slices.Sort(p.Recovery)
	p.Violations = Check(e)
	for i := range p.Violations {
		p.Violations[i].Phase = p.Name
	}
}

// quantile returns a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(10 * time.Millisecond)
}

// counts lists the number of each, the most frequent first.
func counts[K ~string](of map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(of), func(a, b K) int { return cmp.Or(of[b]-of[a], strings.Compare(string(a), string(b))) })
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = fmt.Sprintf("%s %d", k, of[k])
	}
	return strings.Join(parts, " · ")
}

// total adds the numbers.
func total(of map[string]int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}

// String returns the figures as text.
func (p *Phase) String() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-12s "+format+"\n", append([]any{name}, args...)...)
	}
	fmt.Fprintf(&b, "%s: %s\n", p.Name, p.Settings)
	row("runs", "%d, turns %d, effects of tools %d, events read %d, in %v", p.Runs, p.Turns, p.Effects, p.Events, p.rested.Sub(p.began).Round(time.Second))
	row("ended", "%s", counts(p.Ended))
	row("outside", "%d messages became runs, %d firings of the schedule, %d webhooks taken of %d requests", p.Messages, p.Firings, p.Called, p.Attempts)
	row("deleted", "%d by users, %d when their time was over", p.Deleted, p.Expired)
	row("faults", "%d: %s", total(p.Faults), counts(p.Faults))
	row("inside", "%d: %s", total(p.Inside), counts(p.Inside))
	row("recovered", "%d interrupted runs, p50 %v, p99 %v, at most %v", len(p.Recovery), quantile(p.Recovery, 0.5), quantile(p.Recovery, 0.99), quantile(p.Recovery, 1))
	row("repeated", "model calls %d, effects that may be %d, effects that may not %d", p.RepeatedAnswers, p.RepeatedEffects, p.RepeatedOnce)
	row("violations", "%d", len(p.Violations))
	return strings.TrimRight(b.String(), "\n")
}

func (r *Report) add(p *Phase) {
	r.Phases = append(r.Phases, p)
	r.Violations = append(r.Violations, p.Violations...)
}

// shown is the maximum number of violations of one kind in a report.
const shown = 3

// String returns the report as text.
func (r *Report) String() string {
	var b strings.Builder
	runs, faults, turns := 0, 0, int64(0)
	for _, p := range r.Phases {
		runs, turns, faults = runs+p.Runs, turns+p.Turns, faults+total(p.Faults)+total(p.Inside)
	}
	fmt.Fprintf(&b, "chaos: %d runs, %d turns, %d faults, %d violations in %v\n", runs, turns, faults, len(r.Violations), r.Took.Round(time.Second))
	if len(r.Violations) == 0 {
		// The rule of three: none among n means, with 95 % certainty, less than 3/n.
		fmt.Fprintf(&b, "with 95 %% certainty less than %.3f %% of faults and %.4f %% of turns break a promise", 300/float64(max(faults, 1)), 300/float64(max(turns, 1)))
		return b.String()
	}
	seen := map[string]int{}
	for _, v := range r.Violations {
		if seen[v.kind]++; seen[v.kind] <= shown {
			fmt.Fprintf(&b, "  %s %s, run %s: %s\n", v.Invariant, v.Phase, cmp.Or(v.Run, "-"), v.Detail)
		}
	}
	for kind, n := range seen {
		if n > shown {
			fmt.Fprintf(&b, "  and %d more of %q\n", n-shown, kind)
		}
	}
	fmt.Fprintf(&b, "logs and evidence are in %s\nto draw the same faults again: %s", r.Dir, r.Replay)
	return b.String()
}
