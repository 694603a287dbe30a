package natsstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxLogBytes is the maximum size of the logs kept in memory, in encoded bytes.
const maxLogBytes = 64 << 20

// cachedLog is a run's log, from its checkpoint on or from its beginning, up to a message of the stream.
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

// cut removes the entries before a checkpoint.
func (l *cachedLog) cut(checkpoint int64) {
	have := len(l.entries)
	if l.entries = state.FromCheckpoint(l.entries, checkpoint); len(l.entries) == have {
		return
	}
	l.entries = slices.Clone(l.entries) // the others become free
	size := int64(0)
	for i := range l.entries {
		size += l.entries[i].Weight()
	}
	l.bytes = int(size)
}

// page is the position in the stream at which a reader of a part of a log has stopped, so that the next read can
// continue there. It has no entries; the store does not cache those before it.
type page struct {
	entries int64  // the number of entries in the messages up to seq, which are the first of the log
	seq     uint64 // of the last message before the position
}

// maxPages is the maximum number of pages that a store caches. Before it adds one more, it deletes all.
const maxPages = 1000

// noteCheckpoint notes in rec, the record after the version v, where the stream has the checkpoint of the run. entries
// are the new ones. If a checkpoint is among them, CheckpointNext becomes the position of v: the run's next message
// after it has the checkpoint. Once the header of rec names another checkpoint than that of v, CheckpointNext becomes
// CheckpointAt.
func noteCheckpoint(rec *record.Record, v version, entries []state.Entry) {
	if slices.ContainsFunc(entries, func(e state.Entry) bool { return e.Type == state.EntryCheckpoint }) {
		rec.CheckpointNext = v.seq
	}
	if rec.Header.Checkpoint != v.rec.Header.Checkpoint {
		rec.CheckpointAt, rec.CheckpointNext = rec.CheckpointNext, 0
	}
}

// extend adds entries that this process has written to the cached log.
func (s *Store) extend(id state.RunID, before, seq uint64, entries []state.Entry, bytes int, checkpoint int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.logs[id]; ok && l.seq == before {
		l.entries = slices.Clip(l.entries) // others read it
		l.add(entries, seq, bytes)
		l.cut(checkpoint)
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

// logAt returns the entries of a run's log as of the version v: those with numbers above
// after, and perhaps earlier ones. If most is not 0, it may omit those above most. If `bytes`
// is not 0, it stops after messages of about that many bytes with entries above after. If the
// stream no longer has the run's messages, because the run was deleted, entries are missing.
//
// It caches the log from the checkpoint on, which claims need. When it reads earlier
// entries, it caches none, and notes where in the stream it has stopped, for the next page.
func (s *Store) logAt(ctx context.Context, id state.RunID, v version, after, most int64, bytes int) ([]state.Entry, error) {
	s.mu.Lock()
	l, p := s.logs[id], s.pages[id]
	s.mu.Unlock()
	begin := v.rec.Header.Checkpoint - 1
	keeps := after >= begin
	switch {
	case l.seq <= v.seq && len(l.entries) > 0 && l.entries[0].Seq-1 <= after: // the cached log has what is needed, or the beginning of it
	case keeps:
		l = cachedLog{seq: v.rec.CheckpointAt}
	case p.entries <= after && p.seq <= v.seq:
		l = cachedLog{seq: p.seq}
	default:
		l = cachedLog{}
	}
	l.entries = slices.Clip(l.entries) // others read it
	for read := 0; l.seq < v.seq && (most == 0 || state.LogLen(l.entries) < most) && (bytes == 0 || read < bytes); {
		m, err := s.stream.GetMsg(ctx, l.seq+1, jetstream.WithGetMsgSubject(s.runSubject(id)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read log of run %s: %w", id, err)
		}
		if m.Sequence > v.seq {
			break
		}
		ch, err := decode(id, m.Data)
		if err != nil {
			return nil, fmt.Errorf("decode log of run %s: %w", id, err)
		}
		before := l.seq
		l.add(ch.entries, m.Sequence, len(m.Data))
		if state.LogLen(l.entries) > after {
			read += len(m.Data)
		}
		if !keeps {
			p = page{ch.record.LogLen - int64(len(ch.entries)), before} // the next page may begin within this message
			l.entries = state.After(l.entries, after)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.index[id]; !keeps && known {
		if len(s.pages) >= maxPages {
			clear(s.pages)
		}
		s.pages[id] = p
	}
	if keeps && s.logs[id].seq < l.seq {
		l.cut(v.rec.Header.Checkpoint)
		s.hold(id, l)
	}
	return l.entries, nil
}
