package measure

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// triggersAtOnce is the number of triggers among which the messages are divided: one takes at most
	// 1,000 messages a second in a gateway.
	triggersAtOnce = 4

	// spacedMessages are published one after the other, each when the run of the previous one exists.
	spacedMessages = 100
)

// triggers publishes messages from which triggers create runs: first one after the other, then all at once.
func triggers(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{Workers: 1}); err != nil {
		return err
	}
	js, err := jetstream.New(t.Conn)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		return err
	}
	if err := t.define(ctx, "brief", answers); err != nil {
		return err
	}
	for i := range triggersAtOnce {
		if _, err := t.Client.PutTrigger(ctx, fmt.Sprintf("orders-%d", i), api.TriggerSettings{
			Stream: "ORDERS", Subjects: []string{fmt.Sprintf("orders.%d", i)}, From: api.FromAll, MaxPerMinute: 60_000,
			Run: &api.HookRun{Agent: "brief", Input: "'Order ' + string(event.number)", Metadata: map[string]string{"number": "string(event.number)"}},
		}); err != nil {
			return err
		}
	}
	spaced := min(spacedMessages, t.n)
	sent := make([]time.Time, 0, spaced+t.n)
	publish := func() error {
		n := len(sent)
		sent = append(sent, time.Now())
		_, err := js.PublishAsync(fmt.Sprintf("orders.%d", n%triggersAtOnce), fmt.Appendf(nil, `{"number": %d}`, n))
		return err
	}
	exist := func() error {
		return soon(ctx, fmt.Sprintf("%d runs have ended", len(sent)), func() (bool, error) {
			n, err := t.ended(ctx)
			return n >= len(sent), err
		})
	}
	for range spaced {
		if err := publish(); err != nil {
			return err
		}
		if err := exist(); err != nil {
			return err
		}
	}
	began := time.Now()
	for range t.n {
		if err := publish(); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return fmt.Errorf("NATS has not stored all messages of the scenario: %w", ctx.Err())
	}
	published := time.Since(began)
	if err := exist(); err != nil {
		return err
	}
	ended := time.Since(began)
	made, err := t.madeOf(ctx, sent)
	if err != nil {
		return err
	}
	last := made[0]
	var alone []time.Duration
	for n, at := range made {
		if at.After(last) {
			last = at
		}
		if n < spaced {
			alone = append(alone, at.Sub(sent[n]))
		}
	}
	t.times("publication to run, one message at a time", alone, 0.95, 0)
	t.figure(Figure{Name: "all at once: messages that became runs", Value: float64(t.n) / last.Sub(began).Seconds(), Unit: "/s", Note: fmt.Sprintf("%d triggers, one gateway", triggersAtOnce)})
	t.figure(Figure{Name: "all at once: first publication to last message stored", Value: published.Seconds(), Unit: "s"})
	t.figure(Figure{Name: "all at once: first publication to last run ended", Value: ended.Seconds(), Unit: "s", Note: "one turn a run, one worker"})
	return nil
}

// madeOf returns when the run of each message was created. Each message has one run.
func (t *trial) madeOf(ctx context.Context, sent []time.Time) (made []time.Time, err error) {
	made = make([]time.Time, len(sent))
	for f := (state.Filter{Limit: 500}); ; {
		page, err := t.store.List(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			n, err := strconv.Atoi(run.Metadata["number"])
			if err != nil || n < 0 || n >= len(made) {
				return nil, fmt.Errorf("run %s has the message number %q in its metadata, want 0 to %d: report this bug in Turnpike", run.ID, run.Metadata["number"], len(made)-1)
			}
			if !made[n].IsZero() {
				t.fail("message %d has two runs", n)
			}
			if run.Status != state.Completed {
				t.fail("run %s of message %d is %s", run.ID, n, run.Status)
			}
			made[n] = run.CreatedAt.Time
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	for n, at := range made {
		if at.IsZero() {
			t.fail("message %d has no run", n)
			made[n] = sent[n]
		}
	}
	return made, nil
}
