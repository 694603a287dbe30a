package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/schedule"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// fireInterval is the time between two checks for schedules that are due.
	fireInterval = time.Second

	// fireLease bounds how long a gateway owns a firing. If the gateway dies, another one continues after that time.
	fireLease = 30 * time.Second

	// firingsAtOnce is the maximum number of firings that a gateway processes at the same time.
	firingsAtOnce = 64

	// waitingSuffix ends the name of the timer of a schedule that waits until its latest run ends. Names of schedules
	// have no space.
	waitingSuffix = " waiting"

	// waitingInterval is the time between two checks whether the other run has ended.
	waitingInterval = 5 * time.Second
)

// Keep fires schedules until ctx ends, except while a restored store waits for a decision. Gateways share the work: one
// gateway at a time owns a timer of the store.
//
// Each instant starts at most one run, even if gateways crash. A gateway first stores the decision to fire in the
// document of the schedule, with the id of the run, and then submits the run under a key with the instant. After a
// crash, the gateway that claims the timer next submits the run of the stored decision, and decides only about later
// instants.
func (s *Schedules) Keep(ctx context.Context) {
	tick := time.NewTicker(fireInterval)
	defer tick.Stop()
	failed := false
	for {
		for !s.cfg.Restore.Waiting() && ctx.Err() == nil {
			n, err := s.Fire(ctx)
			if err != nil && !failed && ctx.Err() == nil {
				s.log.Warn("schedules not fired, the gateway retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
			}
			if failed = err != nil; failed || n < firingsAtOnce {
				break
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Fire processes up to 64 (firingsAtOnce) of the timers that are due, and returns their number. A firing that fails
// is due again when its lease ends; Fire returns the error of one of them.
func (s *Schedules) Fire(ctx context.Context) (int, error) {
	claims, err := s.store.ClaimTimers(ctx, timersOfSchedules, firingsAtOnce, fireLease)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, fireLease-5*time.Second)
	defer cancel()
	var group errgroup.Group
	for _, claim := range claims {
		group.Go(s.guarded(func() error { return s.act(ctx, claim) }))
	}
	return len(claims), group.Wait()
}

// act fires the schedule of a timer, or starts its waiting run, and sets the timer's next time.
func (s *Schedules) act(ctx context.Context, claim state.TimerClaim) error {
	name, waits := strings.CutSuffix(claim.Name, waitingSuffix)
	act := s.fire
	if waits {
		act = s.startWaiting
	}
	next, err := act(ctx, claim.Tenant, name)
	if err != nil {
		return err
	}
	if err := s.store.AckTimer(ctx, claim, next); !errors.Is(err, state.ErrFenced) {
		return err
	}
	return nil // the schedule was changed, or another gateway owns the timer now
}

// fire starts the run of the latest instant that is due, unless the instant is too late (CatchUp) or the settings for
// overlaps prevent that; the run may instead wait for the end of another. Earlier instants that are due too get no run.
// Before all that, fire completes a firing that an earlier call has decided, even of a paused schedule. It returns the
// time at which the schedule is due next, or the zero time if the schedule is paused, deleted or never due again.
func (s *Schedules) fire(ctx context.Context, tenant, name string) (time.Time, error) {
	now, err := s.clock.now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := s.settle(ctx, tenant, name); err != nil {
		return time.Time{}, err
	}
	id, err := s.ids.next(now.Time, 1)
	if err != nil {
		return time.Time{}, err
	}
	stored, err := s.change(ctx, tenant, name, func(was *storedSchedule) (*storedSchedule, error) {
		if was == nil || was.Paused || was.Status.Pending != nil {
			return nil, nil //nolint:nilnil // nothing changes
		}
		times, err := timesOf(name, was.ScheduleSettings)
		if err != nil {
			return nil, err
		}
		at, due := times.Latest(earliest(was, now.Time), now.Time)
		if !due || now.Sub(times.At(at)) > lateness(was.ScheduleSettings) {
			return nil, nil //nolint:nilnil // nothing changes
		}
		return was, s.decide(ctx, was, pendingFiring{At: state.At(at), Run: id})
	})
	if err != nil || stored == nil || stored.Paused {
		return time.Time{}, err
	}
	if stored.Status.Waiting != nil {
		timer := state.TimerID{Tenant: tenant, Kind: timersOfSchedules, Name: name + waitingSuffix}
		if err := s.store.PutTimer(ctx, timer, now.Add(waitingInterval)); err != nil {
			return time.Time{}, err
		}
	}
	if err := s.settle(ctx, tenant, name); err != nil {
		return time.Time{}, err
	}
	times, err := timesOf(name, stored.ScheduleSettings)
	if err != nil {
		return time.Time{}, err
	}
	return nextDue(times, stored, now.Time), nil
}

// earliest returns the time that every instant that is due at now or later is after.
func earliest(stored *storedSchedule, now time.Time) time.Time {
	from := now.Add(-lateness(stored.ScheduleSettings) - time.Duration(stored.Jitter))
	if seen := stored.Status.Seen.Time; seen.After(from) {
		return seen
	}
	return from
}

// nextDue returns the first time after now at which a schedule is due, or zero.
func nextDue(times *schedule.Times, stored *storedSchedule, now time.Time) time.Time {
	for at := times.Next(earliest(stored, now)); !at.IsZero(); at = times.Next(at) {
		if due := times.At(at); due.After(now) {
			return due
		}
	}
	return time.Time{}
}

// decide sets the status of a schedule by its settings for overlaps: the firing p is pending, waits, or is skipped.
func (s *Schedules) decide(ctx context.Context, stored *storedSchedule, p pendingFiring) error {
	status := &stored.Status
	status.Seen = p.At
	running, err := s.running(ctx, status)
	if err != nil {
		return err
	}
	switch {
	case running == "" && status.Waiting == nil, stored.Overlap == api.OverlapAllow:
	case stored.Overlap == api.OverlapCancel:
		p.Cancel, status.Waiting = running, nil
	case stored.Overlap == api.OverlapQueueOne && status.Waiting == nil:
		status.Waiting = &p.At
		return nil
	default:
		status.Skipped++
		return nil
	}
	status.Pending = &p
	return nil
}

// running returns the run of the latest firing, or "" if that has ended or does not exist.
func (s *Schedules) running(ctx context.Context, status *scheduleStatus) (state.RunID, error) {
	if status.Run == "" {
		return "", nil
	}
	st, err := s.store.Load(ctx, status.Run)
	if errors.Is(err, state.ErrNotFound) || err == nil && st.Status.Terminal() {
		return "", nil
	}
	return st.ID, err
}

// startWaiting starts the run that waits for the end of another run if that has ended. It returns the time of the next
// check, or zero if no run waits.
func (s *Schedules) startWaiting(ctx context.Context, tenant, name string) (time.Time, error) {
	now, err := s.clock.now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := s.settle(ctx, tenant, name); err != nil {
		return time.Time{}, err
	}
	id, err := s.ids.next(now.Time, 1)
	if err != nil {
		return time.Time{}, err
	}
	stored, err := s.change(ctx, tenant, name, func(was *storedSchedule) (*storedSchedule, error) {
		if was == nil || was.Status.Waiting == nil || was.Status.Pending != nil {
			return nil, nil //nolint:nilnil // nothing changes
		}
		if running, err := s.running(ctx, &was.Status); err != nil || running != "" {
			return nil, err
		}
		was.Status.Pending, was.Status.Waiting = &pendingFiring{At: *was.Status.Waiting, Run: id}, nil
		return was, nil
	})
	if err != nil || stored == nil {
		return time.Time{}, err
	}
	if err := s.settle(ctx, tenant, name); err != nil || stored.Status.Waiting == nil {
		return time.Time{}, err
	}
	return now.Add(waitingInterval), nil
}

// settle submits the run of the pending firing of a schedule, and records the result in the status. It does nothing if
// no firing is pending.
func (s *Schedules) settle(ctx context.Context, tenant, name string) error {
	stored, _, err := s.load(ctx, tenant, name)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil || stored.Status.Pending == nil {
		return err
	}
	p := *stored.Status.Pending
	last := &api.ScheduleFiring{At: p.At}
	st, err := s.start(ctx, tenant, name, *stored, p)
	if problem, refused := errors.AsType[*api.Problem](err); refused && !Unavailable(problem) {
		last.Error = problem.Detail
		s.log.Warn("schedule fired, but no run was started", "error", problem.Detail, "tenant", tenant, "schedule", name, "hint", "correct what the error names, in the schedule, its agent or its tenant; the schedule fires again at its next time")
	} else if err != nil {
		return err
	} else {
		last.RunID = string(st.ID)
	}
	_, err = s.change(ctx, tenant, name, func(was *storedSchedule) (*storedSchedule, error) {
		if was == nil || was.Status.Pending == nil || was.Status.Pending.Run != p.Run {
			return nil, nil //nolint:nilnil // another gateway has recorded it
		}
		was.Status.Pending, was.Status.Last = nil, last
		if last.RunID != "" {
			was.Status.Run = st.ID
			was.Status.Fired++
		}
		return was, nil
	})
	return err
}

// start starts the run of a firing, unless it was started before.
func (s *Schedules) start(ctx context.Context, tenant, name string, stored storedSchedule, p pendingFiring) (state.State, error) {
	c := access.ForSchedule(tenant, name)
	if err := s.permit(ctx, c, FireSchedule); err != nil {
		return state.State{}, err
	}
	if p.Cancel != "" {
		if err := s.cancelBefore(ctx, c, name, p.Cancel); err != nil {
			return state.State{}, err
		}
	}
	st, err := s.submissions.submit(ctx, s.firing(tenant, name, stored, p))
	if errors.Is(err, state.ErrDeleted) { // it was started, has ended and was deleted
		return state.State{ID: p.Run}, nil
	}
	if err == nil {
		s.submitted.WithLabelValues("schedule").Inc()
	}
	s.note(ctx, c, FireSchedule, string(st.ID), err)
	return st, err
}

// cancelBefore cancels the run of an earlier firing, if it has not ended.
func (s *Schedules) cancelBefore(ctx context.Context, c access.Caller, name string, id state.RunID) error {
	st, err := s.store.Load(ctx, id)
	if err == nil {
		err = s.runs.abort(ctx, c, st, Canceling{Reason: "schedule " + name + " has fired again"})
	}
	if _, ended := errors.AsType[*state.TerminalError](err); ended || errors.Is(err, state.ErrNotFound) {
		return nil
	}
	return err
}
