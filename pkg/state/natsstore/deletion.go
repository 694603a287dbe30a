package natsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// deletedFormat is the format of the message that marks a run as deleted. No build will ever write
// it for another purpose.
const deletedFormat = 1 << 20

// batchLocks is the number of records of deleted batches that one process writes concurrently.
const batchLocks = 64

// Seal implements state.Deletions. Admit refuses runs below a run that has ended. An Admit that read the run before
// its end may still add runs after Seal has read the list.
func (s *Store) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	err := s.update(ctx, id, func(rec *record.Record, _ time.Time) ([]state.Entry, error) {
		if rec.Sealed == token && rec.Status.Terminal() {
			return nil, errUnchanged
		}
		return nil, rec.Seal(id, token)
	})
	if err != nil {
		return nil, err
	}
	admitted, _, err := s.tree(ctx, s.treeSubject(id))
	if err != nil {
		return nil, fmt.Errorf("read descendants of run %s: %w", id, err)
	}
	return admitted, nil
}

// Unseal implements state.Deletions.
func (s *Store) Unseal(ctx context.Context, id state.RunID, token string) error {
	err := s.update(ctx, id, func(rec *record.Record, _ time.Time) ([]state.Entry, error) {
		if !rec.Unseal(token) {
			return nil, errUnchanged
		}
		return nil, nil
	})
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	return err
}

// marker returns the message that replaces a deleted run.
func marker() ([]byte, error) {
	return change{record: record.Record{Header: state.State{Format: deletedFormat}}}.encode()
}

// Delete implements state.Deletions. If the run has an idempotency key or a batch, Delete first seals the run,
// frees the key, and notes the run in the record of its batch: after a crash in between, the next caller finds the
// run and completes the deletion. Then the last message of the run marks it as deleted, so that every index drops
// it, and Delete purges the earlier messages and the list of descendants; the marker expires by its age. After a
// crash before the purge, a repetition purges them: otherwise the run would be back when the marker expires.
func (s *Store) Delete(ctx context.Context, id state.RunID) error {
	for range maxConflicts {
		v, _, err := s.read(ctx, id)
		if errors.Is(err, state.ErrDeleted) {
			return cmp.Or(s.purge(ctx, id, math.MaxUint64), err)
		}
		if err != nil {
			return err
		}
		st := v.rec.Read()
		if !st.Status.Terminal() {
			return &state.NotEndedError{ID: id, Status: st.Status}
		}
		if v.rec.Sealed == "" && (v.rec.Key != "" || st.Batch != nil) {
			if _, err := s.Seal(ctx, id, "delete"); err != nil {
				return err
			}
			continue
		}
		if v.rec.Key != "" {
			if err := s.freeKey(ctx, s.keySubject(v.rec.Key), id); err != nil {
				return err
			}
		}
		if err := s.noteBatch(ctx, st); err != nil {
			return err
		}
		gone, err := marker()
		if err != nil {
			return err
		}
		_, err = s.js.Publish(ctx, s.runSubject(id), gone, jetstream.WithExpectLastSequencePerSubject(v.seq), jetstream.WithMsgTTL(state.MarkerLifetime))
		if conflict(err) {
			continue // another process has written to the run
		}
		if err != nil {
			return fmt.Errorf("delete run %s: %w", id, err)
		}
		s.forget(id)
		return s.purge(ctx, id, v.seq)
	}
	return fmt.Errorf("delete run %s: other processes changed it %d times in a row: retry", id, maxConflicts)
}

// purge removes the messages of a deleted run, except its marker, and the list of its descendants, after a fold of the
// figures in these messages. last is the sequence of the message before the marker, or a higher one if the caller does
// not know it.
func (s *Store) purge(ctx context.Context, id state.RunID, last uint64) error {
	// The figures of the run's ends are in its messages until they are folded.
	if err := s.foldThrough(ctx, last); err != nil {
		return err
	}
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.runSubject(id)), jetstream.WithPurgeKeep(1)); err != nil {
		return fmt.Errorf("delete run %s from the stream: %w", id, err)
	}
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.treeSubject(id))); err != nil {
		return fmt.Errorf("delete the list of descendants of run %s: %w", id, err)
	}
	return nil
}

// freeKey deletes an idempotency key unless another run owns it by now.
func (s *Store) freeKey(ctx context.Context, subject string, id state.RunID) error {
	m, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err == nil && strings.HasPrefix(string(m.Data), string(id)+" ") {
		err = s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(m.Sequence+1))
	}
	if err != nil {
		return fmt.Errorf("delete idempotency key of run %s: %w", id, err)
	}
	return nil
}

func (s *Store) deletedBatchSubject(first state.RunID) string {
	return s.cfg.Prefix + ".state.batch." + string(first)
}

func (s *Store) deletedBatch(ctx context.Context, first state.RunID) (b state.DeletedBatch, seq uint64, err error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, s.deletedBatchSubject(first))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = state.ErrNotFound
	}
	if err == nil {
		seq, err = m.Sequence, json.Unmarshal(m.Data, &b)
	}
	if err != nil {
		err = fmt.Errorf("read deleted runs of the batch that begins with run %s: %w", first, err)
	}
	return b, seq, err
}

// noteBatch records that a run of a batch is deleted. The record stays while the store has a run of
// the batch.
func (s *Store) noteBatch(ctx context.Context, st state.State) error {
	first, origin, ok := st.BatchOrigin()
	if !ok {
		return nil
	}
	lock := &s.batchLocks[first.Shard()%batchLocks]
	lock.Lock()
	defer lock.Unlock()
	for range maxConflicts {
		b, seq, err := s.deletedBatch(ctx, first)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		if _, noted := b.Deleted[st.Batch.Index]; noted {
			return nil
		}
		if b.BatchOrigin = origin; b.Deleted == nil {
			b.Deleted = map[int]state.Status{}
		}
		b.Deleted[st.Batch.Index] = st.Status
		data, err := json.Marshal(b)
		if err != nil {
			return err
		}
		opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(seq)}
		if len(b.Deleted) == origin.Size {
			opts = append(opts, jetstream.WithMsgTTL(state.DeletedBatchLifetime))
		}
		ack, err := s.js.Publish(ctx, s.deletedBatchSubject(first), data, opts...)
		if conflict(err) {
			continue
		}
		if err == nil {
			err = s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.deletedBatchSubject(first)), jetstream.WithPurgeSequence(ack.Sequence))
		}
		if err != nil {
			return fmt.Errorf("record that run %s of a batch is deleted: %w", st.ID, err)
		}
		return nil
	}
	return fmt.Errorf("record that run %s of a batch is deleted: other processes changed the record %d times in a row: retry", st.ID, maxConflicts)
}

// PreventCreation implements state.Deletions.
func (s *Store) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	gone, err := marker()
	if err != nil {
		return err
	}
	_, err = s.js.Publish(ctx, s.runSubject(id), gone, jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithMsgTTL(state.MarkerLifetime))
	if err != nil && !conflict(err) {
		return fmt.Errorf("prevent the creation of run %s: %w", id, err)
	}
	return nil
}

// DeletedOfBatch implements state.Deletions.
func (s *Store) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	b, _, err := s.deletedBatch(ctx, first)
	return b, err
}
