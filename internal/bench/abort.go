package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// abort measures how soon a run in a model call ends when somebody aborts it, and how
// soon another worker takes up the turns of one that was killed.
func abort(ctx context.Context, cfg Config, add func(Row)) error {
	n, deaths := 200, 3
	if cfg.Short {
		n, deaths = 20, 1
	}
	if err := aborts(ctx, cfg, n, add); err != nil {
		return err
	}
	var first, all []float64
	for range deaths {
		f, a, err := death(ctx, cfg)
		if err != nil {
			return err
		}
		first, all = append(first, f.Seconds()), append(all, a.Seconds())
	}
	note := fmt.Sprintf("the slowest of %d times; heartbeats come every 0.3 s, and four may be missed", deaths)
	add(Row{What: "a worker is killed: its first turn is taken up", Value: latency(first).P99, Unit: "s", Target: "≤ 1.5", Note: note})
	add(Row{What: "a worker is killed: all its turns are", Value: latency(all).P99, Unit: "s", Target: "≤ 1.5"})
	return nil
}

func aborts(ctx context.Context, cfg Config, n int, add func(Row)) error {
	f, err := startFleet(ctx, cfg.Profile, 1, 100)
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.define(ctx, agentName, turns(1, time.Minute)); err != nil {
		return err
	}
	cancelled, err := f.nc.SubscribeSync(subjectCancelled + "*")
	if err != nil {
		return err
	}
	floor, err := newFloor(ctx, f.servers)
	if err != nil {
		return err
	}
	defer floor.close()
	// The first ones warm connections and scripts.
	const warm = 5
	var seen, ended, floorSeen, floorEnded []float64
	for i := range n + warm {
		s, e, err := f.abort(ctx, cancelled, i+1)
		if err != nil {
			return err
		}
		fs, fe, err := floor.abort(ctx, i)
		if err != nil {
			return err
		}
		if i >= warm {
			seen, ended = append(seen, ms(s)), append(ended, ms(e))
			floorSeen, floorEnded = append(floorSeen, ms(fs)), append(floorEnded, ms(fe))
		}
	}
	row := func(what string, got, floor float64, target string) {
		add(Row{What: what, Value: got, Unit: "ms", Target: target, Floor: floor})
	}
	row("abort → the call's context is cancelled, p50", latency(seen).P50, latency(floorSeen).P50, "≤ 1.1")
	row("abort → the call's context is cancelled, p99", latency(seen).P99, latency(floorSeen).P99, "≤ 5")
	row("abort → the run has ended, p50", latency(ended).P50, latency(floorEnded).P50, "≤ 4")
	row("abort → the run has ended, p99", latency(ended).P99, latency(floorEnded).P99, "≤ 10")
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// abort submits a run, aborts it in its model call, the worker's calls-th, and returns
// how long after the request the call's context ended, and after which its last event
// was here.
func (f *fleet) abort(ctx context.Context, cancelled *nats.Subscription, calls int) (seen, ended time.Duration, err error) {
	run, err := f.client.Submit(ctx, request(agentName), "")
	if err != nil {
		return 0, 0, err
	}
	over := make(chan time.Time, 1)
	reading := make(chan error, 1)
	go func() { reading <- f.readToEnd(ctx, run.ID, over) }()
	if err := until(ctx, "the model is called", func() (bool, error) {
		n, err := f.calls(ctx)
		return err == nil && n[0] >= calls, err
	}); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if _, err := f.client.Cancel(ctx, run.ID, "measured"); err != nil {
		return 0, 0, err
	}
	if err := <-reading; err != nil {
		return 0, 0, err
	}
	ended = (<-over).Sub(began)
	m, err := cancelled.NextMsgWithContext(ctx)
	if err != nil {
		return 0, 0, err
	}
	at, err := strconv.ParseInt(string(m.Data), 10, 64)
	if err == nil && m.Subject != subjectCancelled+run.ID {
		err = errors.New("another run's call was cancelled")
	}
	return time.Unix(0, at).Sub(began), ended, err
}

// readToEnd follows the events of a run and notes when the last was here.
func (f *fleet) readToEnd(ctx context.Context, run string, over chan<- time.Time) error {
	for e, err := range f.client.Events(ctx, run, 0) {
		if err != nil {
			return err
		}
		if e.Type == state.EntryFinished {
			over <- time.Now()
			return nil
		}
	}
	return errors.New("the stream ended without run.finished")
}

// abort does what an abort does to the servers: a flag, a message, the commit, and two
// events that a watcher gets.
func (f *floor) abort(ctx context.Context, i int) (seen, ended time.Duration, err error) {
	aborts, err := f.nc.SubscribeSync("floor.abort")
	if err != nil {
		return 0, 0, err
	}
	run := fmt.Sprint("aborted-", i)
	events, err := f.nc.SubscribeSync("floor.events." + run)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _, _ = aborts.Unsubscribe(), events.Unsubscribe() }()
	if err := f.nc.FlushWithContext(ctx); err != nil {
		return 0, 0, err
	}
	keys := []string{"{f}:run:" + run, "{f}:log:" + run, "{f}:due"}
	began := time.Now()
	if err := floorClaim.Run(ctx, f.rdb, keys, "abort", i).Err(); err != nil {
		return 0, 0, err
	}
	if err := f.nc.Publish("floor.abort", []byte(run)); err != nil {
		return 0, 0, err
	}
	if _, err := aborts.NextMsgWithContext(ctx); err != nil {
		return 0, 0, err
	}
	seen = time.Since(began)
	if err := floorCommit.Run(ctx, f.rdb, keys, floorHeader, floorEntry, floorEntry, i).Err(); err != nil {
		return 0, 0, err
	}
	for range 2 {
		if _, err := f.js.PublishAsync("floor.events."+run, []byte(floorEntry)); err != nil {
			return 0, 0, err
		}
	}
	for range 2 {
		if _, err := events.NextMsgWithContext(ctx); err != nil {
			return 0, 0, err
		}
	}
	return seen, time.Since(began), nil
}

// death kills one of two workers and returns when the other had taken up the first of
// its turns, and all.
func death(ctx context.Context, cfg Config) (first, all time.Duration, err error) {
	f, err := startFleet(ctx, cfg.Profile, 2, 1000)
	if err != nil {
		return 0, 0, err
	}
	defer f.stop()
	const runs = 100
	if err := f.define(ctx, agentName, turns(1, time.Minute)); err != nil {
		return 0, 0, err
	}
	if _, err := f.submitMany(ctx, request(agentName), runs, 0); err != nil {
		return 0, 0, err
	}
	var before []int
	if err := until(ctx, "all runs are in their model calls", func() (bool, error) {
		before, err = f.calls(ctx)
		return err == nil && before[0]+before[1] >= runs, err
	}); err != nil {
		return 0, 0, err
	}
	victim, heir := 0, 1
	if before[victim] == 0 {
		victim, heir = heir, victim // it had none of them
	}
	// A worker judges nobody before it has listened for a while.
	if err := pause(ctx, 2*time.Second); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	kill(f.workers[victim])
	err = until(ctx, "the other worker has taken up the turns", func() (bool, error) {
		n, err := f.callsOf(ctx, heir)
		if err == nil && first == 0 && n > before[heir] {
			first = time.Since(began)
		}
		return n >= before[heir]+before[victim], err
	})
	return first, time.Since(began), err
}
