package natsstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxHeld is how much of logs is kept in memory, in bytes as encoded.
const maxHeld = 64 << 20

// cachedLog is a run's log up to a message of the stream.
type cachedLog struct {
	entries []state.Entry
	seq     uint64
	bytes   int
}

// extend adds what this process has written to the log that it holds.
func (s *Store) extend(id state.RunID, before, seq uint64, entries []state.Entry, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(entries) == 0 {
		bytes = 0 // the record alone, which is not kept here
	}
	if l, ok := s.logs[id]; ok && l.seq == before {
		s.hold(id, cachedLog{append(l.entries[:len(l.entries):len(l.entries)], entries...), seq, l.bytes + bytes})
	}
}

// hold keeps a log, and lets go of others, whichever, if it is too much; s.mu is held.
func (s *Store) hold(id state.RunID, l cachedLog) {
	s.held += l.bytes - s.logs[id].bytes
	s.logs[id] = l
	for other, old := range s.logs {
		if s.held <= maxHeld {
			return
		}
		if other != id {
			s.held -= old.bytes
			delete(s.logs, other)
		}
	}
}

// logAt returns a run's log as of a message of the stream, reading what is new.
func (s *Store) logAt(ctx context.Context, id state.RunID, seq uint64) ([]state.Entry, error) {
	s.mu.Lock()
	l := s.logs[id]
	s.mu.Unlock()
	if l.seq > seq {
		l = cachedLog{} // a rare reader of the past
	}
	entries, bytes := l.entries[:len(l.entries):len(l.entries)], l.bytes
	for at := l.seq + 1; at <= seq; {
		m, err := s.stream.GetMsg(ctx, at, jetstream.WithGetMsgSubject(s.runSubject(id)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read log of run %s: %w", id, err)
		}
		if m.Sequence > seq {
			break
		}
		ch, err := decode(m.Data)
		if err != nil {
			return nil, fmt.Errorf("decode log of run %s: %w", id, err)
		}
		entries = append(entries, ch.Entries...)
		if len(ch.Entries) > 0 {
			bytes += len(m.Data)
		}
		at = m.Sequence + 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs[id].seq < seq {
		s.hold(id, cachedLog{entries, seq, bytes})
	}
	return entries, nil
}
