package effect

import (
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// publisher is the part of a bus that live events need.
type publisher interface {
	PublishLive(run state.RunID, data []byte)
}

// live publishes the events of attempts in flight for the readers of runs.
type live struct {
	worker   string
	clock    *clock.Clock
	bus      publisher
	watchers bus.Watchers // set by Performer.Start
}

// publish publishes an event if the run is watched.
func (v *live) publish(run state.RunID, l api.Live) {
	if v.watchers.Watched(run) {
		v.bus.PublishLive(run, api.EncodeLive(run, l))
	}
}

// event returns a live event of this attempt at a turn.
func (v *live) event(t *Turn, typ state.EntryType) api.Live {
	return api.Live{Type: typ, Turn: t.Run.CurrentTurn(), Attempt: t.Attempt, At: v.clock.Now(), Worker: v.worker}
}

// delta returns a live event for a part of the response that a model is sending, with the turn number that the
// message of the response will have. That number cannot come from CurrentTurn: the state that the attempt began with
// may still have the calls of the previous turn open, although they have results by now.
func (v *live) delta(t *Turn) api.Live {
	l := v.event(t, state.LiveModelDelta)
	if !t.Run.ContinueTurn {
		l.Turn = t.Run.Turn + 1
	}
	return l
}

// progress returns a function that publishes the progress of a call for readers of the run's live events, at most once
// in each progressInterval; it drops the other reports. The function is safe for concurrent use, and a tool that
// ignores its time limit may call it after the turn has ended.
func (v *live) progress(t *Turn, c state.OpenCall) func(text string) {
	id, l := t.Run.ID, v.event(t, state.LiveToolProgress)
	l.CallID, l.Name = c.ID, c.Name
	var mu sync.Mutex
	var last time.Time
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < progressInterval {
			return
		}
		last = time.Now()
		l.At, l.Progress = v.clock.Now(), text
		v.publish(id, l)
	}
}

// progressInterval is the minimum time between live events about the progress of one call.
const progressInterval = 200 * time.Millisecond
