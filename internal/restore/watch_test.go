package restore_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// parts is the mark of a store in two parts.
type parts struct {
	marks   [2]int64
	floor   int64
	silent  error
	waiting func() // called before marks are raised
	asked   int    // calls of Marks
}

func (p *parts) Marks(context.Context) (least, greatest int64, err error) {
	p.asked++
	return min(p.marks[0], p.marks[1]), max(p.marks[0], p.marks[1]), p.silent
}

func (p *parts) RaiseMarks(ctx context.Context, floor, to int64) (least, greatest int64, err error) {
	if p.waiting != nil {
		p.waiting()
	}
	for i, m := range p.marks {
		if p.silent == nil && m >= floor {
			p.marks[i] = max(m, to)
		}
	}
	return p.Marks(ctx)
}

func (p *parts) SetFloor(floor int64) { p.floor = floor }

// ledger is the mark on a bus.
type ledger struct {
	data     []byte
	revision uint64
	silent   error
	before   func() // called once before the mark is replaced
}

func (l *ledger) Mark(context.Context) ([]byte, uint64, time.Time, error) {
	return l.data, l.revision, time.Now(), l.silent
}

func (l *ledger) ReplaceMark(_ context.Context, data []byte, revision uint64) (bool, error) {
	if f := l.before; f != nil {
		l.before = nil
		f()
	}
	if l.silent != nil || revision != l.revision {
		return l.silent == nil, l.silent
	}
	l.data, l.revision = data, revision+1
	return false, nil
}

type deployment struct {
	t     *testing.T
	store *parts
	bus   *ledger
}

func newDeployment(t *testing.T) *deployment { return &deployment{t, &parts{}, &ledger{}} }

func (d *deployment) process() *restore.Watch {
	return restore.NewWatch(d.store, d.bus, slog.New(slog.DiscardHandler))
}

// look makes a process check a number of times.
func (d *deployment) look(w *restore.Watch, times int) {
	d.t.Helper()
	for range times {
		if err := w.Look(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *deployment) waits(w *restore.Watch, want bool) {
	d.t.Helper()
	if w.Waiting() != want {
		d.t.Errorf("the process waits: %v, want %v; store %v, NATS %s", w.Waiting(), want, d.store.marks, d.bus.data)
	}
}

// If a restored copy lacks more than the tolerance, every process waits, including one that has just started,
// for any length of time. A newer copy continues.
func TestOlderCopy(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int64]bool{1: false, restore.Tolerance: false, restore.Tolerance + 1: true, 15: true} {
		d := newDeployment(t)
		a := d.process()
		d.look(a, 20)
		d.store.marks[0], d.store.marks[1] = d.store.marks[0]-lost, d.store.marks[1]-lost
		b := d.process()
		for _, w := range []*restore.Watch{a, b} {
			d.look(w, 3)
			d.waits(w, want)
		}
		if behind := a.Status().Behind; want && behind != time.Duration(lost)*restore.Interval {
			t.Errorf("the copy lacks %s, want %d intervals", behind, lost)
		}
	}
}

// While other processes advance the mark, a process neither asks the store nor advances it. It still compares at its
// start, and while the deployment waits.
func TestMarkOfOthers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	a, b := d.process(), d.process()
	look := func(want int) {
		t.Helper()
		before, asked := d.store.marks, d.store.asked
		if d.look(b, 1); d.store.asked-asked != want || d.store.marks != before {
			t.Errorf("it asked the store %d times, want %d; marks from %v to %v", d.store.asked-asked, want, before, d.store.marks)
		}
	}
	d.look(a, 20)
	look(1)
	for range 3 {
		d.look(a, 1)
		look(0)
	}
	d.store.marks = [2]int64{}
	d.look(b, 1)
	d.waits(b, true)
	d.bus.revision++
	look(1)
	d.waits(b, true)
}

// One older part of the store stops the deployment.
func TestOlderPart(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	w := d.process()
	d.look(w, 20)
	d.store.marks[1] = 5
	d.look(w, 4)
	d.waits(w, true)
}

// A newer copy ends the wait by itself.
func TestNewerCopy(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	w := d.process()
	d.look(w, 20)
	newest := d.store.marks
	d.store.marks = [2]int64{2, 2}
	d.look(w, 2)
	d.waits(w, true)
	d.store.marks = newest
	d.look(w, 1)
	d.waits(w, false)
}

// These are not restores: a new deployment, one that was stopped, a bus that has lost its mark or is older, a
// store or a bus that does not answer, and many processes that start at once.
func TestNoRestore(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	a := d.process()
	d.look(a, 1)
	d.waits(a, false)
	d.look(a, 30)
	d.waits(a, false)
	for range 20 { // a rolling restart, within a moment
		before := d.store.marks
		d.look(d.process(), 1)
		if d.store.marks != before {
			t.Fatalf("a starting process advanced the mark to %v", d.store.marks)
		}
	}
	older := *d.bus
	d.look(a, 10)
	*d.bus = ledger{data: older.data, revision: older.revision}
	d.look(a, 3)
	d.waits(a, false)
	*d.bus = ledger{}
	d.look(a, 3)
	d.waits(a, false)
	if least := d.store.marks[0]; d.bus.revision == 0 || least < 30 {
		t.Errorf("after the bus has lost its mark the store has %d, and the bus %s", least, d.bus.data)
	}
	for _, silent := range []*error{&d.store.silent, &d.bus.silent} {
		*silent = errors.New("no answer")
		for range 10 {
			if err := a.Look(t.Context()); err == nil {
				t.Fatal("a check without an answer returned no error")
			}
		}
		d.waits(a, false)
		*silent = nil
		d.look(a, 2)
		d.waits(a, false)
	}
}

// A bus that has lost its mark takes that of the store, so that a copy that is restored later is found to be older.
func TestOlderCopyAfterTheBusHasLostItsMark(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.look(d.process(), 20)
	*d.bus = ledger{}
	w := d.process()
	d.look(w, 1)
	d.store.marks = [2]int64{5, 5}
	d.look(w, 1)
	d.waits(w, true)
}

// A process that read the bus before the restore, and raises marks after it, does not hide the restore.
func TestPausedProcess(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	a, paused := d.process(), d.process()
	d.look(a, 10)
	d.look(paused, 1)
	d.store.waiting = func() {
		d.store.waiting = nil
		d.look(a, 20)
		d.store.marks = [2]int64{9, 9}
	}
	d.look(paused, 1)
	d.look(a, 2)
	d.waits(a, true)
	d.look(paused, 2)
	d.waits(paused, true)
}

// Accept ends the wait of all processes and begins an epoch. Without a wait there is none.
func TestAccept(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	a, b := d.process(), d.process()
	d.look(a, 20)
	if err := a.Accept(t.Context()); !errors.Is(err, restore.ErrNotWaiting) {
		t.Errorf("accepted without a wait: %v", err)
	}
	d.store.marks = [2]int64{}
	d.look(a, 2)
	d.look(b, 2)
	d.waits(b, true)
	if err := a.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.waits(a, false)
	d.look(b, 1)
	d.waits(b, false)
	if epoch := b.Status().Epoch; epoch != 1 {
		t.Errorf("the epoch is %d", epoch)
	}
	d.look(a, 5)
	d.waits(a, false)
}

// A process that has read the mark before the wait, and writes it during Accept, does not undo the new epoch.
func TestAcceptDuringALateAdvance(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	w := d.process()
	d.look(w, 20)
	d.store.marks = [2]int64{}
	d.look(w, 2)
	d.bus.before = func() { d.bus.revision++ }
	if err := w.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.waits(w, false)
	if next := d.process(); next.Look(t.Context()) != nil || next.Status().Epoch != 1 {
		t.Errorf("a process that starts then has the epoch %d", next.Status().Epoch)
	}
}

// An accept that failed between the bus and the store can be repeated.
func TestAcceptIsRepeated(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	w := d.process()
	d.look(w, 20)
	d.store.marks = [2]int64{}
	d.look(w, 2)
	d.store.waiting = func() { d.store.silent = errors.New("no answer") }
	if err := w.Accept(t.Context()); err == nil {
		t.Fatal("accepted without a store")
	}
	d.store.silent, d.store.waiting = nil, nil
	d.look(w, 2)
	d.waits(w, true)
	if err := w.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.waits(w, false)
}

// The marks in Redis and in NATS behave as a watch requires.
func TestRealServers(t *testing.T) {
	t.Parallel()
	store, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.RedisProcess(t, "--save", "").URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	bus, err := natsbus.Open(t.Context(), testbed.NATS(t), natsbus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	a, b := restore.NewWatch(store, bus, slog.New(slog.DiscardHandler)), restore.NewWatch(store, bus, slog.New(slog.DiscardHandler))
	for range 10 {
		for _, w := range []*restore.Watch{a, b} {
			if err := w.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	least, greatest, err := store.Marks(t.Context())
	if err != nil || least < 10 || least != greatest {
		t.Errorf("marks from %d to %d, %v", least, greatest, err)
	}
	if least, greatest, err = store.RaiseMarks(t.Context(), greatest+1, greatest+2); err != nil || greatest != least || greatest > 20 {
		t.Errorf("marks below the floor were raised: from %d to %d, %v", least, greatest, err)
	}
	if moved, err := bus.ReplaceMark(t.Context(), []byte("{}"), 1); err != nil || !moved {
		t.Errorf("a mark of an old revision was replaced: %v, %v", moved, err)
	}
	if status, err := restore.Compare(t.Context(), store, bus); err != nil || status.Waiting {
		t.Errorf("status %+v, %v", status, err)
	}
}
