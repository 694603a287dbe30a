package memstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// marker replaces a deleted run.
type marker struct {
	tenant string
	until  time.Time
}

// deletedBatch is the record of a batch; until is zero while the store has a run of it.
type deletedBatch struct {
	state.DeletedBatch

	until time.Time
}

// absent returns the reason why a run does not exist; the caller holds s.mu.
func (s *Store) absent(id state.RunID) error {
	if m, ok := s.markers[id]; ok && s.now().Before(m.until) {
		return state.ErrDeleted
	}
	return state.ErrNotFound
}

// leastMarkers is the number of markers below which the store does not look for old ones.
const leastMarkers = 1024

// mark leaves a marker, and drops old ones whenever their number has doubled; the caller holds
// s.mu.
func (s *Store) mark(tenant string, id state.RunID) {
	now := s.now()
	if len(s.markers) >= s.maxMarkers {
		maps.DeleteFunc(s.markers, func(_ state.RunID, m marker) bool { return !now.Before(m.until) })
		maps.DeleteFunc(s.batches, func(_ state.RunID, b deletedBatch) bool { return !b.until.IsZero() && !now.Before(b.until) })
		s.maxMarkers = max(leastMarkers, 2*len(s.markers))
	}
	s.markers[id] = marker{tenant, now.Add(state.MarkerLifetime)}
}

// Seal implements state.Deletions.
func (s *Store) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	_, err := s.update(ctx, id, func(rec *record.Record, _ time.Time) ([]state.Entry, error) { return nil, rec.Seal(id, token) })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, r, err := s.get(id)
	if err != nil {
		return nil, err
	}
	return slices.Clone(r.tree), nil
}

// Unseal implements state.Deletions.
func (s *Store) Unseal(ctx context.Context, id state.RunID, token string) error {
	_, err := s.update(ctx, id, func(rec *record.Record, _ time.Time) ([]state.Entry, error) {
		rec.Unseal(token)
		return nil, nil
	})
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	return err
}

// Delete implements state.Deletions.
func (s *Store) Delete(_ context.Context, id state.RunID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, _, err := s.get(id)
	if err != nil {
		return err
	}
	if !rec.Status.Terminal() {
		return &state.NotEndedError{ID: id, Status: rec.Status}
	}
	s.active.Move(rec, record.Record{})
	delete(s.runs, id)
	maps.DeleteFunc(s.keys, func(_ string, k key) bool { return k.run == id })
	s.mark(rec.Header.Tenant, id)
	s.noteBatch(rec.Read())
	return nil
}

// noteBatch records that a run of a batch was deleted; the caller holds s.mu.
func (s *Store) noteBatch(st state.State) {
	first, origin, ok := st.BatchOrigin()
	if !ok {
		return
	}
	b := s.batches[first]
	b.BatchOrigin = origin
	b.Deleted = maps.Clone(b.Deleted) // callers read it
	if b.Deleted == nil {
		b.Deleted = map[int]state.Status{}
	}
	if b.Deleted[st.Batch.Index] = st.Status; len(b.Deleted) == origin.Size {
		b.until = s.now().Add(state.DeletedBatchLifetime)
	}
	s.batches[first] = b
}

// PreventCreation implements state.Deletions.
func (s *Store) PreventCreation(_ context.Context, tenant string, id state.RunID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[id] == nil && !errors.Is(s.absent(id), state.ErrDeleted) {
		s.mark(tenant, id)
	}
	return nil
}

// DeletedOfBatch implements state.Deletions.
func (s *Store) DeletedOfBatch(_ context.Context, first state.RunID) (state.DeletedBatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.batches[first]
	if !ok || !b.until.IsZero() && !s.now().Before(b.until) {
		return state.DeletedBatch{}, fmt.Errorf("deleted runs of the batch that begins with run %s: %w", first, state.ErrNotFound)
	}
	return b.DeletedBatch, nil
}
