package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// queue is the observed state of a backlog.
type queue struct {
	*scene

	js    jetstream.JetStream
	bus   *natsbus.Bus
	store *redisstore.Store
	sent  atomic.Int64 // runs

	mu     sync.Mutex
	sweeps []time.Duration
	late   []time.Duration // runs whose time has come, in a lane of their own
	most   float64         // messages a run that waits or runs
	looks  int
}

// backlog lets runs queue for few slots. There are never more messages of turns than runs
// that need one, sweeps find nothing to do, and a run whose time has come does not wait.
func backlog(ctx context.Context, s *scene) error {
	if err := s.deploy(ctx, rig.Config{Workers: 2, Env: []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", max(1, s.Slots/2))}}); err != nil {
		return err
	}
	q := &queue{scene: s}
	if err := q.open(ctx); err != nil {
		return err
	}
	defer q.bus.Close()
	defer q.store.Close()
	for name, takes := range map[string]time.Duration{"waits": s.Takes, "brief": 0} {
		definition := fmt.Sprintf("model: {provider: scripted, responses: [{text: done, delay: %s}]}", takes)
		if _, err := s.Client.PutAgent(ctx, name, []byte(definition)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { q.every(ctx, 200*time.Millisecond, q.count) })
	watching.Go(func() { q.every(ctx, time.Second, q.sweep) })
	began := time.Now()
	batches, _, err := s.submitMany(ctx, "waits", s.Queued, func(n int) { q.sent.Add(int64(n)) })
	if err != nil {
		return err
	}
	s.figure("%d runs are submitted in %.1f s", s.Queued, time.Since(began).Seconds())
	watching.Go(func() { q.every(ctx, 2*time.Second, q.timer) })
	done := make(chan error, 1)
	go func() { done <- s.complete(ctx, batches) }()
	select {
	case err = <-done:
		s.figure("all have completed after %.1f s", time.Since(began).Seconds())
	case <-time.After(s.Watch):
		s.figure("watched for %s", s.Watch)
	}
	cancel()
	watching.Wait()
	q.report()
	return err
}

func (q *queue) open(ctx context.Context) (err error) {
	if q.js, err = jetstream.New(q.Conn); err != nil {
		return err
	}
	if q.bus, err = natsbus.Open(ctx, q.Conn, natsbus.Config{Prefix: rig.Prefix, ReadOnly: true}); err != nil {
		return err
	}
	q.store, err = redisstore.Open(ctx, redisstore.Config{URL: "redis://" + q.Redis.Addr + "/0", Prefix: rig.Prefix})
	q.store.SetFormat(state.Format)
	return err
}

// every does something again and again until ctx ends. Once it fails it is a failure.
func (q *queue) every(ctx context.Context, d time.Duration, do func(context.Context) error) {
	for rig.Pause(ctx, d) {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			q.fail("%v", err)
		}
	}
}

// live returns the number of runs that wait for a turn or execute one.
func (q *queue) live(ctx context.Context) (int64, error) {
	counts, err := q.store.Counts(ctx)
	return counts[state.Queued] + counts[state.Running], err
}

// count compares messages with runs.
func (q *queue) count(ctx context.Context) error {
	before, err := q.live(ctx)
	if err != nil {
		return err
	}
	messages := uint64(0)
	streams := q.js.ListStreams(ctx)
	for info := range streams.Info() {
		if strings.HasPrefix(info.Config.Name, strings.ToUpper(rig.Prefix)+"_TURNS") {
			messages += info.State.Msgs
		}
	}
	if err := streams.Err(); err != nil {
		return err
	}
	after, err := q.live(ctx)
	if err != nil {
		return err
	}
	runs := max(before, after)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks++
	// A turn that has just ended leaves its message for the time of an acknowledgement.
	if allowed := float64(runs)*1.05 + float64(2*q.Slots); float64(messages) > allowed {
		q.fail("%d messages of turns for %d runs, of %d that were sent", messages, runs, q.sent.Load())
	}
	if runs >= int64(20*q.Slots) {
		q.most = max(q.most, float64(messages)/float64(runs))
	}
	return nil
}

// sweep is one more sweeper, which only wants to know how long it takes.
func (q *queue) sweep(ctx context.Context) error {
	backlog, err := q.bus.Backlog(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = q.store.Sweep(ctx, 512, 5*time.Second, backlog)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sweeps = append(q.sweeps, time.Since(began))
	return err
}

// timer submits an urgent run with a start in the near future and sees when it has ended.
func (q *queue) timer(ctx context.Context) error {
	at := state.At(time.Now().Add(time.Second))
	run, err := q.Client.Submit(ctx, api.SubmitRequest{Agent: "brief", Input: json.RawMessage(`"go"`), Priority: string(state.High), StartAt: &at}, "")
	if err != nil {
		return err
	}
	if err := rig.Until(ctx, patience, "an urgent run has ended", func(ctx context.Context) (err error) {
		if run, err = q.Client.Get(ctx, run.ID); err == nil && !run.Terminal() {
			err = fmt.Errorf("run %s is %s", run.ID, run.Status)
		}
		return err
	}); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.late = append(q.late, run.FinishedAt.Sub(at.Time))
	if run.Status != string(state.Completed) {
		q.fail("an urgent run is %s", run.Status)
	}
	return nil
}

func (q *queue) report() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.figure("at most %.3f messages a run, of %d looks; want 1.05", q.most, q.looks)
	q.figure("a sweep beside it: %s; want 5 ms", spread(q.sweeps))
	q.figure("an urgent run has ended after its start_at: %s", spread(q.late))
}

// spread formats a distribution of durations.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "never seen"
	}
	all = slices.Sorted(slices.Values(all))
	at := func(share float64) string {
		return fmt.Sprintf("%.1f ms", float64(all[int(share*float64(len(all)-1))])/float64(time.Millisecond))
	}
	return fmt.Sprintf("p50 %s, p90 %s, most %s, of %d", at(0.5), at(0.9), at(1), len(all))
}
