package state

import (
	"errors"
	"strings"
)

// MaxBatch is the maximum number of runs in a batch.
const MaxBatch = 1000

// BatchPrefix starts the id of every batch; the ULID of its first run follows.
const BatchPrefix = "batch_"

// BatchDetail is the detail of waiting_schedule for a run that is pending in its batch.
const BatchDetail = "batch"

// Batch is the position of a run among those submitted together.
//
// The runs of a batch are dealt out over MaxParallel lanes like cards: run i starts once run
// i-MaxParallel, and every earlier run of the lane, has left the lane. A run leaves its lane when it ends
// or, without CountWaiting, when it first waits for a person. So at most MaxParallel runs are in flight
// without a shared counter, not counting those that were continued after such a wait or after their end.
//
// The ids of a batch are consecutive, so each can be computed from any other without a stored list.
type Batch struct {
	Index       int `json:"index"` // from 0
	Size        int `json:"size"`
	MaxParallel int `json:"max_parallel"`

	// PendingInBatch is true until the batch lets the run start.
	PendingInBatch bool `json:"pending_in_batch,omitempty"`

	// Skipped marks a run that ended while it was pending. Whatever happens to it later, that
	// implies nothing about the runs before it in its lane.
	Skipped bool `json:"skipped,omitempty"`

	// CountWaiting keeps a run in its lane while it waits for a person.
	CountWaiting bool `json:"count_waiting,omitempty"`

	// LeftLane marks a run that has waited for a person, without CountWaiting.
	LeftLane bool `json:"left_lane,omitempty"`
}

// BatchID returns the id of the batch of s, or "".
func (s *State) BatchID() string {
	if s.Batch == nil {
		return ""
	}
	return BatchPrefix + strings.TrimPrefix(string(s.ID.Plus(-s.Batch.Index)), RunPrefix)
}

// ParseBatchID returns the id of the first run of a batch.
func ParseBatchID(text string) (RunID, error) {
	id, ok := strings.CutPrefix(text, BatchPrefix)
	first, err := ParseRunID(RunPrefix + id)
	if !ok || err != nil {
		return "", errors.New(`not a batch id: pass the id as Turnpike returned it, "batch_" and 26 digits and capital letters, as in batch_01JD3X9K3W8Q4V5N6M7P8R9S0T`)
	}
	return first, nil
}

// InLane returns the run that is step places after s in its lane, or before it if step is negative,
// and false if the lane has none.
func (s *State) InLane(step int) (RunID, bool) {
	if s.Batch == nil {
		return "", false
	}
	by := step * s.Batch.MaxParallel
	i := s.Batch.Index + by
	return s.ID.Plus(by), i >= 0 && i < s.Batch.Size
}

// PendingInBatch reports whether s waits for its batch to let it start.
func (s *State) PendingInBatch() bool {
	return s.Status == Waiting && s.Batch != nil && s.Batch.PendingInBatch
}

// Started returns s, no longer pending in its batch: Skipped if it has ended.
func (s State) Started() State {
	start(&s)
	return s
}

// start is Started in place.
func start(s *State) {
	if s.Batch != nil && s.Batch.PendingInBatch {
		b := *s.Batch
		b.PendingInBatch, b.Skipped = false, s.Status.Terminal()
		s.Batch = &b
	}
}

// LeftLane reports whether s has left its lane (see Batch); it is false for a run without a batch. If s ended while it
// was pending (Skipped), runs before it may still be in the lane.
func (s *State) LeftLane() bool {
	return s.Batch != nil && (s.Batch.LeftLane || s.Status.Terminal())
}

// leaveLane records that s waits for a person.
func leaveLane(s *State) {
	if s.Batch != nil && !s.Batch.CountWaiting && !s.Batch.LeftLane && s.Waiting != nil && s.Waiting.Reason.ByPerson() {
		b := *s.Batch
		b.LeftLane = true
		s.Batch = &b
	}
}

// Plus returns the id n steps after id, or before it if n is negative, counting in the ULID and wrapping
// around at the end. id must be valid: for another text the result is not defined.
func (id RunID) Plus(n int) RunID {
	digits := []byte(strings.TrimPrefix(string(id), RunPrefix))
	for i := len(digits) - 1; i >= 0 && n != 0; i-- {
		d := strings.IndexByte(crockford, digits[i])
		if d < 0 {
			return id
		}
		base := len(crockford)
		if i == 0 {
			base = 8 // 26 digits have two bits more than a ULID
		}
		sum := d + n
		n = sum / base
		if sum %= base; sum < 0 {
			sum, n = sum+base, n-1
		}
		digits[i] = crockford[sum]
	}
	return RunPrefix + RunID(digits)
}
