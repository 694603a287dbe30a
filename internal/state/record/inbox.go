package record

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// answer removes the waits that s answers. If one of them is not open, it removes none and returns the name
// of the first such wait, else "".
func (r *Record) answer(s state.Signal) (missing string) {
	open := slices.Clone(r.Awaits)
	for _, name := range s.Names() {
		i := slices.Index(open, name)
		if i < 0 {
			return name
		}
		open = slices.Delete(open, i, i+1)
	}
	r.Awaits = open
	return ""
}

// Signal puts a signal into the inbox, see state.Signals. After an error the record must not be stored.
func (r *Record) Signal(id state.RunID, s state.Signal, now time.Time, delay time.Duration) (state.Wake, error) {
	key := s.Key()
	if slices.Contains(r.Seen, key) {
		if mark := r.SeenMarks[key]; mark != "" && s.Fingerprint != "" && mark != s.Fingerprint {
			return state.Wake{}, state.ErrIdempotencyConflict
		}
		return state.Wake{}, nil
	}
	if s.Mode == state.Reject && (r.Status == state.Queued || r.Status == state.Running) {
		return state.Wake{}, &state.BusyError{ID: id, Status: r.Status}
	}
	if b := s.Basis; b != nil && *b != (state.Basis{Status: r.Status, Version: r.Version, LogLen: r.LogLen}) {
		return state.Wake{}, state.ErrMoved
	}
	s.Basis = nil
	if name := r.answer(s); name != "" {
		return state.Wake{}, &state.NotWaitingError{ID: id, Status: r.Status, Name: name}
	}
	if r.Sealed != "" {
		return state.Wake{}, state.ErrDeleting
	}
	size, err := json.Marshal(s)
	if err != nil {
		return state.Wake{}, err
	}
	r.Inbox, r.InboxBytes = append(slices.Clip(r.Inbox), s), r.InboxBytes+int64(len(size))
	if len(r.Inbox) > state.MaxSignals || r.InboxBytes > state.MaxSignalBytes {
		return state.Wake{}, &state.InboxFullError{ID: id, Signals: int64(len(r.Inbox)), Bytes: r.InboxBytes, Limit: state.MaxSignalBytes}
	}
	r.closeWaits(s)
	r.Interrupted = r.Interrupted || s.Mode.Interrupts() && r.Status == state.Running
	r.Seen = append(slices.Clip(r.Seen), key)
	r.SeenMarks = maps.Clone(r.SeenMarks) // copies of the record share it
	if s.Fingerprint != "" {
		if r.SeenMarks == nil {
			r.SeenMarks = map[string]string{}
		}
		r.SeenMarks[key] = s.Fingerprint
	}
	if n := len(r.Seen); n > seenLimit {
		r.Seen = r.Seen[n-seenLimit:]
		maps.DeleteFunc(r.SeenMarks, func(key, _ string) bool { return !slices.Contains(r.Seen, key) })
	}
	return r.wake(now, delay), nil
}

// closeWaits closes the waits that a message closes because it interrupts the run.
func (r *Record) closeWaits(s state.Signal) {
	if s.Mode.Interrupts() {
		r.Awaits = slices.DeleteFunc(slices.Clone(r.Awaits), state.InterruptClosesWait)
	}
}

// wake queues a run that waits or has ended.
func (r *Record) wake(now time.Time, delay time.Duration) state.Wake {
	w := state.Wake{Version: r.Version, Priority: r.Header.Priority, Tenant: r.Header.Tenant}
	if r.Status == state.Waiting || r.Status.Terminal() {
		r.queue(now, delay)
		w.Publish = true
	}
	return w
}

// RequestAbort marks the run to be ended, see state.Signals.Abort.
func (r *Record) RequestAbort(id state.RunID, abort state.Abort, now time.Time, delay time.Duration) (state.Wake, error) {
	if r.Status.Terminal() {
		return state.Wake{}, &state.TerminalError{ID: id, Status: r.Status}
	}
	if r.Abort == nil {
		r.Abort = &abort
	}
	r.AbortReach = len(r.Inbox)
	w := r.wake(now, delay)
	// A queued run may be far back in its lane: another message overtakes.
	w.Publish = w.Publish || r.Status == state.Queued
	return w, nil
}
