package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// user submits one run and sees it through.
type user struct {
	s     *Deployment
	name  string
	dice  *dice
	agent string

	run     string
	status  string    // at the end
	aborted time.Time // when an abort was accepted, unless something was said after it
	seqs    int64     // events seen
}

// every is how often a user looks.
const every = 4 * time.Second

// patience is how long a user waits after the faults have ended.
const patience = 3 * time.Hour

func (u *user) live(ctx context.Context) error {
	time.Sleep(u.dice.between(0, u.s.cfg.Strike))
	if err := u.submit(ctx); err != nil {
		return err
	}
	cancelAt, sayAt := time.Time{}, time.Time{}
	if u.dice.chance(0.15) {
		cancelAt = time.Now().Add(u.dice.between(0, 3*time.Minute))
	}
	if u.dice.chance(0.15) {
		sayAt = time.Now().Add(u.dice.between(0, 4*time.Minute))
	}
	for {
		time.Sleep(every)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the run does not end: %w", err)
		}
		if !cancelAt.IsZero() && time.Now().After(cancelAt) {
			if u.cancel(ctx) {
				cancelAt = time.Time{}
			}
		}
		if !sayAt.IsZero() && time.Now().After(sayAt) {
			if u.signal(ctx, api.SignalRequest{SignalID: u.name + "-said", Message: json.RawMessage(`"and another thing"`)}) {
				sayAt = time.Time{}
			}
		}
		run, err := u.s.client.Get(ctx, u.run)
		if missing(err) {
			// The store has forgotten it: only a failover may do that.
			if !u.s.fellBack() {
				return fmt.Errorf("I1: run %s is gone", u.run)
			}
			if err := u.submit(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			continue
		}
		u.status = run.Status
		// A store that falls back may undo the end.
		settled := u.s.faults() == nil || u.s.cfg.Faults.Restore == 0
		if run.Terminal() && cancelAt.IsZero() && sayAt.IsZero() && settled {
			return nil
		}
		if run.Waiting != nil {
			u.answer(ctx, run)
		}
	}
}

// submit asks until it was accepted, under one key, so that it counts once.
func (u *user) submit(ctx context.Context) error {
	u.aborted = time.Time{}
	for ctx.Err() == nil {
		run, err := u.s.client.Submit(ctx, api.SubmitRequest{Agent: u.agent, Input: json.RawMessage(`"go"`)}, u.name)
		if err == nil {
			if u.run != "" && u.run != run.ID && !u.s.fellBack() {
				return fmt.Errorf("the key %s gives %s and %s", u.name, u.run, run.ID)
			}
			u.run = run.ID
			// Twice, to see that it is one.
			if again, err := u.s.client.Submit(ctx, api.SubmitRequest{Agent: u.agent, Input: json.RawMessage(`"go"`)}, u.name); err == nil && again.ID != run.ID && !u.s.fellBack() {
				return fmt.Errorf("the key %s gives %s and %s", u.name, run.ID, again.ID)
			}
			return nil
		}
		if refused(err) {
			return fmt.Errorf("submit: %w", err)
		}
		time.Sleep(time.Second)
	}
	return fmt.Errorf("nobody takes the run: %w", ctx.Err())
}

// cancel reports whether there is nothing more to ask for.
func (u *user) cancel(ctx context.Context) bool {
	_, err := u.s.client.Cancel(ctx, u.run, "enough")
	u.s.note("", "%s: cancel %s: %v", u.name, u.run, err)
	if err == nil {
		u.aborted = time.Now()
		return true
	}
	return refused(err)
}

// signal reports whether there is nothing more to say.
func (u *user) signal(ctx context.Context, r api.SignalRequest) bool {
	if r.Message != nil {
		u.aborted = time.Time{}
		u.s.outside.speak(state.RunID(u.run))
	}
	_, err := u.s.client.Signal(ctx, u.run, r)
	u.s.note("", "%s: signal %s, %s: %v", u.name, u.run, r.SignalID, err)
	return err == nil || refused(err)
}

// answer gives a run what it waits for.
func (u *user) answer(ctx context.Context, run api.Run) {
	id := fmt.Sprintf("%s-%d", u.name, run.Version)
	for _, c := range run.Waiting.Calls {
		switch run.Waiting.Reason {
		case "waiting_approval":
			decision := "approve"
			if u.dice.chance(0.3) {
				decision = "deny"
			}
			u.signal(ctx, api.SignalRequest{SignalID: id + c.ID, Approvals: []api.Approval{{CallID: c.ID, Decision: decision}}})
		case "waiting_client_tool":
			u.signal(ctx, api.SignalRequest{SignalID: id + c.ID, ToolResults: []api.ToolResult{{CallID: c.ID, Content: json.RawMessage(`"picked"`)}}})
		}
	}
	if run.Waiting.Reason == "waiting_human_input" {
		yes := "yes"
		u.signal(ctx, api.SignalRequest{SignalID: id, Answer: &yes})
	}
}

// watch follows the run's events from the first, and checks that they come without
// gap or double.
func (u *user) watch(ctx context.Context) error {
	for e, err := range u.s.client.Events(ctx, u.run, u.seqs) {
		switch {
		case err != nil:
			return err
		case e.Seq == 0:
		case e.Seq != u.seqs+1 && !u.s.fellBack():
			return fmt.Errorf("I9: event %d of %s comes after %d", e.Seq, u.run, u.seqs)
		default:
			u.seqs = e.Seq
		}
	}
	return nil
}

// batch submits some runs at once, of which two may be in flight.
type batch struct {
	s    *Deployment
	name string
	dice *dice
}

const batchSize = 6

func (b *batch) see(ctx context.Context) error {
	time.Sleep(b.dice.between(0, b.s.cfg.Strike))
	r := api.BatchRequest{MaxParallel: 2}
	for range batchSize {
		r.Runs = append(r.Runs, api.SubmitRequest{Agent: "quick", Input: json.RawMessage(`"go"`)})
	}
	id := ""
	for ctx.Err() == nil {
		time.Sleep(every)
		if id == "" {
			accepted, err := b.s.client.SubmitBatch(ctx, r, b.name)
			if err == nil && len(accepted.RunIDs) != batchSize {
				return fmt.Errorf("I1: batch %s has %d runs", accepted.BatchID, len(accepted.RunIDs))
			}
			if err != nil && refused(err) {
				return fmt.Errorf("submit batch: %w", err)
			}
			id = accepted.BatchID
			continue
		}
		switch got, err := b.s.client.Batch(ctx, id); {
		case missing(err) && b.s.fellBack():
			id = ""
		case err != nil:
		case got.Done && (b.s.faults() == nil || b.s.cfg.Faults.Restore == 0):
			return nil
		case got.Total == batchSize && got.Counts != nil && sum(got.Counts) < batchSize:
			id = "" // a gateway died over it: its key completes it
		}
	}
	return fmt.Errorf("I2: batch %s of %s does not end: %w", id, b.name, ctx.Err())
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func missing(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status == http.StatusNotFound
}

// refused reports whether an error will be the same the next time.
func refused(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests
}
