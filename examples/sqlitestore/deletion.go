package sqlitestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Seal implements state.Deletions.
func (s *Store) Seal(ctx context.Context, id state.RunID, token string) (admitted []state.RunID, err error) {
	err = s.update(ctx, func(t *tx) error {
		err := t.change(id, func(r *run) error {
			if !r.status.Terminal() {
				return &state.NotEndedError{ID: id, Status: r.status}
			}
			r.turn.Sealed = token
			return nil
		})
		if err != nil {
			return err
		}
		admitted, err = all[state.RunID](t, `SELECT run FROM trees WHERE root = ?`, id)
		return err
	})
	return admitted, err
}

// Unseal implements state.Deletions.
func (s *Store) Unseal(ctx context.Context, id state.RunID, token string) error {
	err := s.update(ctx, func(t *tx) error {
		return t.change(id, func(r *run) error {
			if r.turn.Sealed == token {
				r.turn.Sealed = ""
			}
			return nil
		})
	})
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	return err
}

// Delete implements state.Deletions.
func (s *Store) Delete(ctx context.Context, id state.RunID) error {
	return s.update(ctx, func(t *tx) error {
		r, err := t.load(id)
		if err != nil {
			return err
		}
		if !r.status.Terminal() {
			return &state.NotEndedError{ID: id, Status: r.status}
		}
		for _, query := range []string{
			`DELETE FROM runs WHERE id = ?`, `DELETE FROM entries WHERE run = ?`, `DELETE FROM results WHERE run = ?`, `DELETE FROM inbox WHERE run = ?`,
			`DELETE FROM seen WHERE run = ?`, `DELETE FROM keys WHERE run = ?`, `DELETE FROM trees WHERE root = ?`, `DELETE FROM metadata WHERE run = ?`,
		} {
			if err := t.exec(query, id); err != nil {
				return err
			}
		}
		if err := t.mark(r.header.Tenant, id); err != nil {
			return err
		}
		return t.markInBatch(r.read())
	})
}

// mark stores the marker of a deleted run, and deletes markers and batches whose time has passed.
func (t *tx) mark(tenant string, id state.RunID) error {
	if err := t.exec(`DELETE FROM deleted WHERE until <= ?`, millis(t.now)); err != nil {
		return err
	}
	if err := t.exec(`DELETE FROM batches WHERE until <= ?`, millis(t.now)); err != nil {
		return err
	}
	return t.exec(`INSERT OR REPLACE INTO deleted VALUES (?, ?, ?)`, id, tenant, millis(t.now.Add(state.MarkerLifetime)))
}

// markInBatch records the status in which a run of a batch has ended.
func (t *tx) markInBatch(s state.State) error {
	first, origin, ok := s.BatchOrigin()
	if !ok {
		return nil
	}
	batch, _, err := t.batch(first)
	if err != nil {
		return err
	}
	batch.BatchOrigin = origin
	if batch.Deleted == nil {
		batch.Deleted = map[int]state.Status{}
	}
	batch.Deleted[s.Batch.Index] = s.Status
	data, err := json.Marshal(batch)
	if err != nil {
		return err
	}
	var until any
	if len(batch.Deleted) == origin.Size {
		until = millis(t.now.Add(state.DeletedBatchLifetime))
	}
	return t.exec(`INSERT OR REPLACE INTO batches VALUES (?, ?, ?)`, first, data, until)
}

func (t *tx) batch(first state.RunID) (batch state.DeletedBatch, found bool, err error) {
	var data []byte
	found, err = t.get(`SELECT data FROM batches WHERE first = ? AND (until IS NULL OR until > ?)`, []any{first, millis(t.now)}, &data)
	if err == nil && found {
		err = json.Unmarshal(data, &batch)
	}
	return batch, found, err
}

// PreventCreation implements state.Deletions.
func (s *Store) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	return s.update(ctx, func(t *tx) error {
		var n int
		if found, err := t.get(`SELECT 1 FROM runs WHERE id = ?`, []any{id}, &n); err != nil || found {
			return err
		}
		if err := t.absent(id); !errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrDeleted) {
			if errors.Is(err, state.ErrDeleted) {
				return nil
			}
			return err
		}
		return t.mark(tenant, id)
	})
}

// DeletedOfBatch implements state.Deletions.
func (s *Store) DeletedOfBatch(ctx context.Context, first state.RunID) (batch state.DeletedBatch, err error) {
	err = s.update(ctx, func(t *tx) error {
		b, found, err := t.batch(first)
		if err == nil && !found {
			err = fmt.Errorf("deleted runs of the batch of %s: %w", first, state.ErrNotFound)
		}
		batch = b
		return err
	})
	return batch, err
}
