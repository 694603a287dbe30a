package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// scale puts more and more workers to the same servers. With a model that takes its
// time a worker is full at scaleSlots turns, and what more of them bring is Turnpike's
// doing; without delay it is the machine's.
func scale(ctx context.Context, cfg Config, add func(Row)) error {
	sizes, span := []int{1, 2, 4, 8}, 3*time.Second
	if cfg.Short {
		sizes, span = []int{1, 2}, 500*time.Millisecond
	}
	var one, oneBare float64
	for _, n := range sizes {
		full, err := saturate(ctx, cfg, n, scaleSlots, scaleDelay, span)
		if err != nil {
			return err
		}
		bare, err := saturate(ctx, cfg, n, 1000, 0, span)
		if err != nil {
			return err
		}
		spread, err := burst(ctx, cfg, n)
		if err != nil {
			return err
		}
		if n == 1 {
			one, oneBare = full.rate, bare.rate
			add(Row{What: "1 worker: turns/s", Value: one, Unit: "/s", Note: fmt.Sprintf("%d slots, %s a call: %d/s at most", scaleSlots, scaleDelay, int(scaleSlots/scaleDelay.Seconds()))})
			add(Row{What: "1 worker: turns/s without delay", Value: oneBare, Unit: "/s", Note: "what the machine's processors give"})
			continue
		}
		what := func(s string) string { return fmt.Sprintf("%d workers: %s", n, s) }
		add(Row{What: what("turns/s"), Value: full.rate, Unit: "/s", Note: fmt.Sprintf("efficiency %.2f", full.rate/one/float64(n))})
		add(Row{What: what("turns of a worker, most over least"), Value: full.spread, Target: "≤ 1.3"})
		add(Row{What: what("the same of a burst on idle workers"), Value: spread, Target: "≤ 1.3", Note: fmt.Sprintf("%d runs", burstRuns*n)})
		add(Row{What: what("turns/s without delay"), Value: bare.rate, Unit: "/s", Note: fmt.Sprintf("%.2f of one worker's; spread %.2f", bare.rate/oneBare, bare.spread)})
	}
	return nil
}

const (
	scaleSlots = 20
	scaleDelay = 100 * time.Millisecond
	burstRuns  = 100 // for each worker
)

type scaled struct{ rate, spread float64 }

// saturate keeps n workers busy for a while and counts.
func saturate(ctx context.Context, cfg Config, n, slots int, delay, span time.Duration) (scaled, error) {
	f, err := startFleet(ctx, cfg.Profile, n, slots)
	if err != nil {
		return scaled{}, err
	}
	defer f.stop()
	const each = 100 // turns of a run
	if err := f.define(ctx, agentName, turns(each, delay)); err != nil {
		return scaled{}, err
	}
	// As many runs as there are slots, and as many again that wait.
	runs := 2 * min(n*slots, 250)
	if _, err := f.submitMany(ctx, request(agentName), runs, 0); err != nil {
		return scaled{}, err
	}
	if err := until(ctx, "every worker is at work", func() (bool, error) {
		calls, err := f.calls(ctx)
		return err == nil && slices.Min(calls) >= min(slots, 20), err
	}); err != nil {
		return scaled{}, err
	}
	before, err := f.calls(ctx)
	if err != nil {
		return scaled{}, err
	}
	began := time.Now()
	if err := pause(ctx, span); err != nil {
		return scaled{}, err
	}
	after, err := f.calls(ctx)
	took := time.Since(began)
	if err != nil {
		return scaled{}, err
	}
	counts, err := f.store.Counts(ctx)
	if err != nil {
		return scaled{}, err
	}
	if int(counts[state.Completed]) == runs {
		return scaled{}, fmt.Errorf("all %d runs are done: they were too few for %d workers", runs, n)
	}
	var sum int
	taken := make([]int, n)
	for i := range taken {
		taken[i] = after[i] - before[i]
		sum += taken[i]
	}
	return scaled{float64(sum) / took.Seconds(), spreadOf(taken)}, nil
}

func spreadOf(taken []int) float64 {
	return float64(slices.Max(taken)) / float64(max(1, slices.Min(taken)))
}

// burst submits runs to n idle workers that have slots for all of them, and returns how
// evenly they were taken.
func burst(ctx context.Context, cfg Config, n int) (float64, error) {
	f, err := startFleet(ctx, cfg.Profile, n, 1000)
	if err != nil {
		return 0, err
	}
	defer f.stop()
	if err := f.define(ctx, agentName, turns(1, time.Minute)); err != nil {
		return 0, err
	}
	if _, err := f.submitMany(ctx, request(agentName), burstRuns*n, 0); err != nil {
		return 0, err
	}
	var calls []int
	err = until(ctx, "all runs are in their model calls", func() (bool, error) {
		var err error
		calls, err = f.calls(ctx)
		sum := 0
		for _, c := range calls {
			sum += c
		}
		return err == nil && sum >= burstRuns*n, err
	})
	return spreadOf(calls), err
}
