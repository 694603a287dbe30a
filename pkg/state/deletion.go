package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MarkerLifetime is the time that a store keeps the id of a deleted run. If a worker finds no run for a
// turn message, it drops the message if the message is older than this, and otherwise records the run as lost.
const MarkerLifetime = 24 * time.Hour

// DeletedBatchLifetime is the time that a store keeps the record of a batch after it deleted
// the batch's last run.
const DeletedBatchLifetime = 7 * 24 * time.Hour

var (
	// ErrDeleted reports a run that was deleted, or whose creation a deletion has prevented.
	// It is an ErrNotFound.
	ErrDeleted = fmt.Errorf("deleted: %w", ErrNotFound)

	// ErrDeleting reports a message to a run whose deletion has begun. The deletion may still
	// be refused.
	ErrDeleting = errors.New("the run is being deleted, so it accepts no message now")
)

// Deletions deletes runs. Its caller seals all runs of a tree, and deletes them only if it could
// seal all of them.
type Deletions interface {
	// Seal begins the deletion of a run that has ended: until Unseal with the token of its latest Seal, the run
	// accepts no new signal, so it cannot continue. Seal returns the runs that Admit has counted below the run, in
	// any order. If the run has not ended, Seal changes nothing and returns a *NotEndedError. Seal may be repeated.
	Seal(ctx context.Context, id RunID, token string) (admitted []RunID, err error)

	// Unseal undoes the Seal with this token. It does nothing if another token has
	// sealed the run since, or if the run does not exist, and then returns nil.
	Unseal(ctx context.Context, id RunID, token string) error

	// Delete deletes a run that has ended, sealed or not, with its log, inbox and journal, the ids of its signals,
	// the list of the runs that Admit has counted below it, its place in lists and counts, and its idempotency key
	// unless another run owns that by now. The sums of Figures stay. Delete leaves a marker under the id for
	// MarkerLifetime, and records the status of a run of a batch, see DeletedOfBatch. The error is a *NotEndedError,
	// and Delete changes nothing, if the run has not ended; ErrDeleted or ErrNotFound if it does not exist. A
	// repetition first removes what a failure of an earlier call may have left, and then returns ErrDeleted, or
	// ErrNotFound once the marker has expired. The caller must delete the run's descendants first: Delete does not
	// check that.
	Delete(ctx context.Context, id RunID) error

	// PreventCreation stores the marker of a deleted run under the id of a run that
	// does not exist, so that Create returns ErrDeleted for that id for MarkerLifetime.
	// It does nothing if the run or a marker exists, and then returns nil.
	PreventCreation(ctx context.Context, tenant string, id RunID) error

	// DeletedOfBatch returns the record of the deleted runs of the batch whose first run is first, or ErrNotFound
	// if none was deleted or the record has expired. The record lasts until DeletedBatchLifetime after the last run
	// of the batch was deleted.
	DeletedOfBatch(ctx context.Context, first RunID) (DeletedBatch, error)
}

// DeletedBatch is the record of the deleted runs of a batch.
type DeletedBatch struct {
	BatchOrigin

	// Deleted maps the index of a run in the batch to the status in which it ended.
	Deleted map[int]Status `json:"deleted"`
}

// BatchOrigin is the data that all runs of a batch share.
type BatchOrigin struct {
	Tenant       string `json:"tenant"`
	Size         int    `json:"size"`
	MaxParallel  int    `json:"max_parallel"`
	CountWaiting bool   `json:"count_waiting,omitempty"`
	CreatedAt    Time   `json:"created_at"`
}

// BatchOrigin returns the first run of the batch of s and the data that all its runs share. ok is
// false if s has no batch.
func (s *State) BatchOrigin() (first RunID, origin BatchOrigin, ok bool) {
	if s.Batch == nil {
		return "", origin, false
	}
	b := s.Batch
	return s.ID.Plus(-b.Index), BatchOrigin{s.Tenant, b.Size, b.MaxParallel, b.CountWaiting, s.CreatedAt}, true
}
