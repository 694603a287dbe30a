package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// steady has so many runs in model calls of ten seconds that end one after the other: a
// hundredth of the million that docs/how-to/plan-capacity.md reckons with, and a check of the
// figures that it reckons from.
func steady(ctx context.Context, cfg Config, add func(Row)) error {
	n, call := cfg.Size, 10*time.Second
	if cfg.Short {
		n, call = 200, 500*time.Millisecond
	}
	const each, pieces = 5, 100
	f, err := startFleet(ctx, cfg.Profile, 1, n+n/10)
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.define(ctx, agentName, turns(each, call)); err != nil {
		return err
	}
	base, err := f.stored(ctx)
	if err != nil {
		return err
	}
	resident := memory(f.workers[0], "VmRSS")
	began := time.Now()
	for i := range pieces {
		if err := pause(ctx, time.Until(began.Add(call*time.Duration(i)/pieces))); err != nil {
			return err
		}
		runs := make([]api.SubmitRequest, n/pieces)
		for j := range runs {
			runs[j] = request(agentName)
		}
		if _, err := f.client.SubmitBatch(ctx, api.BatchRequest{Runs: runs}, ""); err != nil {
			return err
		}
	}
	// All are in a call from here on, until the first of them end.
	used, from := f.used(), time.Now()
	before, err := f.callsOf(ctx, 0)
	if err != nil {
		return err
	}
	if err := pause(ctx, (each-2)*call); err != nil {
		return err
	}
	after, err := f.callsOf(ctx, 0)
	if err != nil {
		return err
	}
	now, took := f.used(), time.Since(from)
	held := memory(f.workers[0], "VmRSS")
	if err := f.reach(ctx, state.Completed, n); err != nil {
		return err
	}
	end, err := f.stored(ctx)
	if err != nil {
		return err
	}
	made := float64(after - before)
	what := func(s string) string { return fmt.Sprintf("%d runs in calls of %s: %s", n, call, s) }
	add(Row{What: what("turns/s"), Value: made / took.Seconds(), Unit: "/s", Note: fmt.Sprintf("%.0f are due", float64(n)/call.Seconds())})
	cpu := func(i int) float64 { return ms(now[i]-used[i]) / made }
	add(Row{What: what("CPU a turn, worker"), Value: cpu(4), Unit: "ms", Note: fmt.Sprintf("NATS %.2f, Redis %.2f", cpu(1), cpu(2))})
	add(Row{What: what("worker, a run over the base"), Value: float64(held-resident) / 1024 / float64(n), Unit: "KiB", Note: fmt.Sprintf("%.0f MiB at the end of the measurement, %.0f at most", mib(held), mib(memory(f.workers[0], "VmHWM")))})
	add(Row{What: what(fmt.Sprintf("one that has ended after %d turns, in Redis", each)), Value: (end.redis - base.redis) / float64(n), Unit: "B"})
	add(Row{What: what(fmt.Sprintf("one that has ended after %d turns, in the streams", each)), Value: (end.streams - base.streams) / float64(n), Unit: "B"})
	return nil
}
