package natsbus

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// drains maps the number of a stream to the time at which this process first saw it closed and
// empty.
type drains map[int]time.Time

// drainedFor is the time that a closed stream must be empty. Messages in flight when it was
// closed have arrived by then.
const drainedFor = time.Second

// drain deletes the drained streams. It closes each one first: a process with an old layout gets no
// answer from it and publishes elsewhere, so no more messages can arrive.
func (ts *turnStreams) drain(ctx context.Context, seen drains) {
	for _, number := range ts.layout.Load().Draining {
		name := ts.turnStream(number)
		gone, err := ts.drainOne(ctx, number, seen)
		if err == nil && gone {
			l := ts.layout.Load()
			if err = notMoved(ts.writeLayout(ctx, l.without(number), l.revision)); err == nil {
				_, err = ts.learn(ctx)
			}
		}
		if err != nil {
			ts.log.Debug("stream not drained", "error", err, "stream", name) // somebody looks again
			continue
		}
		if gone {
			delete(seen, number)
			ts.tell()
			ts.log.Info("stream of turns is empty and is deleted", "stream", name)
		}
	}
}

// drainOne closes a stream, deletes it, or waits. It reports whether the stream is gone.
func (ts *turnStreams) drainOne(ctx context.Context, number int, seen drains) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	s, err := ts.js.Stream(ctx, ts.turnStream(number))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	info := s.CachedInfo()
	closed := []string{ts.closedSubject(number)}
	if !slices.Equal(info.Config.Subjects, closed) {
		cfg := info.Config
		cfg.Subjects = closed
		_, err := ts.js.UpdateStream(ctx, cfg)
		return false, err
	}
	if info.State.Msgs > 0 {
		delete(seen, number)
		return false, nil
	}
	if seen[number].IsZero() {
		seen[number] = time.Now()
	}
	if time.Since(seen[number]) < drainedFor {
		return false, nil
	}
	err = ts.js.DeleteStream(ctx, ts.turnStream(number))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil
	}
	return err == nil, err
}
