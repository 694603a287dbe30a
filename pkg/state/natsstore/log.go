package natsstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxLogBytes is the maximum size of the logs kept in memory, in encoded bytes.
const maxLogBytes = 64 << 20

// cachedLog is a run's log up to a message of the stream.
type cachedLog struct {
	entries []state.Entry
	seq     uint64
	bytes   int // of the messages that contained the entries
}

// add appends the entries of a message to the log. A message without entries has only the record,
// which is not kept here.
func (l *cachedLog) add(entries []state.Entry, seq uint64, bytes int) {
	l.seq = seq
	if len(entries) > 0 {
		l.entries = append(l.entries, entries...)
		l.bytes += bytes
	}
}

// extend adds entries that this process has written to the cached log.
func (s *Store) extend(id state.RunID, before, seq uint64, entries []state.Entry, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.logs[id]; ok && l.seq == before {
		l.entries = slices.Clip(l.entries) // others read it
		l.add(entries, seq, bytes)
		s.hold(id, l)
	}
}

// hold caches the log of a run in the index, and evicts arbitrary others if the cache is too large; the caller holds
// s.mu.
func (s *Store) hold(id state.RunID, l cachedLog) {
	if _, known := s.index[id]; !known {
		return // deleted since the caller has read it
	}
	s.logBytes += l.bytes - s.logs[id].bytes
	s.logs[id] = l
	for other, old := range s.logs {
		if s.logBytes <= s.maxBytes {
			return
		}
		if other != id {
			s.logBytes -= old.bytes
			delete(s.logs, other)
		}
	}
}

// logAt returns a run's log as of a message of the stream, reading what is new: up to most entries
// and perhaps some more, or all if most is 0.
func (s *Store) logAt(ctx context.Context, id state.RunID, seq uint64, most int64) ([]state.Entry, error) {
	s.mu.Lock()
	l := s.logs[id]
	s.mu.Unlock()
	if l.seq > seq {
		l = cachedLog{} // a rare reader of the past
	}
	l.entries = slices.Clip(l.entries) // others read it
	for l.seq < seq && (most == 0 || int64(len(l.entries)) < most) {
		m, err := s.stream.GetMsg(ctx, l.seq+1, jetstream.WithGetMsgSubject(s.runSubject(id)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read log of run %s: %w", id, err)
		}
		if m.Sequence > seq {
			break
		}
		ch, err := decode(id, m.Data)
		if err != nil {
			return nil, fmt.Errorf("decode log of run %s: %w", id, err)
		}
		l.add(ch.entries, m.Sequence, len(m.Data))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs[id].seq < l.seq {
		s.hold(id, l)
	}
	return l.entries, nil
}
