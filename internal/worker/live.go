package worker

import (
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// live tells whoever watches the run what goes on in this attempt.
func (t *turn) live(l api.Live) { t.w.live(t.s.ID, l) }

func (w *Worker) live(run state.RunID, l api.Live) {
	if w.watchers.Watched(run) {
		w.bus.PublishLive(run, api.EncodeLive(run, l))
	}
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
		l.At, l.Progress = t.w.clock.Now(), text
		t.w.live(id, l)
	}
}

// progressEvery bounds the live events about the progress of one call.
const progressEvery = 200 * time.Millisecond

// liveEvent returns a live event of this attempt.
func (t *turn) liveEvent(typ state.EntryType) api.Live {
	return api.Live{Type: typ, Turn: t.s.CurrentTurn(), Attempt: t.claim.Attempt, At: t.w.clock.Now(), Worker: t.w.cfg.ID}
}
