package service

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// marks are the mark of a store, and of a bus whose mark is 100.
type marks struct{ store int64 }

func (m *marks) Marks(context.Context) (least, greatest int64, err error) {
	return m.store, m.store, nil
}

func (m *marks) RaiseMarks(ctx context.Context, _, _ int64) (least, greatest int64, err error) {
	return m.Marks(ctx)
}

func (m *marks) SetFloor(int64) {}

func (m *marks) Mark(context.Context) (data []byte, revision uint64, at time.Time, err error) {
	return []byte(`{"count": 100}`), 1, time.Now(), nil
}

func (m *marks) ReplaceMark(context.Context, []byte, uint64) (moved bool, err error) {
	return false, nil
}

// waiting makes a service wait for the decision about an older copy of its store, and returns a function that ends the
// wait.
func waiting(t *testing.T, s *Service) (resume func()) {
	t.Helper()
	m := &marks{}
	watch := restore.NewWatch(m, m, slog.New(slog.DiscardHandler))
	s.core.cfg.Restore = restore.NewReview(watch, s.core.store, nil)
	look := func(mark int64) {
		t.Helper()
		m.store = mark
		if err := watch.Look(t.Context()); err != nil || watch.Waiting() != (mark < 100) {
			t.Fatalf("a store with the mark %d: waiting %v, %v", mark, watch.Waiting(), err)
		}
	}
	look(1)
	return func() { look(100) }
}

// While an older copy of the store waits for the decision, no schedule fires: the lost store may have fired it.
func TestSchedulesDuringRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *"})
		resume := waiting(t, f.current)
		f.keep(25*time.Minute, f.current)
		f.want()
		resume()
		f.keep(time.Minute, f.current)
		f.want(20)
	})
}

// While an older copy of the store waits for the decision, no messages are read for triggers.
func TestTriggersDuringRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTaking(t, &orders{})
		s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}})
		resume := waiting(t, s.Service)
		if n := s.wanted(); n != 0 {
			t.Errorf("the gateway reads %d triggers, want none", n)
		}
		resume()
		if n := s.wanted(); n != 1 {
			t.Errorf("after the decision the gateway reads %d triggers, want 1", n)
		}
	})
}
