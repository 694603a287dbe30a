package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// eventsKey is the secret EVENTS, which signs events.
	eventsKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

	// eventsPerRun are run.waiting and run.finished.
	eventsPerRun = 2
	mostKills    = 20

	// heldBefore is the time before a kill in which the receiver does not answer, so that each worker waits for
	// some answers.
	heldBefore = 100 * time.Millisecond
)

// sendEvents starts workers that can send events.
func (t *trial) sendEvents(ctx context.Context, workers int, env ...string) error {
	env = append(env, "TURNPIKE_SECRET_EVENTS="+eventsKey)
	if t.cfg.Short {
		env = append(env, hastyVariable+"=true")
	}
	return t.deploy(ctx, rig.Config{Workers: workers, Env: env})
}

// sendsTo returns the webhook of runs whose events go to an address.
func sendsTo(url string, events ...state.EntryType) *state.Webhook {
	return &state.Webhook{URL: url, Events: events, Secret: state.SecretReferences{"secret://EVENTS"}}
}

// webhooks makes many runs send two events each to a receiver that fails half of the requests: first without
// faults, then while workers are killed that wait for its answers.
func webhooks(ctx context.Context, t *trial) error {
	if err := t.sendEvents(ctx, 3); err != nil {
		return err
	}
	if err := t.define(ctx, "asks", asksHuman); err != nil {
		return err
	}
	quiet, err := t.eventsDelivered(ctx, 0)
	if err != nil {
		return err
	}
	killed, err := t.eventsDelivered(ctx, min(mostKills, max(1, t.n/10)))
	if err != nil {
		return err
	}
	t.figure(Figure{Name: "what the kills cost: longer until all are delivered", Value: (killed - quiet).Seconds(), Unit: "s"})
	return nil
}

// eventsDelivered makes the runs send their events while workers are killed, and returns the time that it took.
func (t *trial) eventsDelivered(ctx context.Context, kills int) (took time.Duration, err error) {
	name := "without kills: "
	if kills > 0 {
		name = fmt.Sprintf("%d kills: ", kills)
	}
	r, err := receiveEvents(ctx, eventsPerRun*t.n, kills)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	work, workCtx := errgroup.WithContext(ctx)
	work.Go(func() error { return t.askAndAnswer(workCtx, r.url) })
	work.Go(func() error { return t.killSenders(workCtx, r, kills) })
	if err := work.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w", r, err)
	}
	ended := time.Now()
	if err := soon(ctx, "all events are delivered", func() (bool, error) { return r.complete(), nil }); err != nil {
		return 0, fmt.Errorf("%s: %w", r, err)
	}
	took = time.Since(began)
	got := r.tally(t.fail)
	t.figure(Figure{
		Name: name + "first submission to last event", Value: took.Seconds(), Unit: "s",
		Note: fmt.Sprintf("%d events, the last %.1f s after the last run has ended", eventsPerRun*t.n, time.Since(ended).Seconds()),
	})
	t.figure(Figure{Name: name + "requests", Value: float64(got.requests), Note: fmt.Sprintf("%d were failed", got.failed)})
	t.figure(Figure{Name: name + "repeated deliveries, with the same webhook-id", Value: float64(got.repeated), Note: fmt.Sprintf("%d after a later event of the run", got.late)})
	t.times(name+"event to delivery", got.delays, 0.95, 0)
	if len(got.repeats) > 0 {
		t.times(name+"delivery to its repetition", got.repeats, 1, 0)
	}
	return took, nil
}

// askAndAnswer executes runs that wait for a person and end after the answer.
func (t *trial) askAndAnswer(ctx context.Context, url string) error {
	req := request("asks")
	req.Webhook = sendsTo(url, state.EntryWaiting, state.EntryFinished)
	batches, runs, err := t.submitMany(ctx, req, t.n, 0)
	if err != nil {
		return err
	}
	if err := t.reach(ctx, batches, state.Waiting); err != nil {
		return err
	}
	answering, answerCtx := errgroup.WithContext(ctx)
	answering.SetLimit(submitters)
	for _, id := range runs {
		answering.Go(func() error {
			_, err := t.Client.Signal(answerCtx, id, api.SignalRequest{SignalID: "a", Answer: new("well")})
			return err
		})
	}
	if err := answering.Wait(); err != nil {
		return err
	}
	return t.reach(ctx, batches, state.Completed)
}

// killSenders kills one worker after the other, each when the receiver has received more events and holds back
// its answers.
func (t *trial) killSenders(ctx context.Context, r *eventReceiver, kills int) error {
	for i := range kills {
		select {
		case <-r.kill:
		case <-ctx.Done():
			return fmt.Errorf("wait for kill %d: %w", i+1, ctx.Err())
		}
		rig.Pause(ctx, heldBefore)
		t.Workers[i%len(t.Workers)].Kill(0)
		r.release()
	}
	return nil
}

// eventRate is the number of runs per second for each receiver.
const eventRate = 25

// receivers makes two tenants send events to a receiver each, while events of one of them also go to a third
// receiver, which first answers, then refuses connections; then a fourth one accepts them and never answers.
func receivers(ctx context.Context, t *trial) error {
	secrets := filepath.Join(t.dir, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		return err
	}
	if err := t.sendEvents(ctx, 2, "TURNPIKE_AUTH=keys", "TURNPIKE_SECRETS_DIR="+secrets); err != nil {
		return err
	}
	var tenants [2]*api.Client
	for i := range tenants {
		name := fmt.Sprint("tenant", i)
		dir := filepath.Join(secrets, name)
		err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "EVENTS"), []byte(eventsKey), 0o600))
		if err != nil {
			return err
		}
		if tenants[i], _, err = t.tenant(ctx, name, "answers", answers); err != nil {
			return err
		}
	}
	third, err := startLive(ctx)
	if err != nil {
		return err
	}
	closed, stop := context.WithCancel(ctx)
	refuses, err := serve(closed, http.NotFoundHandler())
	stop()
	if err != nil {
		return err
	}
	silent, err := serve(ctx, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	if err != nil {
		return err
	}
	var without [2]float64
	for i, phase := range []struct{ name, url string }{
		{"all receivers answer", third.url}, {"one refuses", refuses}, {"one refuses, one never answers", silent},
	} {
		p95, err := t.eventsBeside(ctx, tenants, phase.name, phase.url)
		if err != nil {
			return err
		}
		if i == 0 {
			without = p95
			continue
		}
		for k, whose := range []string{"the same tenant", "another tenant"} {
			t.figure(Figure{Name: phase.name + ": p95 of " + whose + ", times that of all answering", Value: p95[k] / without[k], Most: 1.1})
		}
	}
	return nil
}

// eventsBeside makes each tenant send events to a receiver that answers, and the first one as many to another
// address. It returns the p95 of the time to the delivery, for each tenant.
func (t *trial) eventsBeside(ctx context.Context, tenants [2]*api.Client, phase, other string) (p95 [2]float64, err error) {
	var live [2]*liveReceiver
	for i := range live {
		if live[i], err = startLive(ctx); err != nil {
			return p95, err
		}
	}
	submit := func(ctx context.Context, c *api.Client, url string) error {
		req := request("answers")
		req.Webhook = sendsTo(url)
		_, err := c.Submit(ctx, req, "")
		return err
	}
	if _, err := openLoop(ctx, eventRate, time.Duration(t.n)*time.Second/eventRate, func(ctx context.Context) error {
		return errors.Join(submit(ctx, tenants[0], other), submit(ctx, tenants[0], live[0].url), submit(ctx, tenants[1], live[1].url))
	}); err != nil {
		return p95, err
	}
	for i, whose := range []string{"the same tenant", "another tenant"} {
		var delays []time.Duration
		if err := soon(ctx, phase+": all events of "+whose+" are delivered", func() (bool, error) {
			delays = live[i].delays()
			return len(delays) >= t.n, nil
		}); err != nil {
			return p95, err
		}
		t.times(fmt.Sprintf("%s: event of %s to delivery", phase, whose), delays, 0.95, 0)
		values := make([]float64, len(delays))
		for k, d := range delays {
			values[k] = ms(d)
		}
		p95[i] = quantile(values, 0.95)
	}
	return p95, nil
}
