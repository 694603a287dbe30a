package turn

import (
	"context"
	"log/slog"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxBehind is the number of deliveries of a message that is newer than the store before the worker drops it.
const maxBehind = 3

// reject answers a message whose turn this worker may not take, or leaves it unanswered, to be delivered again.
// The error is that of the answer.
func (k *Taker) reject(ctx context.Context, d bus.TurnDelivery, c *state.Claim) error {
	msg := d.Turn()
	log := func(level slog.Level, message string, more ...any) {
		if k.cfg.Log.Enabled(ctx, level) {
			k.runLog(msg.Run).With("outcome", c.Outcome, "message_version", msg.Version, "version", c.Version).Log(ctx, level, message, more...)
		}
	}
	sweep := k.cfg.Periods.Sweep
	switch c.Outcome {
	case state.ClaimBusy:
		log(slog.LevelDebug, "turn rejected")
		return d.Nak(min(c.Busy+sweep, k.cfg.Periods.Lease))
	case state.ClaimDeferred:
		copied, again := k.cfg.Quarantine.Defer(msg.Run, msg.Version, time.Now(), sweep)
		if copied {
			break
		}
		if again {
			log(slog.LevelInfo, deferredLog)
		}
		return d.Nak(sweep)
	case state.ClaimBehind:
		log(slog.LevelDebug, "turn rejected") // the process logs that it waits
		return d.Nak(k.cfg.Periods.RedeliveryDelay)
	case state.ClaimUnsupportedFormat:
		// Nothing was claimed, so no attempt counts. The delay grows with each delivery: there may be
		// no newer worker for a while.
		log(slog.LevelWarn, "run was written by a newer build and is left to its workers", "knows_format", state.Format, "hint", "upgrade this worker")
		return d.Nak(min(time.Duration(d.Delivered())*sweep, k.cfg.Periods.Lease))
	case state.ClaimStoreBehind, state.ClaimMissing:
		// The store is older than the message: a replica that was just promoted, or a loss. It gets
		// some time to catch up. Then the store is right, and the sweeper continues the run from the
		// store's version.
		if d.Delivered() <= maxBehind {
			return d.Nak(k.catchUpDelay(d, c))
		}
		log(slog.LevelWarn, "store is older than the message", "hint", "check whether the store lost writes or was restored from a backup: docs/how-to/troubleshoot.md#lost-runs")
		if c.Outcome == state.ClaimMissing {
			return k.cfg.Upkeep.Finalizer.RecordLost(ctx, d)
		}
	case state.ClaimDeleted:
		// The message is older than the deletion. Its worker may have died before it removed the
		// events that it had published after the deletion.
		if feed := k.cfg.Upkeep.Feed; feed != nil {
			if err := feed.Recheck(ctx, msg.Tenant, msg.Run); err != nil {
				log(slog.LevelWarn, "events of a deleted run not removed", "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation; NATS redelivers the message")
				return nil
			}
		}
		log(slog.LevelDebug, "turn rejected")
	case state.ClaimStale, state.ClaimTerminal, state.ClaimWaiting:
		// The worker that took the turn may have died before it published what follows.
		if err := k.follow(ctx, c, msg); err != nil {
			log(slog.LevelWarn, "follow-up messages of a turn not published, NATS redelivers the message", "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
			return nil
		}
		log(slog.LevelDebug, "turn rejected")
	default:
		log(slog.LevelError, "the store reports an outcome of a claim that this worker does not know", "hint", "upgrade this worker: a newer build uses the store")
		return nil
	}
	return d.Ack()
}

// follow does for a run what a worker does after its commit: it publishes the next turn, or finalizes the run.
func (k *Taker) follow(ctx context.Context, c *state.Claim, msg bus.Turn) error {
	switch {
	case c.Status == state.Queued:
		return k.cfg.Dispatch.Follow(ctx, msg, c.Version, c.Priority)
	case c.Status == state.Running || c.FinalizedSeq == c.LogLen:
		return nil
	default:
		return k.cfg.Upkeep.Finalizer.FinalizeRun(ctx, msg.Run, c.FinalizedSeq)
	}
}

// catchUpDelay returns the delay of a message that is ahead of the store: the store may still catch up. The delay grows
// with each delivery. For a missing run it is at least the redelivery delay, so that the sweeper can first check a run
// that waits for the missing one: the waiting run says more about the missing run than the message does.
func (k *Taker) catchUpDelay(d bus.TurnDelivery, c *state.Claim) time.Duration {
	delay := time.Duration(d.Delivered()) * k.cfg.Periods.Sweep
	if c.Outcome == state.ClaimMissing {
		delay = max(delay, k.cfg.Periods.RedeliveryDelay)
	}
	return delay
}
