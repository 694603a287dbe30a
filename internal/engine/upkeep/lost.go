package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// recordLost records that the store has lost a run, and finalizes the run. known is what the caller knows about the
// run. If the store has the run again, recordLost leaves the run as it is, and only finalizes it. If the store has a
// marker of the run's deletion, recordLost does nothing. recorded reports whether the store has the run as lost, from
// this call or an earlier one, even if the error is that of finalizing it.
func (f *Finalizer) recordLost(ctx context.Context, known state.State, detail string) (recorded bool, err error) {
	lost, err := known.Lost(f.cfg.Clock.Now(), detail)
	if err != nil {
		return false, err
	}
	made, err := f.store.Create(ctx, state.NewRun{State: lost, RedeliveryDelay: f.cfg.RedeliveryDelay})
	if errors.Is(err, state.ErrDeleted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("record the loss of run %s: %w", known.ID, err)
	}
	if !made.Existing {
		f.cfg.Log.Error("the store has lost a run, which is now marked as failed", "run_id", known.ID, "tenant", lost.Tenant, "detail", detail, "hint", "submit the input of the run again, and check that the store keeps acknowledged writes: docs/how-to/troubleshoot.md#lost-runs")
		f.bus.NotifyAppended(lost.Tenant, lost.ID, 0, lost.LogLen())
	}
	return made.State.Transition.Reason == state.EndLost, f.FinalizeRun(ctx, known.ID, 0)
}

// RecordLost processes the turn message of a run that the store has lost: it marks the run as failed, which stores a
// dead letter, and acknowledges the message. If this fails, it logs the failure and leaves the message to be delivered
// again. It also has the message delivered again if the store has the run after all, or has a marker of its deletion:
// the next claim finds what the message needs. If the message is older than state.MarkerLifetime, RecordLost
// acknowledges it and records nothing: its run was more likely deleted, and the marker may have expired. The error is
// that of the answer to the message.
func (f *Finalizer) RecordLost(ctx context.Context, d bus.TurnDelivery) error {
	msg := d.Turn()
	if age := f.cfg.Clock.Now().Sub(d.PublishedAt()); age > state.MarkerLifetime {
		f.cfg.Log.Warn("an old turn message names a run that the store does not have; the message is dropped", "run_id", msg.Run, "age", age, "hint", "check whether the store lost writes: docs/how-to/troubleshoot.md#lost-runs")
		return d.Ack()
	}
	known := state.State{ID: msg.Run, Tenant: msg.Tenant, Priority: msg.Priority}
	recorded, err := f.recordLost(ctx, known, "a turn message names the run, but the store does not have it")
	switch {
	case err != nil:
		f.cfg.Log.Warn("the store has lost a run, and recording that was not completed; NATS redelivers its turn message, and a worker retries", "run_id", msg.Run, "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
		return nil
	case !recorded:
		f.cfg.Log.Info("a run that was missing is in the store again, or was deleted; NATS redelivers its message", "run_id", msg.Run)
		return d.Nak(f.cfg.RedeliveryDelay)
	default:
		return d.Ack()
	}
}

// find checks the child runs that a waiting run has started. It sends the result of an ended child
// again, because the first one may have been lost. It records a missing child as lost.
func (c *children) find(ctx context.Context, s state.State) error {
	var group errgroup.Group
	group.SetLimit(childrenPerCheck)
	for _, o := range s.Open {
		if o.Needs == state.NeedChild {
			group.Go(func() error {
				c.finding <- struct{}{}
				defer func() { <-c.finding }()
				return c.findOne(ctx, s, o)
			})
		}
	}
	return group.Wait()
}

func (c *children) findOne(ctx context.Context, s state.State, o state.OpenCall) error {
	child, err := c.f.store.Load(ctx, o.Child)
	switch {
	case errors.Is(err, state.ErrNotFound):
		if _, err := c.f.recordLost(ctx, c.childOf(ctx, s, o), "the run "+string(s.ID)+" waits for it, but the store does not have it"); err != nil {
			return err
		}
		return c.f.signalParent(ctx, s.ID, lostChild(o)) // without effect if its end has answered
	case err != nil:
		return fmt.Errorf("load child run %s: %w", o.Child, err)
	case child.Status.Terminal():
		return c.f.answerFor(ctx, s, o, child)
	default:
		return nil
	}
}

// childOf returns the parent's knowledge of the child run of a call.
func (c *children) childOf(ctx context.Context, s state.State, o state.OpenCall) state.State {
	depth := 1
	if s.Parent != nil {
		depth += s.Parent.Depth
	}
	child := state.State{ID: o.Child, Tenant: s.Tenant, Priority: s.Priority, Parent: &state.Parent{RunID: s.ID, CallID: o.ID, Depth: depth}}
	if parent, err := c.f.cfg.Agents.Of(ctx, &s); err == nil {
		if spec := parent.Tool(o.Name); spec != nil {
			child.Agent = spec.Agent
		}
	}
	child.Agent = cmp.Or(child.Agent, o.Name)
	return child
}

func lostChild(o state.OpenCall) state.Signal {
	return failedChild(o, "The store has lost the run %s, so its outcome is unknown: check what it has done before you repeat the call", o.Child)
}
