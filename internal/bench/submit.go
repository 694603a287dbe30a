package bench

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// submit measures submissions over HTTP, accepted and durable: as many as go, and how
// long each takes at a given rate. No worker runs.
func submit(ctx context.Context, cfg Config, add func(Row)) error {
	span, rate := 4*time.Second, 2500
	if cfg.Short {
		span, rate = 300*time.Millisecond, 200
	}
	f, err := startFleet(ctx, cfg.Profile, 0, 0)
	if err != nil {
		return err
	}
	defer f.stop()
	floor, err := newFloor(ctx, f.servers)
	if err != nil {
		return err
	}
	defer floor.close()
	if err := f.define(ctx, agentName, turns(2, 0)); err != nil {
		return err
	}
	one := func(ctx context.Context) error {
		_, err := f.client.Submit(ctx, request(agentName), "")
		return err
	}
	var n atomic.Int64
	bare := func(ctx context.Context) error { return floor.submit(ctx, n.Add(1)) }
	for _, op := range []func(context.Context) error{one, bare} { // unmeasured
		if _, err := closedLoop(ctx, 200*time.Millisecond, op); err != nil {
			return err
		}
	}
	before := f.used()
	got, err := closedLoop(ctx, span, one)
	if err != nil {
		return err
	}
	used := f.used()
	least, err := closedLoop(ctx, span, bare)
	if err != nil {
		return err
	}
	count := got * span.Seconds()
	each := func(i int) float64 { return ms(used[i]-before[i]) / count }
	add(Row{
		What: "submissions, 64 at a time", Value: got, Unit: "/s", Target: "≥ 5000", Floor: least,
		Note: fmt.Sprintf("CPU ms each: gateway %.2f, NATS %.2f, Redis %.2f, who submits %.2f", each(3), each(1), each(2), each(0)),
	})
	took, err := openLoop(ctx, rate, span, one)
	if err != nil {
		return err
	}
	floorTook, err := openLoop(ctx, rate, span, bare)
	if err != nil {
		return err
	}
	add(Row{What: fmt.Sprintf("at %d/s: p50 of a submission", rate), Value: latency(took).P50, Unit: "ms", Floor: latency(floorTook).P50})
	add(Row{What: fmt.Sprintf("at %d/s: p99 of a submission", rate), Value: latency(took).P99, Unit: "ms", Target: "≤ 10", Floor: latency(floorTook).P99, Note: "from when it was due"})
	return nil
}

// submit does what a submission does to the servers: a script and a message.
func (f *floor) submit(ctx context.Context, n int64) error {
	run := fmt.Sprint("submitted-", n)
	keys := []string{"{f}:run:" + run, "{f}:log:" + run, "{f}:due"}
	if err := floorCommit.Run(ctx, f.rdb, keys, floorHeader, floorEntry, floorEntry, n).Err(); err != nil {
		return err
	}
	return f.publish(ctx, run, 0)
}

// closedLoop has 64 do op over and over for a while, and returns how often a second.
func closedLoop(ctx context.Context, span time.Duration, op func(context.Context) error) (float64, error) {
	var done atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range 64 {
		group.Go(func() error {
			for time.Since(began) < span {
				if err := op(ctx); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), err
}

// openLoop does op so many times a second, whether or not those before are done, and
// returns how long after the time for it each was done, in ms.
func openLoop(ctx context.Context, rate int, span time.Duration, op func(context.Context) error) ([]float64, error) {
	var mu sync.Mutex
	var took []float64
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	total := int(float64(rate) * span.Seconds())
	for i := range total {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if pause(ctx, time.Until(due)) != nil {
			break // a submission has failed
		}
		group.Go(func() error {
			err := op(ctx)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, ms(time.Since(due)))
			return err
		})
	}
	return took, group.Wait()
}

// used is the processor time of this process, of NATS, of Redis, of the gateway and of
// the workers.
func (f *fleet) used() []time.Duration {
	all := f.cpu()
	used := all[:]
	for _, p := range append([]*exec.Cmd{f.gateway}, f.workers...) {
		used = append(used, cpuOf(p))
	}
	return used
}
