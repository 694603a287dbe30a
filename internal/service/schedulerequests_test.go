package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// No key of a request to run a schedule now stands for a firing, however it is chosen.
func TestKeyOfARequestIsNoFiring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapAllow})
		first, err := f.current.Schedules.Run(t.Context(), f.author, "s", minute(10))
		if err != nil {
			t.Fatal(err)
		}
		again, err := f.current.Schedules.Run(t.Context(), f.author, "s", minute(10))
		if err != nil || again.ID != first.ID {
			t.Errorf("the request with the same key: run %s, %v, want %s", again.ID, err, first.ID)
		}
		f.keep(11*time.Minute, f.current)
		f.want(0, 10)
		if s := f.get(); s.Fired != 1 || s.Last == nil || s.Last.Error != "" {
			t.Errorf("the schedule says %+v", s)
		}
	})
}

// A firing that was to cancel an earlier run starts its own if that run has ended since.
func TestFiringCancelsARunThatHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapCancel})
		f.keep(15*time.Minute, f.current)
		earlier := f.want(10)[minute(10)]
		id, err := f.current.Schedules.ids.next(time.Now(), 1)
		if err != nil {
			t.Fatal(err)
		}
		at := state.At(began.Add(20 * time.Minute))
		decide := func(was *storedSchedule) (*storedSchedule, error) {
			was.Status.Seen, was.Status.Pending = at, &pendingFiring{At: at, Run: id, Cancel: earlier.ID}
			return was, nil
		}
		if _, err := f.current.Schedules.change(t.Context(), "default", "s", decide); err != nil {
			t.Fatal(err)
		}
		f.end(earlier)
		if err := f.current.Schedules.settle(t.Context(), "default", "s"); err != nil {
			t.Errorf("the firing: %v", err)
		}
		if runs := f.want(10, 20); runs[minute(20)].ID != id {
			t.Errorf("the run is %s, want %s", runs[minute(20)].ID, id)
		}
	})
}

// A schedule does not fire once catch_up has passed since its instant with its own jitter, even if the longest jitter
// would end later.
func TestLateFiringWithJitter(t *testing.T) {
	t.Parallel()
	for late, fires := range map[time.Duration]bool{30 * time.Second: true, 2 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFirings(t)
			settings := api.ScheduleSettings{Cron: "0 * * * *", Jitter: model.Duration(50 * time.Minute), CatchUp: new(model.Duration(time.Minute)), Overlap: api.OverlapAllow}
			f.put(settings)
			times, err := timesOf("s", settings)
			if err != nil {
				t.Fatal(err)
			}
			due := times.At(began.Add(time.Hour))
			if due.Sub(began.Add(time.Hour)) > 45*time.Minute {
				t.Fatalf("the jitter is %s: choose another name", due.Sub(began.Add(time.Hour)))
			}
			time.Sleep(time.Until(due.Add(late))) // the bubble's clock
			if _, err := f.current.Schedules.fire(t.Context(), "default", "s"); err != nil {
				t.Fatal(err)
			}
			if n := len(f.runs()); (n == 1) != fires {
				t.Errorf("%s late: %d runs, want one: %v", late, n, fires)
			}
		})
	}
}
