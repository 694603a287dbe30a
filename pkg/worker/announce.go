package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// announce puts committed or journaled entries on the bus.
func (w *Worker) announce(ctx context.Context, run state.RunID, entries []state.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	events, err := eventsOf(run, entries)
	if err != nil {
		return err
	}
	return w.bus.Announce(ctx, run, events)
}

// eventsOf returns entries of a run's log as those who watch see them.
func eventsOf(run state.RunID, entries []state.Entry) ([]bus.Event, error) {
	events := make([]bus.Event, len(entries))
	for i, e := range entries {
		data, err := api.EncodeEvent(run, e)
		if err != nil {
			return nil, err
		}
		events[i] = bus.Event{Seq: e.Seq, Data: data}
	}
	return events, nil
}

// catchUp announces what nobody is known to have announced.
func (w *Worker) catchUp(ctx context.Context, run state.RunID, announced int64) error {
	entries, err := w.store.Log(ctx, run, announced, 0)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return w.announce(ctx, run, entries)
}

// reply sends the finished run to the subject that its submitter named.
func (w *Worker) reply(ctx context.Context, s state.State) error {
	if s.ReplyTo == "" || !s.Status.Terminal() {
		return nil
	}
	data, err := json.Marshal(api.RunOf(s, now().Time))
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	return w.bus.Reply(ctx, s.ReplyTo, data)
}

// live tells whoever watches what goes on in this attempt.
func (t *turn) live(l api.Live) {
	t.w.bus.Live(t.s.ID, api.EncodeLive(t.s.ID, l))
}

// progress returns what the tool of a call tells about how far it is.
func (t *turn) progress(c state.OpenCall) func(text string) {
	id, l := t.s.ID, t.liveEvent(state.LiveToolProgress)
	l.CallID, l.Name = c.ID, c.Name
	var mu sync.Mutex
	var last time.Time
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		l.At, l.Progress = now(), text
		t.w.bus.Live(id, api.EncodeLive(id, l))
	}
}

// progressEvery bounds the live events about the progress of one call.
const progressEvery = 200 * time.Millisecond

func liveStarted(t *turn) api.Live {
	return t.liveEvent(state.LiveTurnStarted)
}

// liveEvent returns a live event of this attempt. Before the model has answered,
// the turn that it opens is not counted yet.
func (t *turn) liveEvent(typ state.EntryType) api.Live {
	no := t.s.Turn
	if len(t.s.Open) == 0 && !t.s.Reenter {
		no++
	}
	return api.Live{Type: typ, Turn: no, Attempt: t.claim.Attempt, At: now(), Worker: t.w.cfg.ID}
}
