package natsstore

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A stream may go back in time while processes run: its server was restored from a copy, or has
// lost messages that it had acknowledged. Then the index has records that no longer exist, and the
// feed waits for numbers that the stream has not reached yet. A process that detects this reads the
// index again.

// mark identifies the last message of the feed. If the stream has another message under that
// number, or none yet, it is not the one that the index was read from.
type mark struct {
	seq uint64
	at  time.Time
}

// suspect makes followStream check the stream soon.
func (s *Store) suspect() {
	select {
	case s.suspected <- struct{}{}:
	default:
	}
}

// suspectPause is the minimum time between two requested checks.
const suspectPause = time.Second

// followStream asks the server for its time, and checks whether the stream is still the same: at an
// interval, after each reconnection, and when suspect is called. It ends with ctx.
func (s *Store) followStream(ctx context.Context) {
	connected := s.nc.StatusChanged(nats.CONNECTED)
	defer s.nc.RemoveStatusListener(connected)
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-connected:
		case <-s.suspected:
		case <-ctx.Done():
			return
		}
		if back, err := s.wentBack(ctx); err == nil && back {
			s.readAnew(ctx)
		}
		if !pause(ctx, suspectPause) {
			return
		}
	}
}

// proof is what wentBack has last seen of a stream that has not gone back: its last message, and that of the feed.
// As long as both stay the same, wentBack does not read the message: the server would load a block of the stream.
type proof struct {
	end, feed mark
}

// wentBack asks the server for its time, and reports whether the stream is another, or an older
// one, than the index was read from.
func (s *Store) wentBack(ctx context.Context) (bool, error) {
	s.mu.Lock()
	last, newest := s.last, s.newest
	s.mu.Unlock()
	info, err := s.readClock(ctx) // without an answer the last one stays valid
	if err != nil {
		return false, err
	}
	if !info.Created.Equal(s.created) || info.State.LastSeq < max(last.seq, newest) {
		return true, nil
	}
	if last.seq == 0 {
		return false, nil
	}
	now := proof{mark{info.State.LastSeq, info.State.LastTime}, last}
	if now == s.proof {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m, err := s.stream.GetMsg(ctx, last.seq)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) { // a message is missing once its run was deleted
		return false, err
	}
	if err == nil && !m.Time.Equal(last.at) {
		return true, nil
	}
	s.proof = now
	return false, nil
}

const (
	notRead     = "stream of runs not read, this process retries"
	hintNotRead = "run `turnpike doctor`: NATS may be unreachable or refuse the operation"
)

// readAnew drops the index and reads it from the stream, retrying until it succeeds or ctx ends.
func (s *Store) readAnew(ctx context.Context) {
	s.cfg.Logger.Warn("the stream of runs was reset to an older state, this process reads it again; changes since then are lost", "hint", "check whether the stream was restored from a backup, or a NATS server lost its disk")
	s.feed.Stop()
	<-s.feed.Closed()
	for {
		s.mu.Lock()
		s.index, s.active, s.lists, s.schedule, s.timers = map[state.RunID]version{}, record.ActiveRuns{}, lists{}, newSchedule(), newTimers()
		s.logs, s.logBytes, s.last, s.newest = map[state.RunID]cachedLog{}, 0, mark{}, 0
		s.pages = map[state.RunID]page{}
		s.mu.Unlock()
		once, cancel := context.WithTimeout(ctx, time.Minute)
		info, err := s.stream.Info(once)
		if err == nil {
			s.created = info.Created
			err = s.follow(once)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
		s.cfg.Logger.Warn(notRead, "error", err, "hint", hintNotRead)
		if !pause(ctx, suspectPause) {
			return
		}
	}
}

// compare requests a check of the stream if the leader has an older record of a run than the index
// had before the request to the leader. It also drops the cached log, which may have diverged.
func (s *Store) compare(id state.RunID, had uint64, v version) {
	if v.seq >= had {
		return
	}
	s.mu.Lock()
	s.logBytes -= s.logs[id].bytes
	delete(s.logs, id)
	delete(s.pages, id)
	s.mu.Unlock()
	s.suspect()
}
