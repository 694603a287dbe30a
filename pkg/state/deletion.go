package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MarkerLifetime is how long a store remembers the id of a deleted run. A turn message of
// the run that is as old and finds no run is dropped.
const MarkerLifetime = 24 * time.Hour

// DeletedBatchLifetime is how long a store keeps the record of a batch after it deleted the
// last run of it.
const DeletedBatchLifetime = 7 * 24 * time.Hour

var (
	// ErrDeleted reports a run that was deleted, or whose creation a deletion has prevented.
	// It is an ErrNotFound.
	ErrDeleted = fmt.Errorf("deleted: %w", ErrNotFound)

	// ErrDeleting reports a message to a run whose deletion has begun. The deletion may still
	// be refused.
	ErrDeleting = errors.New("the run is being deleted")
)

// Deletions removes runs. internal/retention is the only caller: it seals all runs of a tree, and
// deletes them only if it could seal all of them.
type Deletions interface {
	// Seal begins the deletion of a run that has ended: until Unseal the run takes no message,
	// so it cannot continue. It returns the runs that Admit has counted below the run. Another
	// token takes the place of the one before. The error is a *NotEndedError if the run is in
	// flight, ErrDeleted or ErrNotFound.
	Seal(ctx context.Context, id RunID, token string) (admitted []RunID, err error)

	// Unseal undoes the Seal with this token. It does nothing if another token has
	// sealed the run since, or if the run does not exist.
	Unseal(ctx context.Context, id RunID, token string) error

	// Delete removes a run that has ended with everything that the store keeps of it: its log,
	// inbox and journal, the ids of its signals, its place in lists and counts, and its
	// idempotency key unless another run owns that by now. It leaves a marker with the id and
	// the tenant for MarkerLifetime, and notes the status of a run of a batch, see
	// DeletedOfBatch. The error is a *NotEndedError, and nothing is changed, if the run is in
	// flight; ErrDeleted or ErrNotFound if it does not exist. The caller must delete its
	// descendants first.
	Delete(ctx context.Context, id RunID) error

	// PreventCreation leaves the marker of a deleted run in the place of a run that does not
	// exist, so that Create refuses it. It does nothing if there is a run or a marker.
	PreventCreation(ctx context.Context, tenant string, id RunID) error

	// DeletedOfBatch returns what is kept of the deleted runs of the batch that begins with a
	// run, or ErrNotFound if none was deleted.
	DeletedOfBatch(ctx context.Context, first RunID) (DeletedBatch, error)
}

// DeletedBatch is what is kept of the deleted runs of a batch.
type DeletedBatch struct {
	BatchOrigin

	// Deleted has the status in which a run ended, by its index in the batch.
	Deleted map[int]Status `json:"deleted"`
}

// BatchOrigin is what all runs of a batch have in common.
type BatchOrigin struct {
	Tenant       string `json:"tenant"`
	Size         int    `json:"size"`
	MaxParallel  int    `json:"max_parallel"`
	CountWaiting bool   `json:"count_waiting,omitempty"`
	CreatedAt    Time   `json:"created_at"`
}

// BatchOrigin returns what s has in common with the other runs of its batch, and the first of
// these. It is not ok if s is not of a batch.
func (s State) BatchOrigin() (first RunID, origin BatchOrigin, ok bool) {
	if s.Batch == nil {
		return "", origin, false
	}
	b := s.Batch
	return s.ID.Plus(-b.Index), BatchOrigin{s.Tenant, b.Size, b.MaxParallel, b.CountWaiting, s.CreatedAt}, true
}
