package state

import (
	"errors"
	"strings"
)

// MaxBatch is how many runs a batch has at most.
const MaxBatch = 1000

// BatchPrefix starts the id of every batch; the ULID of its first run follows.
const BatchPrefix = "batch_"

// BatchDetail is the detail of the waiting_schedule of a run that its batch holds.
const BatchDetail = "batch"

// Batch is the place of a run among those that were submitted together (L8).
//
// The runs of a batch are dealt out over MaxParallel lanes like cards: run i starts
// once run i-MaxParallel has left its lane, and everything before that one. A run leaves its
// lane when it ends or, without CountWaiting, when it first waits for a person. So no more
// than MaxParallel runs are in flight, but for those that have resumed after such a wait, and
// no counter is shared.
//
// The ids of a batch count up by one, so each of them follows from any other, and
// nobody has to keep a list.
type Batch struct {
	Index       int `json:"index"` // from 0
	Size        int `json:"size"`
	MaxParallel int `json:"max_parallel"`

	// PendingInBatch until the batch lets the run start.
	PendingInBatch bool `json:"pending_in_batch,omitempty"`

	// Skipped is a run that ended while it was pending. That says nothing about the
	// runs before it in its lane, whatever becomes of it later.
	Skipped bool `json:"skipped,omitempty"`

	// CountWaiting keeps a run in its lane while it waits for a person.
	CountWaiting bool `json:"count_waiting,omitempty"`

	// LeftLane is a run that has waited for a person, without CountWaiting.
	LeftLane bool `json:"left_lane,omitempty"`
}

// BatchID returns the id of the batch that s is of, or "".
func (s State) BatchID() string {
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
		return "", errors.New(`a batch id is "batch_" and 26 characters of Crockford's base 32, as in batch_01JD3X9K3W8Q4V5N6M7P8R9S0T`)
	}
	return first, nil
}

// InLane returns the run that is step places behind s in its lane, or before it if
// step is negative, and false where the lane has none.
func (s State) InLane(step int) (RunID, bool) {
	if s.Batch == nil {
		return "", false
	}
	by := step * s.Batch.MaxParallel
	i := s.Batch.Index + by
	return s.ID.Plus(by), i >= 0 && i < s.Batch.Size
}

// PendingInBatch reports whether s waits for its batch to let it start.
func (s State) PendingInBatch() bool {
	return s.Status == Waiting && s.Batch != nil && s.Batch.PendingInBatch
}

// Started returns s, no longer held by its batch.
func (s State) Started() State {
	if s.Batch != nil && s.Batch.PendingInBatch {
		b := *s.Batch
		b.PendingInBatch, b.Skipped = false, s.Status.Terminal()
		s.Batch = &b
	}
	return s
}

// LeftLane reports whether s has made way for the run behind it in its lane. One that ended
// while it was pending says nothing about those before it.
func (s State) LeftLane() bool {
	return s.Batch != nil && (s.Batch.LeftLane || s.Status.Terminal())
}

// leaveLane notes that s waits for a person.
func (s State) leaveLane() State {
	if s.Batch != nil && !s.Batch.CountWaiting && !s.Batch.LeftLane && s.Waiting != nil && s.Waiting.Reason.ByPerson() {
		b := *s.Batch
		b.LeftLane = true
		s.Batch = &b
	}
	return s
}

// Plus returns the id that is n further, counting in the ULID. After the last one
// comes the first. An id that is none stays as it is.
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
