package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Interval is the minimum time between two advances of the mark, each by one.
	Interval = 2 * time.Second

	// Tolerance is the number of marks that a store may lack: a failover loses the latest writes,
	// and continues by itself. It corresponds to 10 seconds.
	Tolerance = 5

	// lookTimeout bounds one comparison of the marks in the store and on the bus.
	lookTimeout = 10 * time.Second
)

// Name is the name, in readiness, doctor, metrics and errors, of the state in which a deployment waits for the
// decision.
const Name = "waiting_restore"

// MetricText describes the metric of that name.
const MetricText = "1 while the deployment waits for the decision about an older copy of its store."

var (
	// ErrWaiting reports that nothing was done because the deployment waits for the decision of
	// an operator.
	ErrWaiting = errors.New(Name + ": the store is older than NATS, as after restoring a backup, so no run continues: decide with `turnpike restore accept` or `turnpike restore abandon`")

	// ErrNotWaiting reports a decision although the store is not behind.
	ErrNotWaiting = errors.New("no decision is pending, because the store is not older than NATS: check the state with `turnpike restore status`")
)

// Mark is the progress of a deployment.
type Mark struct {
	// Epoch counts the older copies of the store that operators have accepted. The ids of turn messages contain
	// it, because the bus remembers the ids of turns that are made again.
	Epoch int64 `json:"epoch"`

	// Count counts intervals in which the deployment ran.
	Count int64 `json:"count"`
}

// Marks is the mark in a store, which may have several parts with a mark each. It is safe for concurrent use.
type Marks interface {
	// Marks returns the least and the greatest mark, 0 for a part that has none.
	Marks(ctx context.Context) (least, greatest int64, err error)

	// RaiseMarks raises each mark that is not below floor to at least `to`, and returns the least and the
	// greatest mark after that.
	RaiseMarks(ctx context.Context, floor, to int64) (least, greatest int64, err error)

	// SetFloor makes the store refuse claims, sweeps and evictions of runs in parts whose mark is below floor.
	// It checks that in the same atomic step.
	SetFloor(floor int64)
}

// Ledger is the mark on the bus.
type Ledger interface {
	// Mark returns the mark, its revision, and the time at which it was written. A revision of 0
	// means that the mark does not exist.
	Mark(ctx context.Context) (data []byte, revision uint64, at time.Time, err error)

	// ReplaceMark writes the mark in the place of the one with a revision, unless another process
	// has: then moved is true.
	ReplaceMark(ctx context.Context, data []byte, revision uint64) (moved bool, err error)
}

// Status is the result of a comparison of the marks.
type Status struct {
	Waiting bool
	Behind  time.Duration // the running time of the deployment that the store lacks; 0 if not waiting
	Since   time.Time     // the time of the last progress that the bus has recorded; zero if unknown
	Epoch   int64
}

// String describes a status that waits.
func (s Status) String() string {
	return fmt.Sprintf("%s: the store is about %s older than NATS: run `turnpike restore status`, then accept or abandon", Name, s.Behind)
}

// Watch advances the mark of the deployment for one process, and tracks whether the deployment waits. Its methods may
// be called from any goroutine. A nil Watch never waits: it has Waiting, Status, Err, Store and Bus only.
type Watch struct {
	store  Marks
	ledger Ledger
	log    *slog.Logger

	waiting  atomic.Bool
	epoch    atomic.Int64
	resumed  atomic.Int64  // Unix nanoseconds of the last end of waiting here, or 0
	suspects chan struct{} // holds a token if a look must not wait for the next interval

	looking  sync.Mutex // held during a look; guards the two below
	revision uint64     // of the mark on the bus at the last look
	looked   bool

	mu      sync.Mutex
	status  Status
	changed chan struct{} // closed when waiting changes
}

// NewWatch returns a watch, which compares nothing before Look or Run.
func NewWatch(store Marks, ledger Ledger, log *slog.Logger) *Watch {
	return &Watch{store: store, ledger: ledger, log: log, suspects: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Waiting reports whether the deployment waits, as far as this process knows.
func (w *Watch) Waiting() bool { return w != nil && w.waiting.Load() }

// Status returns what this process found when it last compared the marks.
func (w *Watch) Status() Status {
	if w == nil {
		return Status{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Err returns nil, or an error that wraps ErrWaiting if the deployment waits, as far as this process knows.
func (w *Watch) Err() error {
	if !w.Waiting() {
		return nil
	}
	return fmt.Errorf("%w (the store is at least %s older)", ErrWaiting, w.Status().Behind)
}

// Compare compares the two marks once, and changes nothing.
func Compare(ctx context.Context, store Marks, ledger Ledger) (Status, error) {
	w := &Watch{store: store, ledger: ledger}
	mark, _, at, err := w.read(ctx)
	if err != nil {
		return Status{}, err
	}
	least, _, err := store.Marks(ctx)
	if err != nil {
		return Status{}, err
	}
	return mark.status(least, at), nil
}

// Run calls Look once in an Interval, and at once if the store refuses a claim, until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		suspect := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.suspects:
			suspect = true
		}
		if err := w.look(ctx, suspect); err != nil && ctx.Err() == nil {
			w.log.Debug("mark of the deployment not advanced", "error", err)
		}
	}
}

// Look compares the mark in the store with that on the bus, and advances both if the store is not behind. The first
// Look only compares if there is a mark on the bus, and so does each Look while the deployment waits. If another
// process has advanced the mark on the bus since the last Look, that process has found the store in order: unless the
// deployment waits, Look then does not compare or advance. After an error, Status may still be that of the previous
// Look.
func (w *Watch) Look(ctx context.Context) error { return w.look(ctx, false) }

func (w *Watch) look(ctx context.Context, suspect bool) error {
	w.looking.Lock()
	defer w.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	mark, revision, at, err := w.read(ctx)
	if err != nil {
		return err
	}
	w.store.SetFloor(mark.floor())
	w.epoch.Store(mark.Epoch)
	moved, first := revision != w.revision, !w.looked
	if moved && !first && !suspect && !w.Waiting() {
		w.revision = revision // another process has found the store in order
		return nil
	}
	if moved && revision != 0 || suspect || w.Waiting() {
		// Only a process that sees no progress makes some: many that start at the same time
		// would else let the mark run ahead of the time that it stands for.
		least, _, err := w.store.Marks(ctx)
		if err != nil {
			return err
		}
		w.found(mark, least, at)
		w.revision, w.looked = revision, true
		return nil
	}
	return w.advance(ctx, mark, revision, at)
}

// advance raises the mark in the store, and then that on the bus.
func (w *Watch) advance(ctx context.Context, mark Mark, revision uint64, at time.Time) error {
	to := mark.Count + 1
	least, greatest, err := w.store.RaiseMarks(ctx, mark.floor(), to)
	if err == nil && least >= mark.floor() && greatest > to {
		// The bus is the older one, or has lost its mark, unless another process was faster.
		var now uint64
		if _, now, _, err = w.read(ctx); err == nil && now != revision {
			w.revision = now
			return nil
		}
		to = greatest
		if err == nil {
			least, _, err = w.store.RaiseMarks(ctx, mark.floor(), to)
		}
	}
	if err != nil {
		return err
	}
	w.found(mark, least, at)
	w.revision, w.looked = revision, true
	if w.Waiting() {
		return nil
	}
	mark.Count = to
	return w.write(ctx, mark, revision)
}

// write replaces the mark on the bus. If another process has replaced it, that is as good.
func (w *Watch) write(ctx context.Context, mark Mark, revision uint64) error {
	data, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	_, err = w.ledger.ReplaceMark(ctx, data, revision)
	if err != nil {
		return err
	}
	_, w.revision, _, err = w.ledger.Mark(ctx)
	return err
}

func (w *Watch) read(ctx context.Context) (mark Mark, revision uint64, at time.Time, err error) {
	data, revision, at, err := w.ledger.Mark(ctx)
	if err == nil && revision != 0 {
		err = json.Unmarshal(data, &mark)
	}
	return mark, revision, at, err
}

// floor is the least mark of a store that is not behind.
func (m Mark) floor() int64 { return max(0, m.Count-Tolerance) }

// status returns the status of a store whose least mark is least; the mark on the bus was written at a time.
func (m Mark) status(least int64, at time.Time) Status {
	status := Status{Waiting: least < m.floor(), Epoch: m.Epoch}
	if status.Waiting {
		status.Behind, status.Since = time.Duration(m.Count-least)*Interval, at
	}
	return status
}

// found records the result of a look: the lowest mark of the store.
func (w *Watch) found(mark Mark, least int64, at time.Time) {
	status := mark.status(least, at)
	waiting := status.Waiting
	w.mu.Lock()
	turned := waiting != w.status.Waiting
	w.status = status
	if turned {
		if !waiting {
			w.resumed.Store(time.Now().UnixNano())
		}
		w.waiting.Store(waiting)
		close(w.changed)
		w.changed = make(chan struct{})
	}
	w.mu.Unlock()
	switch {
	case turned && waiting:
		w.log.Error("the store is an older copy: nothing runs until an operator decides", "behind_ms", status.Behind.Milliseconds(), "mark", mark.Count, "mark_of_store", least, "hint", "run `turnpike restore status`, then accept or abandon: docs/how-to/restore-the-store.md")
	case turned:
		w.log.Info("the deployment no longer waits for a decision about the store", "epoch", mark.Epoch)
	}
}

// suspect makes Run look now, and compare the store's mark in any case.
func (w *Watch) suspect() {
	select {
	case w.suspects <- struct{}{}:
	default:
	}
}

// await returns nil when the deployment does not wait, or the error of ctx.
func (w *Watch) await(ctx context.Context) error {
	for {
		w.mu.Lock()
		waiting, changed := w.status.Waiting, w.changed
		w.mu.Unlock()
		if !waiting {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Accept makes the store's older state the current one: it begins a new epoch, and each other process ends its wait at
// its next Look. The error is ErrNotWaiting if the store is not behind. After another error the deployment may still
// wait, and the caller may repeat the call: ErrNotWaiting then means that the wait is over.
func (w *Watch) Accept(ctx context.Context) error {
	w.looking.Lock()
	err := w.accept(ctx)
	w.looking.Unlock()
	if err != nil {
		return err
	}
	return w.look(ctx, true)
}

func (w *Watch) accept(ctx context.Context) error {
	mark, revision, _, err := w.read(ctx)
	if err != nil {
		return err
	}
	least, _, err := w.store.Marks(ctx)
	if err != nil {
		return err
	}
	if least >= mark.floor() {
		return ErrNotWaiting
	}
	mark.Epoch++
	data, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	switch moved, err := w.ledger.ReplaceMark(ctx, data, revision); {
	case err != nil:
		return err
	case moved: // by a process that read the mark before the wait: it does not have the new epoch
		return w.accept(ctx)
	}
	_, _, err = w.store.RaiseMarks(ctx, 0, mark.Count)
	return err
}
