package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// absent returns the reason why a run has no header: marker is the value that a deletion left.
func absent(marker string) error {
	if marker != "" {
		return state.ErrDeleted
	}
	return state.ErrNotFound
}

// Seal implements state.Deletions.
func (s *Store) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	r, err := sealScript.batched(ctx, s, []string{s.keys.run(id).header, s.keys.tree(id)}, token)
	if err != nil {
		return nil, fmt.Errorf("seal run %s: %w", id, err)
	}
	if r.str(sealWord) != "ok" {
		return nil, deletable(r, id)
	}
	list, err := r.list(sealAdmitted)
	if err != nil {
		return nil, fmt.Errorf("seal run %s: %w", id, err)
	}
	admitted := make([]state.RunID, len(list))
	for i, below := range list {
		admitted[i] = state.RunID(below)
	}
	return admitted, nil
}

// deletable converts the reply of a deletion script into an error.
func deletable[P ~int](r reply[P], id state.RunID) error {
	if closed := reply[closedPlace](r); closed.str(closedWord) == "live" {
		return &state.NotEndedError{ID: id, Status: state.Status(closed.str(closedStatus))}
	}
	return verdict(r, id, 0)
}

// Unseal implements state.Deletions.
func (s *Store) Unseal(ctx context.Context, id state.RunID, token string) error {
	r, err := unsealScript.batched(ctx, s, []string{s.keys.run(id).header}, token)
	if err != nil {
		return fmt.Errorf("unseal run %s: %w", id, err)
	}
	return verdict(r, id, 0)
}

// Delete implements state.Deletions. If the run has an idempotency key or a batch, whose data is on other slots,
// Delete first seals the run, so that it cannot continue in between. Then it frees the key, notes the run in the record
// of its batch, and deletes it. After a crash in between, the run is still there, sealed, and another Delete completes
// this.
func (s *Store) Delete(ctx context.Context, id state.RunID) error {
	k := s.keys.run(id)
	r, err := fields[storedPlace](ctx, s, k.header, storedFields)
	if err != nil {
		return fmt.Errorf("delete run %s: %w", id, err)
	}
	st, err := read(id, r)
	if err != nil {
		return err
	}
	key := r.str(storedKey)
	if r.str(storedSealed) == "" && (key != "" || st.Batch != nil) {
		if _, err := s.Seal(ctx, id, "delete"); err != nil {
			return err
		}
	}
	if key != "" {
		if err := s.freeKey(ctx, s.keys.idempotency(key), id); err != nil {
			return err
		}
	}
	if err := s.noteBatch(ctx, st); err != nil {
		return err
	}
	done, err := deleteScript.batched(ctx, s, []string{k.header, k.log, k.journal, k.inbox, k.seen, k.due, k.count, s.keys.tree(id), k.lists},
		string(id), listNames(&st, nil), state.MarkerLifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("delete run %s: %w", id, err)
	}
	return deletable(done, id)
}

// freeKey deletes an idempotency key unless another run owns it by now.
func (s *Store) freeKey(ctx context.Context, key string, id state.RunID) error {
	if _, err := freeKeyScript.batched(ctx, s, []string{key}, string(id)); err != nil {
		return fmt.Errorf("delete idempotency key of run %s: %w", id, err)
	}
	return nil
}

// batchFieldOrigin is the field of a batch's record that has its origin; the others are indexes.
const batchFieldOrigin = "origin"

// noteBatch records that a run of a batch is deleted.
func (s *Store) noteBatch(ctx context.Context, st state.State) error {
	first, origin, ok := st.BatchOrigin()
	if !ok {
		return nil
	}
	data, err := json.Marshal(origin)
	if err != nil {
		return err
	}
	_, err = batchScript.batched(ctx, s, []string{s.keys.deletedBatch(first)}, data, st.Batch.Index, string(st.Status), origin.Size, state.DeletedBatchLifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("record that run %s of a batch is deleted: %w", st.ID, err)
	}
	return nil
}

// PreventCreation implements state.Deletions.
func (s *Store) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	if _, err := preventScript.batched(ctx, s, []string{s.keys.run(id).header}, tenant, state.MarkerLifetime.Milliseconds()); err != nil {
		return fmt.Errorf("prevent the creation of run %s: %w", id, err)
	}
	return nil
}

// DeletedOfBatch implements state.Deletions.
func (s *Store) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	all, err := s.rdb.HGetAll(ctx, s.keys.deletedBatch(first)).Result()
	if err != nil {
		return state.DeletedBatch{}, fmt.Errorf("read deleted runs of the batch that begins with run %s: %w", first, err)
	}
	if len(all) == 0 {
		return state.DeletedBatch{}, fmt.Errorf("deleted runs of the batch that begins with run %s: %w", first, state.ErrNotFound)
	}
	b := state.DeletedBatch{Deleted: make(map[int]state.Status, len(all)-1)}
	for field, value := range all {
		if field == batchFieldOrigin {
			err = json.Unmarshal([]byte(value), &b.BatchOrigin)
		} else {
			var index int
			index, err = strconv.Atoi(field)
			b.Deleted[index] = state.Status(value)
		}
		if err != nil {
			return state.DeletedBatch{}, fmt.Errorf("decode deleted runs of the batch that begins with run %s: %w", first, err)
		}
	}
	return b, nil
}
