package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// catchUpDelay is how long the message of a run stays away whose store is older. For a run that
// is missing it is longer: a run that waits for it says more of it when it is looked at.
func (w *Worker) catchUpDelay(d bus.TurnDelivery, c state.Claim) time.Duration {
	delay := time.Duration(d.Delivered()) * w.cfg.SweepInterval
	if c.Outcome == state.ClaimMissing {
		delay = max(delay, w.cfg.RedeliveryDelay)
	}
	return delay
}

// recordLost records that the store has lost the checkpoint of a run, and does what follows the
// end of the run. known is what the caller has of it. A run that the store has again stays as it
// is, and a run that was deleted is not lost.
func (w *Worker) recordLost(ctx context.Context, known state.State, detail string) error {
	lost, err := known.Lost(w.clock.now(), detail)
	if err != nil {
		return err
	}
	made, err := w.store.Create(ctx, state.NewRun{State: lost, RedeliveryDelay: w.cfg.RedeliveryDelay})
	if errors.Is(err, state.ErrDeleted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("record the loss of run %s: %w", known.ID, err)
	}
	if !made.Existing {
		w.runLog(known.ID).Error().Str("tenant", lost.Tenant).Str("detail", detail).Str("hint", "docs/how-to/troubleshoot.md#lost-runs").Msg("the store has lost a run")
		w.bus.NotifyAppended(lost.Tenant, lost.ID, 0, lost.LogLen())
	}
	return w.finalizeRun(ctx, known.ID, 0)
}

// buryLost ends the message of a run that the store has lost: the run has failed, and the message
// is a dead letter of its tenant. A message that is older than the markers of deleted runs is
// dropped instead: its run was more likely deleted than lost.
func (w *Worker) buryLost(ctx context.Context, d bus.TurnDelivery) error {
	msg := d.Turn()
	if age := w.clock.now().Sub(d.PublishedAt()); age > state.MarkerLifetime {
		w.runLog(msg.Run).Warn().Dur("age", age).Str("hint", "docs/how-to/troubleshoot.md#lost-runs").Msg("the store lacks the run of an old message, which is dropped")
		return d.Ack()
	}
	known := state.State{ID: msg.Run, Tenant: msg.Tenant, Priority: msg.Priority}
	err := w.recordLost(ctx, known, "a turn message names the run")
	if err == nil {
		err = w.bus.DeadLetter(ctx, bus.DeadLetter{
			Kind: bus.DeadLost, Tenant: msg.Tenant, Lane: msg.Priority, Run: msg.Run, Cause: string(state.EndLost), At: w.clock.now(),
			Data: fmt.Sprintf(`{"run_id":%q,"version":%d}`, msg.Run, msg.Version),
		})
	}
	if err != nil {
		w.runLog(msg.Run).Warn().Err(err).Str("hint", "the message is delivered again").Msg("lost run not recorded")
		return nil
	}
	return d.Ack()
}

// findChildren looks for the runs that a waiting run has started, and answers for those that have
// ended: an answer may be lost. A run that is missing was lost.
func (w *Worker) findChildren(ctx context.Context, s state.State) error {
	var group errgroup.Group
	group.SetLimit(childrenPerCheck)
	for _, o := range s.Open {
		if o.Needs == state.NeedChild {
			group.Go(func() error {
				w.finding <- struct{}{}
				defer func() { <-w.finding }()
				return w.findChild(ctx, s, o)
			})
		}
	}
	return group.Wait()
}

func (w *Worker) findChild(ctx context.Context, s state.State, o state.OpenCall) error {
	child, err := w.store.Load(ctx, o.Child)
	switch {
	case errors.Is(err, state.ErrNotFound):
		if err := w.recordLost(ctx, w.childOf(ctx, s, o), "the run "+string(s.ID)+" waits for it"); err != nil {
			return err
		}
		return w.signalParent(ctx, s.ID, lostChild(o)) // unless its end has said more
	case err != nil:
		return fmt.Errorf("load child run %s: %w", o.Child, err)
	case child.Status.Terminal():
		return w.answerFor(ctx, s, o, child)
	default:
		return nil
	}
}

// answerFor gives the outcome of a child that has ended to the run that waits for it. The record
// of a lost run may not have its parent.
func (w *Worker) answerFor(ctx context.Context, s state.State, o state.OpenCall, child state.State) error {
	if child.Parent == nil {
		return w.signalParent(ctx, s.ID, lostChild(o))
	}
	return w.answerParent(ctx, child)
}

// childOf returns what a run knows of the child that it has started for a call.
func (w *Worker) childOf(ctx context.Context, s state.State, o state.OpenCall) state.State {
	depth := 1
	if s.Parent != nil {
		depth += s.Parent.Depth
	}
	child := state.State{ID: o.Child, Tenant: s.Tenant, Priority: s.Priority, Parent: &state.Parent{RunID: s.ID, CallID: o.ID, Depth: depth}}
	if parent, err := w.agents.get(ctx, s.Tenant, s.Agent, s.AgentVersion); err == nil {
		if spec := parent.Tool(o.Name); spec != nil {
			child.Agent = spec.Agent
		}
	}
	child.Agent = cmp.Or(child.Agent, o.Name)
	return child
}

func lostChild(o state.OpenCall) state.Signal {
	return failedChild(o, "The store has lost the run %s: its outcome is unknown", o.Child)
}
