package service

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func minute(n int) string { return began.Add(time.Duration(n) * time.Minute).Format(time.RFC3339) }

// aborted reports whether an abort of a run is pending.
func (f *firings) aborted(st state.State) bool {
	f.Helper()
	c, err := f.store.Claim(f.Context(), state.ClaimRequest{Run: st.ID, Version: st.Version, Token: "a", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		f.Fatal(c.Outcome, err)
	}
	return c.Abort != nil
}

// With the overlap cancel, a firing cancels the earlier run. It also replaces a run that waits since the schedule had
// another setting.
func TestScheduleOverlapCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapQueueOne})
		f.keep(25*time.Minute, f.current)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapCancel})
		f.keep(10*time.Minute, f.current)
		runs := f.want(10, 30)
		if s := f.get(); s.Waiting != nil {
			t.Errorf("the run of %v still waits", s.Waiting)
		}
		if !f.aborted(runs[minute(10)]) {
			t.Error("the earlier run was not cancelled")
		}
		f.end(runs[minute(30)])
		f.keep(3*waitingInterval, f.current)
		f.want(10, 30)
	})
}

// A run that waits comes before a later instant, also if the earlier run has ended just before that.
func TestWaitingRunIsNotOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapQueueOne})
		f.keep(25*time.Minute, f.current)
		f.end(f.want(10)[minute(10)])
		time.Sleep(5*time.Minute + time.Second) // the bubble's clock
		if _, err := f.current.Schedules.fire(t.Context(), "default", "s"); err != nil {
			t.Fatal(err)
		}
		f.want(10)
		f.keep(waitingInterval, f.current)
		f.want(10, 20)
		if s := f.get(); s.Skipped != 1 || s.Waiting != nil {
			t.Errorf("the schedule says %+v", s)
		}
	})
}

// The deletion of a schedule removes both of its timers.
func TestDeletedScheduleHasNoTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapQueueOne})
		f.keep(25*time.Minute, f.current)
		timer := func(name string) error {
			_, err := f.store.Timer(t.Context(), state.TimerID{Tenant: "default", Kind: timersOfSchedules, Name: name})
			return err
		}
		if err := errors.Join(timer("s"), timer("s"+waitingSuffix)); err != nil {
			t.Fatal(err)
		}
		if err := f.current.Schedules.Delete(t.Context(), f.author, "s"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"s", "s" + waitingSuffix} {
			if err := timer(name); !errors.Is(err, state.ErrNotFound) {
				t.Errorf("the timer %q of the deleted schedule: %v", name, err)
			}
		}
	})
}

// A resumed schedule does not fire for instants of its pause, although they are recent: not even if the gateway that
// resumed it dies, and another one looks at it soon.
func TestResumedScheduleForgetsItsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *"})
		for _, paused := range []bool{true, false} {
			f.keep(6*time.Minute, f.current)
			if _, err := f.current.Schedules.Pause(t.Context(), f.author, "s", paused); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.current.Schedules.fire(t.Context(), "default", "s"); err != nil {
			t.Fatal(err)
		}
		f.want()
		f.keep(10*time.Minute, f.current)
		f.want(20)
	})
}

// The time within which a firing may be late begins after its jitter.
func TestJitterIsNotLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "0 * * * *", Jitter: model.Duration(50 * time.Minute), CatchUp: new(model.Duration(time.Minute)), Overlap: api.OverlapAllow})
		f.keep(5*time.Hour-time.Second, f.current)
		f.want(60, 120, 180, 240)
	})
}
