package measure

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// interleave repeats a measurement, each time followed by that of the floor, if there is one. The first of each
// warms connections, scripts and caches, and does not count.
func interleave[E any](t *trial, f *floor, one, under func() (E, error)) (own, bare []E, err error) {
	for i := range t.repeat + 1 {
		r, err := one()
		if err != nil {
			return nil, nil, err
		}
		if i > 0 {
			own = append(own, r)
		}
		if f.none() {
			continue
		}
		if r, err = under(); err != nil {
			return nil, nil, err
		}
		if i > 0 {
			bare = append(bare, r)
		}
	}
	return own, bare, nil
}

// compared records a figure of repetitions, next to those of the floor.
func compared[E any](t *trial, name, unit string, own, bare []E, of func(E) float64) {
	each := func(all []E) (values []float64) {
		for _, e := range all {
			values = append(values, of(e))
		}
		return values
	}
	t.figure(compare(name, unit, each(own), each(bare)))
}

// turnsEach is the number of turns of each of many runs.
const turnsEach = 10

// burst is the measurement of one repetition of many runs.
type burst struct {
	rate float64 // turns per second
	cpu  usage
}

// burst executes n runs.
func (t *trial) burst(runs func() error) (burst, error) {
	before, began := t.used(), time.Now()
	if err := runs(); err != nil {
		return burst{}, err
	}
	took := time.Since(began)
	return burst{float64(t.n*turnsEach) / took.Seconds(), t.used().since(before)}, nil
}

// turns measures how fast many concurrent runs complete ten turns each, the cost of a turn, and the data that
// an ended run leaves in the store.
func turns(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	floor, err := t.startFloor(ctx)
	if err != nil {
		return err
	}
	if err := t.define(ctx, "turns", noops(turnsEach, 0)); err != nil {
		return err
	}
	crowd := func() (burst, error) { return t.burst(func() error { return t.crowd(ctx, "turns", t.n) }) }
	own, bare, err := interleave(t, floor, crowd, func() (burst, error) {
		return t.burst(func() error { return floor.runs(ctx, t.n, turnsEach) })
	})
	if err != nil {
		return err
	}
	cost := func(of func(usage) time.Duration) func(burst) float64 {
		return func(b burst) float64 { return ms(of(b.cpu)) / float64(t.n*turnsEach) }
	}
	compared(t, "turns/s", "/s", own, bare, func(b burst) float64 { return b.rate })
	compared(t, "processor time of a turn", "ms", own, bare, cost(usage.sum))
	compared(t, "of it gateway", "ms", own, nil, cost(func(u usage) time.Duration { return u.gateway }))
	compared(t, "of it worker", "ms", own, bare, cost(func(u usage) time.Duration { return u.workers + u.floor }))
	compared(t, "of it NATS", "ms", own, bare, cost(func(u usage) time.Duration { return u.nats }))
	compared(t, "of it Redis", "ms", own, bare, cost(func(u usage) time.Duration { return u.redis }))
	before, err := t.stored(ctx)
	if err != nil {
		return err
	}
	if _, err := crowd(); err != nil {
		return err
	}
	return t.leaves(ctx, "a run that has ended", before)
}

// alone measures each turn of one run that has the deployment for itself, at its beginning and at its end, and
// the bytes sent to Redis for a turn there (I12).
func alone(ctx context.Context, t *trial) error {
	if t.n < 60 || t.n > 200 {
		return fmt.Errorf("the scenario alone needs 60 to 200 turns, not %d: set a size in that range", t.n)
	}
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	floor, err := t.startFloor(ctx)
	if err != nil {
		return err
	}
	lengths := []int{20, 40, t.n - 20, t.n}
	for _, n := range lengths { // now, because definitions are bytes as well
		if err := t.define(ctx, fmt.Sprint("alone", n), noops(n, 0)); err != nil {
			return err
		}
	}
	own, bare, err := interleave(t, floor, func() ([]float64, error) { return t.lone(ctx, t.n) }, func() ([]float64, error) { return floor.lone(ctx, t.n) })
	if err != nil {
		return err
	}
	compared(t, "a turn, p50", "ms", own, bare, func(took []float64) float64 { return quantile(took, 0.5) })
	compared(t, "a turn, p99", "ms", own, bare, func(took []float64) float64 { return quantile(took, 0.99) })
	compared(t, "the last 20 turns over the first 20, mean", "", own, bare, func(took []float64) float64 { return mean(took[len(took)-20:]) / mean(took[:20]) })
	if t.Redis == nil {
		return nil
	}
	// Heartbeats and sweeps only add to the bytes of a run, so the minimum of several runs is closest to its
	// own. On a busy machine a run takes longer and more of them fall into it, so it repeats the run more
	// often.
	const most = 1.1
	bytes := slices.Repeat([]float64{math.Inf(1)}, len(lengths)) // of a run
	grown := func() (early, late float64) { return (bytes[1] - bytes[0]) / 20, (bytes[3] - bytes[2]) / 20 }
	for round := range 40 {
		if early, late := grown(); round >= 8 && late <= most*early {
			break
		}
		for i, n := range lengths {
			before, err := t.sent(ctx)
			if err != nil {
				return err
			}
			if _, err := t.lone(ctx, n); err != nil {
				return err
			}
			after, err := t.sent(ctx)
			if err != nil {
				return err
			}
			bytes[i] = min(bytes[i], after-before)
		}
	}
	early, late := grown()
	t.figure(Figure{Name: "bytes to Redis for a turn, the last 20 over turns 21 to 40", Value: late / early, Most: most, Note: fmt.Sprintf("%.0f → %.0f B", early, late)})
	return nil
}

// lone executes one run of n turns and returns the duration of each but the first and the last, in ms. No
// client reads the run until then: a request would slow its turns down.
func (t *trial) lone(ctx context.Context, n int) ([]float64, error) {
	before, err := t.steps()
	if err != nil {
		return nil, err
	}
	run, err := t.submit(ctx, fmt.Sprint("alone", n))
	if err != nil {
		return nil, err
	}
	steps, err := awaitSteps(ctx, t.stepsFile(), len(before)+n-1)
	if err != nil {
		return nil, err
	}
	_, err = t.completed(ctx, t.Client, run.ID)
	return between(steps[len(before):]), err
}

// lone does the same on the floor.
func (f *floor) lone(ctx context.Context, n int) ([]float64, error) {
	before, err := readSteps(f.steps)
	if err != nil {
		return nil, err
	}
	if err := f.runs(ctx, 1, n); err != nil {
		return nil, err
	}
	steps, err := awaitSteps(ctx, f.steps, len(before)+n-1)
	return between(steps[len(before):]), err
}

// between returns the times between steps, in ms.
func between(steps []step) (took []float64) {
	for i := range len(steps) - 1 {
		took = append(took, ms(steps[i+1].at.Sub(steps[i].at)))
	}
	return took
}

// history measures the cost of a turn for a worker that has not seen its run: for runs with a short and with a
// long history, whose earlier turns another worker executed.
func history(ctx context.Context, t *trial) error {
	const pairs = 20
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	runs := map[int][]string{} // by number of turns
	for _, n := range []int{2, t.n} {
		if err := t.define(ctx, fmt.Sprint("grown", n), noops(n, 0)); err != nil {
			return err
		}
		batches, ids, err := t.submitMany(ctx, request(fmt.Sprint("grown", n)), pairs+1, 0)
		if err != nil {
			return err
		}
		if err := t.reach(ctx, batches, state.Completed); err != nil {
			return err
		}
		runs[n] = ids
	}
	t.Workers[0].Kill(patience)
	if err := t.StartWorkers(ctx, 1); err != nil {
		return err
	}
	took, read := map[int][]float64{}, map[int][]float64{}
	for i := range pairs + 1 {
		for _, n := range []int{2, t.n} {
			before, err := t.received(ctx)
			if err != nil {
				return err
			}
			d, err := t.goOn(ctx, runs[n][i])
			if err != nil {
				return err
			}
			after, err := t.received(ctx)
			if err != nil {
				return err
			}
			if i > 0 { // the first warms connections and scripts
				took[n], read[n] = append(took[n], ms(d)), append(read[n], after-before)
			}
			if _, err := t.completed(ctx, t.Client, runs[n][i]); err != nil {
				return err
			}
		}
	}
	short, long := quantile(took[2], 0.5), quantile(took[t.n], 0.5)
	t.figure(Figure{Name: fmt.Sprintf("a message to its answer, after %d turns over after 2, p50", t.n), Value: long / short, Note: fmt.Sprintf("%s → %s ms", number(short), number(long))})
	if t.Redis != nil {
		short, long = quantile(read[2], 0.5), quantile(read[t.n], 0.5)
		t.figure(Figure{Name: "bytes from Redis, the same", Value: long / short, Note: fmt.Sprintf("%s → %s B", number(short), number(long))})
	}
	return nil
}

// steady keeps runs in model calls of ten seconds that end one after the other: a hundredth of the million runs
// in docs/how-to/plan-capacity.md.
func steady(ctx context.Context, t *trial) error {
	const turns, pieces = 5, 100
	call := 10 * time.Second
	if t.cfg.Short {
		call = time.Second
	}
	if err := t.deploy(ctx, rig.Config{Env: []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", t.n+t.n/10)}}); err != nil {
		return err
	}
	if err := t.define(ctx, "steady", noops(turns, call)); err != nil {
		return err
	}
	resident, began := t.Workers[0].Resident(), time.Now()
	var all []string
	for i := range pieces {
		pause(ctx, time.Until(began.Add(call*time.Duration(i)/pieces)))
		batches, _, err := t.submitMany(ctx, request("steady"), t.n/pieces, 0)
		if err != nil {
			return err
		}
		all = append(all, batches...)
	}
	// From here on each run is in a call, until the first of them end.
	from, before := time.Now(), t.used()
	pause(ctx, (turns-2)*call)
	to, used, held := time.Now(), t.used().since(before), t.Workers[0].Resident()
	if err := t.reach(ctx, all, state.Completed); err != nil {
		return err
	}
	steps, err := t.steps()
	if err != nil {
		return err
	}
	made := float64(byWorker(steps, from, to)["worker1"])
	t.figure(Figure{Name: "turns/s", Value: made / to.Sub(from).Seconds(), Unit: "/s", Note: fmt.Sprintf("%.0f are due", float64(t.n)/call.Seconds())})
	t.figure(Figure{Name: "processor time of a turn, worker", Value: ms(used.workers) / made, Unit: "ms", Note: fmt.Sprintf("NATS %.2f, Redis %.2f", ms(used.nats)/made, ms(used.redis)/made)})
	t.figure(Figure{Name: "worker, a run over the base", Value: float64(held-resident) / 1024 / float64(t.n), Unit: "KiB"})
	return nil
}

// workers doubles the number of workers on the same servers, each with 20 slots and a model that takes 100 ms,
// and compares their turns per second with those of one.
func workers(ctx context.Context, t *trial) error {
	const slots, call, turns = 20, 100 * time.Millisecond, 100
	span := 3 * time.Second
	if t.cfg.Short {
		span = 500 * time.Millisecond
	}
	if err := t.deploy(ctx, rig.Config{Env: []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", slots)}}); err != nil {
		return err
	}
	if err := t.define(ctx, "slow", noops(turns, call)); err != nil {
		return err
	}
	var one float64
	for n := 1; n <= t.n; n *= 2 {
		if err := t.StartWorkers(ctx, n-len(t.Workers)); err != nil {
			return err
		}
		// As many runs as slots execute, and as many wait.
		if _, _, err := t.submitMany(ctx, request("slow"), 2*n*slots, 0); err != nil {
			return err
		}
		if err := soon(ctx, "every worker is at work", func() (bool, error) {
			steps, err := t.steps()
			return len(byWorker(steps, time.Now().Add(-time.Second), time.Now())) == n, err
		}); err != nil {
			return err
		}
		from := time.Now()
		pause(ctx, span)
		steps, err := t.steps()
		if err != nil {
			return err
		}
		taken := byWorker(steps, from, from.Add(span))
		rate := 0.0
		for _, n := range taken {
			rate += float64(n) / span.Seconds()
		}
		if n == 1 {
			one = rate
		}
		t.figure(Figure{Name: fmt.Sprintf("%d workers: turns/s", n), Value: rate, Unit: "/s", Note: fmt.Sprintf("efficiency %.2f; %.0f at most", rate/one/float64(n), slots*float64(n)/call.Seconds())})
		if n > 1 {
			t.figure(Figure{Name: fmt.Sprintf("%d workers: turns of one, most over least", n), Value: unevenness(taken, n), Most: 1.3})
		}
		if err := t.cancelAll(ctx, "slow"); err != nil {
			return err
		}
	}
	return nil
}

// unevenness returns the ratio of the largest to the smallest number of turns among n workers.
func unevenness(taken map[string]int, n int) float64 {
	counts := make([]int, 0, n)
	for _, c := range taken {
		counts = append(counts, c)
	}
	for len(counts) < n {
		counts = append(counts, 0)
	}
	return float64(slices.Max(counts)) / float64(max(1, slices.Min(counts)))
}
