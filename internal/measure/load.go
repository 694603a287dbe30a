package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// parked keeps many turns at once in a slow model call on one worker, and then as many in calls over HTTP, which the
// model answers when it has all of them.
func parked(ctx context.Context, t *trial) error {
	call, idle := 5*time.Second, 65*time.Second
	if t.cfg.Short {
		call, idle = time.Second, 0
	}
	if err := t.deploy(ctx, rig.Config{Env: []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", t.n+t.n/10)}}); err != nil {
		return err
	}
	if err := errors.Join(t.define(ctx, "parked", noops(1, call)), t.define(ctx, "http", t.model.agent("once"))); err != nil {
		return err
	}
	worker, began := t.Workers[0], time.Now()
	base := worker.Resident()
	batches, _, err := t.submitMany(ctx, request("parked"), t.n, 0)
	if err != nil {
		return err
	}
	pause(ctx, time.Until(began.Add(call*4/5)))
	held := worker.Resident()
	if err := t.reach(ctx, batches, state.Completed); err != nil {
		return err
	}
	t.figure(Figure{Name: "all have completed", Value: time.Since(began).Seconds(), Unit: "s", Note: fmt.Sprintf("a call takes %s", call)})
	t.figure(Figure{Name: "worker at most", Value: mib(worker.Peak()), Unit: "MiB", Note: fmt.Sprintf("%.0f before; at the end %.0f are its own, the rest is the program's file", mib(base), mib(worker.Own()))})
	t.figure(Figure{Name: "a turn in its call, over the base", Value: float64(held-base) / 1024 / float64(t.n), Unit: "KiB"})
	t.model.hold()
	began = time.Now()
	if batches, _, err = t.submitMany(ctx, request("http"), t.n, 0); err != nil {
		return err
	}
	if err := t.model.await(ctx, t.n, 1); err != nil {
		return err
	}
	t.figure(Figure{Name: "all are in a call over HTTP", Value: time.Since(began).Seconds(), Unit: "s"})
	t.model.release()
	if err := t.reach(ctx, batches, state.Completed); err != nil {
		return err
	}
	t.figure(Figure{Name: "worker at most, calls over HTTP", Value: mib(worker.Peak()), Unit: "MiB"})
	pause(ctx, idle)
	t.figure(Figure{Name: "worker, " + idle.String() + " after all have ended", Value: mib(worker.Resident()), Unit: "MiB", Note: fmt.Sprintf("%.0f before", mib(base))})
	return nil
}

// abort measures the time from an abort to the end of the model call, and to the end of the run.
func abort(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	floor, err := t.startFloor(ctx)
	if err != nil {
		return err
	}
	if err := t.define(ctx, "held", t.model.agent("once")); err != nil {
		return err
	}
	t.model.hold()
	// aborted holds the durations of the aborts of one repetition, in ms.
	type aborted struct{ seen, ended []float64 }
	several := func(abort func(ctx context.Context, n int) (seen, ended float64, err error)) func() (aborted, error) {
		n := 0
		return func() (all aborted, err error) {
			for range max(1, t.n/t.repeat) {
				n++
				seen, ended, err := abort(ctx, n)
				if err != nil {
					return all, err
				}
				all.seen, all.ended = append(all.seen, seen), append(all.ended, ended)
			}
			return all, nil
		}
	}
	own, bare, err := interleave(t, floor, several(t.abortOne), several(floor.abortOne))
	if err != nil {
		return err
	}
	for _, share := range []float64{0.5, 0.99} {
		compared(t, fmt.Sprintf("abort to the end of the call, p%.0f", 100*share), "ms", own, bare, func(a aborted) float64 { return quantile(a.seen, share) })
		compared(t, fmt.Sprintf("abort to the end of the run, p%.0f", 100*share), "ms", own, bare, func(a aborted) float64 { return quantile(a.ended, share) })
	}
	return nil
}

// abortOne aborts a run in its model call, the n-th of the deployment. It returns the time in ms until the call
// ended, and until a reader had the run's last event.
func (t *trial) abortOne(ctx context.Context, n int) (seen, ended float64, err error) {
	run, err := t.submit(ctx, "held")
	if err != nil {
		return 0, 0, err
	}
	over := make(chan time.Time, 1)
	reading := make(chan error, 1)
	go func() {
		for e, err := range t.Client.Events(ctx, run.ID, 0) {
			if err != nil {
				reading <- err
				return
			}
			if e.Type == state.EntryFinished {
				over <- time.Now()
			}
		}
		reading <- nil
	}()
	if err := t.model.await(ctx, n, 1); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if _, err := t.Client.Cancel(ctx, run.ID, "measured"); err != nil {
		return 0, 0, err
	}
	if err := <-reading; err != nil {
		return 0, 0, err
	}
	left, err := t.model.awaitLeft(ctx, run.ID)
	return ms(left.Sub(began)), ms((<-over).Sub(began)), err
}

// abortOne does the same on the floor.
func (f *floor) abortOne(ctx context.Context, n int) (seen, ended float64, err error) {
	sub, err := f.nc.SubscribeSync(floorEnded + "*")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	run, err := f.submit(ctx, 1, time.Hour)
	if err != nil {
		return 0, 0, err
	}
	if err := soon(ctx, "the call has begun", func() (bool, error) { return f.rdb.HGet(ctx, floorKeys(run)[0], "c").Val() == "1", nil }); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := f.nc.Publish(floorCancel+run, nil); err != nil {
		return 0, 0, err
	}
	if _, err := sub.NextMsgWithContext(ctx); err != nil {
		return 0, 0, err
	}
	ended = ms(time.Since(began))
	steps, err := awaitSteps(ctx, f.steps, n)
	if err != nil {
		return 0, 0, err
	}
	return ms(steps[n-1].at.Sub(began)), ended, nil
}

// submit measures submissions, accepted and durable, without a worker: the maximum throughput, and the latency
// at a fixed rate.
func submit(ctx context.Context, t *trial) error {
	span := 3 * time.Second
	if t.cfg.Short {
		span = 300 * time.Millisecond
	}
	if err := t.deploy(ctx, rig.Config{Workers: -1}); err != nil {
		return err
	}
	if err := t.define(ctx, "once", answers); err != nil {
		return err
	}
	floor, err := t.startFloor(ctx)
	if err != nil {
		return err
	}
	// submitted is the measurement of one repetition of submit.
	type submitted struct {
		rate float64   // per second, 64 at a time
		took []float64 // each at the given rate, in ms
	}
	loops := func(op func(context.Context) error) func() (submitted, error) {
		return func() (s submitted, err error) {
			if s.rate, err = closedLoop(ctx, span, op); err == nil {
				s.took, err = openLoop(ctx, t.n, span, op)
			}
			return s, err
		}
	}
	var n atomic.Int64
	own, bare, err := interleave(t, floor, loops(func(ctx context.Context) error {
		_, err := t.submit(ctx, "once")
		return err
	}), loops(func(ctx context.Context) error {
		_, err := floor.submitAs(ctx, fmt.Sprint("submitted", n.Add(1)), 1, 0)
		return err
	}))
	if err != nil {
		return err
	}
	compared(t, "64 submissions at a time", "/s", own, bare, func(s submitted) float64 { return s.rate })
	compared(t, fmt.Sprintf("a submission at %d/s, p50 from when it was due", t.n), "ms", own, bare, func(s submitted) float64 { return quantile(s.took, 0.5) })
	compared(t, fmt.Sprintf("a submission at %d/s, p99", t.n), "ms", own, bare, func(s submitted) float64 { return quantile(s.took, 0.99) })
	return nil
}

// closedLoop makes 64 clients repeat op for a while, and returns the operations per second.
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

// openLoop starts op at a rate per second, without waiting for earlier ones, and returns the time from each due
// time to its completion, in ms.
func openLoop(ctx context.Context, rate int, span time.Duration, op func(context.Context) error) ([]float64, error) {
	var mu sync.Mutex
	var took []float64
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range int(float64(rate) * span.Seconds()) {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if !pause(ctx, time.Until(due)) {
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

// stream measures the throughput of one stream on a NATS server that does nothing else: of messages that are stored,
// delivered and acknowledged, like turns, and then, on another stream, of messages that are only stored, like events.
func stream(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{Workers: -1}); err != nil {
		return err
	}
	js, err := jetstream.New(t.Conn)
	if err != nil {
		return err
	}
	queue, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "FLOOD", Subjects: []string{"flood"}, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}}); err != nil {
		return err
	}
	consumer, err := queue.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 50_000})
	if err != nil {
		return err
	}
	var acked, sent atomic.Int64
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if m.Ack() == nil {
			acked.Add(1)
		}
	})
	if err != nil {
		return err
	}
	defer consuming.Stop()
	publish := func(subject string, size int) (float64, error) {
		body := make([]byte, size)
		return closedLoop(ctx, time.Duration(t.n)*time.Second, func(ctx context.Context) error {
			sent.Add(1)
			_, err := js.Publish(ctx, subject, body)
			return err
		})
	}
	began := time.Now()
	if _, err := publish("flood", 100); err != nil {
		return err
	}
	if err := soon(ctx, "all are acknowledged", func() (bool, error) { return acked.Load() >= sent.Load(), nil }); err != nil {
		return err
	}
	t.figure(Figure{Name: "messages of 100 B stored, delivered and acknowledged", Value: float64(acked.Load()) / time.Since(began).Seconds(), Unit: "/s"})
	stored, err := publish("kept", 650)
	t.figure(Figure{Name: "messages of 650 B stored", Value: stored, Unit: "/s", Note: "64 publishers wait for each"})
	return err
}

// start measures the time until `turnpike dev` and `turnpike demo` are ready, and the memory of the processes
// at their start.
func start(ctx context.Context, t *trial) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var fresh, again, demo []float64
	for i := range t.n {
		data := filepath.Join(t.dir, fmt.Sprint("data", i))
		for _, took := range []*[]float64{&fresh, &again} {
			d, err := t.startDev(ctx, self, data, len(fresh) == t.n)
			if err != nil {
				return err
			}
			*took = append(*took, d.Seconds())
		}
		d, err := t.startDemo(ctx, self)
		if err != nil {
			return err
		}
		demo = append(demo, d.Seconds())
	}
	t.figure(Figure{Name: "turnpike dev is ready, new data directory, p50", Value: quantile(fresh, 0.5), Unit: "s", Most: 1})
	t.figure(Figure{Name: "turnpike dev is ready, its data directory again, p50", Value: quantile(again, 0.5), Unit: "s", Most: 1})
	t.figure(Figure{Name: "turnpike demo has submitted its run, p50", Value: quantile(demo, 0.5), Unit: "s", Most: 1})
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	t.resident("gateway", t.Gateway)
	t.resident("worker", t.Workers[0])
	return nil
}

// resident records the memory of a process that has just started.
func (t *trial) resident(name string, p *rig.Process) {
	t.figure(Figure{Name: name + " at its start", Value: mib(p.Resident()), Unit: "MiB", Note: fmt.Sprintf("%.1f its own, the rest is the program's file", mib(p.Own()))})
}

// startDev returns the time until `turnpike dev` is ready; the memory of the last one is a figure.
func (t *trial) startDev(ctx context.Context, self, data string, last bool) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	port, err := devserver.FreePort()
	if err != nil {
		stop()
		return 0, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p := &rig.Process{Name: "dev", Path: self, Args: []string{"dev", "--data-dir", data, "--addr", addr}}
	var running errgroup.Group
	began := time.Now()
	running.Go(func() error { return p.Run(ctx, t.dir) })
	client := api.New("http://" + addr)
	err = soon(ctx, "turnpike dev is ready", func() (bool, error) { return client.Ready(ctx) == nil, nil })
	took := time.Since(began)
	if last {
		t.resident("turnpike dev", p)
	}
	stop()
	return took, errors.Join(err, running.Wait())
}

// startDemo returns the time until the demo has submitted its run, once the demo has ended.
func (t *trial) startDemo(ctx context.Context, self string) (took time.Duration, err error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, self, "demo")
	log, err := os.OpenFile(filepath.Join(t.dir, "demo.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close() //nolint:errcheck // the demo has written it
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(out); took == 0 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "run ") {
			took = time.Since(began)
		}
	}
	_, _ = io.Copy(io.Discard, out) // to its end, which removes what it has created
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("turnpike demo failed: %w: find the cause in %s", err, log.Name())
	}
	if took == 0 {
		return 0, fmt.Errorf("turnpike demo ended without a run: find the cause in %s", log.Name())
	}
	return took, nil
}

// waiting keeps many runs waiting for a person. Some are answered after their worker was replaced.
func waiting(ctx context.Context, t *trial) error {
	const answered = 1000
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	if err := t.define(ctx, "asks", asksHuman); err != nil {
		return err
	}
	before, err := t.stored(ctx)
	if err != nil {
		return err
	}
	batches, runs, err := t.submitMany(ctx, request("asks"), t.n, 0)
	if err != nil {
		return err
	}
	if err := t.reach(ctx, batches, state.Waiting); err != nil {
		return err
	}
	if err := t.leaves(ctx, "a run that waits", before); err != nil {
		return err
	}
	t.Workers[0].Kill(0)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for i := range min(t.n, answered) {
		id := runs[i*t.n/min(t.n, answered)]
		group.Go(func() error {
			if err := t.answer(groupCtx, id); err != nil {
				return err
			}
			return t.rests(groupCtx, id)
		})
	}
	return group.Wait()
}

// messages gives one run a long history, which several clients read concurrently at the end.
func messages(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	if err := t.define(ctx, "pages", t.model.agent("pages")+fmt.Sprintf("loop: {max_turns: 200}\ntools: [{name: page, kind: http, url: %q, idempotent: true}]\n", t.model.url+"page")); err != nil {
		return err
	}
	run, err := t.submit(ctx, "pages")
	if err != nil {
		return err
	}
	if _, err := t.completed(ctx, t.Client, run.ID); err != nil {
		return err
	}
	if t.model.largest < t.n*9/10 {
		t.fail("the largest request to the model has %d bytes, want %d or more, so the model did not get the whole history: report this bug in Turnpike", t.model.largest, t.n*9/10)
	}
	var readers errgroup.Group
	for range 8 {
		readers.Go(func() error {
			messages, err := t.Client.Messages(ctx, run.ID)
			if err == nil && len(messages) < t.n/pageSize {
				t.fail("%d messages are read", len(messages))
			}
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return err
	}
	t.figure(Figure{Name: "gateway at most, eight readers at a time", Value: mib(t.Gateway.Peak()), Unit: "MiB"})
	return nil
}

// answer answers the question of a run.
func (t *trial) answer(ctx context.Context, id string) error {
	text := "yes"
	_, err := t.Client.Signal(ctx, id, api.SignalRequest{Answer: &text})
	return err
}

// goOn sends a message to a completed run, and returns the time until a reader of later events had the last
// one.
func (t *trial) goOn(ctx context.Context, id string) (took time.Duration, err error) {
	header, err := t.store.Load(ctx, state.RunID(id))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := t.Client.Signal(ctx, id, api.SignalRequest{Message: json.RawMessage(`"go on"`)}); err != nil {
		return 0, err
	}
	for e, err := range t.Client.Events(ctx, id, header.LogLen()) {
		if err != nil {
			return 0, err
		}
		if e.Type == state.EntryFinished {
			return time.Since(began), nil
		}
	}
	return 0, fmt.Errorf("the events of run %s ended before the run: find the cause in the log of the gateway", id)
}

// rests waits until a run has completed, and repeats requests that fail.
func (t *trial) rests(ctx context.Context, id string) error {
	return rig.Until(ctx, patience, "an answered run completes", func(ctx context.Context) error {
		run, err := t.Client.Get(ctx, id)
		if err == nil && !run.Terminal() {
			return fmt.Errorf("run %s is %s", id, run.Status)
		}
		if err == nil && run.Status != string(state.Completed) {
			t.fail("run %s is %s: %v", id, run.Status, run.Error)
		}
		return err
	})
}

// cancelAll cancels the runs of an agent, and returns when none is queued or running.
func (t *trial) cancelAll(ctx context.Context, agent string) error {
	req := api.CancelRunsRequest{Filter: &api.RunFilter{Agent: agent}, Reason: "measured"}
	for {
		page, err := t.Client.CancelRuns(ctx, req)
		if err != nil {
			return err
		}
		if page.NextCursor == nil {
			break
		}
		req.Cursor = *page.NextCursor
	}
	return soon(ctx, "no run is left", func() (bool, error) {
		counts, err := t.store.Counts(ctx)
		return counts[state.Queued]+counts[state.Running] == 0, err
	})
}
