package webhook

import (
	"context"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A replay of a dead letter is a series of attempts with a timer of its own. When the receiver has accepted the event,
// or when the event is a dead letter again, the timer stays, with a note that says so: it closes the letters of the
// event, or those before the new one.

// keepEnded is the time between two checks whether the run of a replay that has ended still exists.
const keepEnded = 30 * 24 * time.Hour

// maxReplays is the number of timers of an event that are read. Replay leaves two, unless several callers race.
const maxReplays = 16

// Replays are the replays of one event.
type Replays struct {
	Pending     bool       // attempts are made
	DeliveredAt state.Time // zero if no replay was delivered
	DeadAt      state.Time // of the last dead letter that a replay ended with; zero if none did

	replaced []state.TimerID // that a further replay removes: all but the one of DeadAt
}

// ReplayStore is the part of a store that ReplaysOf and Replay need.
type ReplayStore interface {
	PutTimer(ctx context.Context, id state.TimerID, due time.Time) error
	ListTimers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]state.Timer, error)
}

// ReplaysOf returns the replays of the event seq of a run.
func ReplaysOf(ctx context.Context, store ReplayStore, tenant string, run state.RunID, seq int64) (Replays, error) {
	first := Timer(state.State{ID: run, Tenant: tenant}, seq)
	timers, err := store.ListTimers(ctx, tenant, Kind, first.Name, maxReplays)
	var r Replays
	var dead state.TimerID
	for _, t := range timers {
		if !strings.HasPrefix(t.Name, first.Name+" ") {
			break // of another event
		}
		id := state.TimerID{Tenant: tenant, Kind: Kind, Name: t.Name}
		p := progressOf(t.Note)
		at := state.At(time.UnixMilli(p.At))
		switch {
		case p.Dead && at.After(r.DeadAt.Time):
			r.DeadAt, dead, id = at, id, dead // an earlier one, if any, is replaced
		case p.Delivered:
			r.DeliveredAt = at
		case !p.Dead:
			r.Pending = true
		}
		if id.Name != "" {
			r.replaced = append(r.replaced, id)
		}
	}
	return r, err
}

// Replay starts a new series of attempts to deliver the event seq of a run. It replaces earlier replays, but for the
// record of the last dead letter.
func Replay(ctx context.Context, store ReplayStore, tenant string, run state.RunID, seq int64, now time.Time) error {
	earlier, err := ReplaysOf(ctx, store, tenant, run, seq)
	if err != nil {
		return err
	}
	timer := again(tenant, run, seq, now)
	if err := store.PutTimer(ctx, timer, now); err != nil {
		return err
	}
	for _, id := range earlier.replaced {
		if id == timer {
			continue
		}
		if err := store.PutTimer(ctx, id, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}
