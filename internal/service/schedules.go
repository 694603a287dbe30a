package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/schedule"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxSchedules is the maximum number of schedules of a tenant.
	maxSchedules = 10_000

	// maxScheduledRun is the maximum size of ScheduleSettings.Run, in bytes of JSON.
	maxScheduledRun = 64 << 10

	// catchUp is the default of ScheduleSettings.CatchUp.
	catchUp = 10 * time.Minute

	// shownInstants is the number of future instants in a schedule that clients read.
	shownInstants = 5

	// maxScheduleChanges is the number of attempts to change a schedule while others change the same one.
	maxScheduleChanges = 10

	timersOfSchedules state.TimerKind = "schedule"
)

// Keys of the metadata of a run that a schedule has started.
const (
	metadataSchedule    = "schedule"
	metadataScheduledAt = "scheduled_at"
)

// storedSchedule is the document of a schedule.
type storedSchedule struct {
	api.ScheduleSettings

	Status    scheduleStatus `json:"status"`
	UpdatedAt state.Time     `json:"updated_at"`
	UpdatedBy string         `json:"updated_by"`

	// StoredBy is the principal who stored the settings; UpdatedBy may have paused or resumed the schedule since.
	StoredBy string `json:"stored_by"`
}

// scheduleStatus is the part of a schedule that Turnpike changes.
type scheduleStatus struct {
	// Seen is the latest instant about which a gateway has decided, or the later time at which the schedule was stored
	// or resumed. No gateway decides again about Seen or an earlier instant, whatever clocks show.
	Seen state.Time `json:"seen"`

	// Pending is a firing that a gateway has decided, and whose run may not have been started yet.
	Pending *pendingFiring `json:"pending,omitempty"`

	Waiting *state.Time         `json:"waiting,omitempty"` // see api.Schedule
	Last    *api.ScheduleFiring `json:"last,omitempty"`
	Run     state.RunID         `json:"run,omitempty"` // the latest run that a firing has started
	Fired   int64               `json:"fired,omitempty"`
	Skipped int64               `json:"skipped,omitempty"`
}

type pendingFiring struct {
	At     state.Time  `json:"at"`
	Run    state.RunID `json:"run"`
	Cancel state.RunID `json:"cancel,omitempty"` // the run to cancel first; may be empty
}

// Schedules start runs at fixed times. They have many methods because requests and Keep, which fires
// schedules, change the same documents.
type Schedules struct {
	*core

	submissions *Submissions
	runs        *Runs
}

func scheduleNotFound(name string) error {
	return notFound(api.CodeScheduleNotFound, "there is no schedule %.64q: list them with GET /v1/schedules", name)
}

// Put creates a schedule, or replaces its settings. The schedule fires for instants after that. first reports whether
// the schedule is new.
func (s *Schedules) Put(ctx context.Context, c access.Caller, name string, settings api.ScheduleSettings) (out api.Schedule, first bool, err error) {
	if err := s.permit(ctx, c, PutSchedule); err != nil {
		return api.Schedule{}, false, err
	}
	out, first, err = s.put(ctx, c, name, settings)
	s.note(ctx, c, PutSchedule, name, err)
	return out, first, err
}

func (s *Schedules) put(ctx context.Context, c access.Caller, name string, settings api.ScheduleSettings) (out api.Schedule, first bool, err error) {
	if !resourceName.MatchString(name) {
		return out, false, invalid("schedule %.80q: the name is not valid: use 1 to 64 lowercase letters, digits and hyphens", name)
	}
	times, err := s.check(ctx, c.Tenant, name, settings)
	if err != nil {
		return out, false, err
	}
	names, err := s.store.DocumentNames(ctx, state.SchedulesOf(c.Tenant))
	if err != nil {
		return out, false, err
	}
	if !slices.Contains(names, name) && len(names) >= maxSchedules {
		return out, false, problem(conflict, api.CodeTooManySchedules, "the tenant has %d schedules, at most %d are allowed: delete one that is not in use", len(names), maxSchedules)
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return out, false, err
	}
	if err := s.checkSoon(ctx, c.Tenant, name, now.Time); err != nil {
		return out, false, err
	}
	stored, err := s.change(ctx, c.Tenant, name, func(was *storedSchedule) (*storedSchedule, error) {
		now := storedSchedule{ScheduleSettings: settings, UpdatedAt: now, UpdatedBy: c.Principal.Name, StoredBy: c.Principal.Name, Status: scheduleStatus{Seen: now}}
		if first = was == nil; !first {
			now.Status = was.Status.from(now.UpdatedAt)
		}
		return &now, nil
	})
	if err == nil {
		err = s.setTimer(ctx, c.Tenant, name, stored, times)
	}
	if err != nil {
		return out, false, err
	}
	return s.shown(name, *stored, now.Time), first, nil
}

// from returns the status of a schedule that fires only for instants after a time.
func (s scheduleStatus) from(at state.Time) scheduleStatus {
	if s.Seen.Before(at.Time) {
		s.Seen = at
	}
	return s
}

// check returns the times of a schedule, or a problem if its settings are refused. It records that the schedule uses
// the files of its run.
func (s *Schedules) check(ctx context.Context, tenant, name string, settings api.ScheduleSettings) (*schedule.Times, error) {
	times, err := timesOf(name, settings)
	if err != nil {
		return nil, invalid("%v", err)
	}
	if size, err := json.Marshal(settings.Run); err != nil || len(size) > maxScheduledRun {
		return nil, invalid("run has %d bytes of JSON, at most %d are allowed: shorten it", len(size), maxScheduledRun)
	}
	if settings.Run.StartAt != nil {
		return nil, invalid("run.start_at is not allowed, since the schedule sets the time: remove it")
	}
	for _, key := range []string{metadataSchedule, metadataScheduledAt} {
		if _, taken := settings.Run.Metadata[key]; taken {
			return nil, invalid("run.metadata.%s is reserved for Turnpike: choose another key", key)
		}
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return nil, err
	}
	run, err := s.submissions.newRun(ctx, s.firing(tenant, name, storedSchedule{ScheduleSettings: settings}, pendingFiring{At: now}))
	if err == nil {
		err = s.bind(ctx, tenant, file.User{Schedule: name}, messagesOf(run)...)
	}
	if err != nil {
		switch p := ProblemOf(err); {
		case p.Code == api.CodeNotPermitted:
			if strings.HasPrefix(p.Detail, "webhook.") { // the place of a field in run
				return nil, problem(denied, p.Code, "run.%s", p.Detail)
			}
			return nil, problem(denied, p.Code, "run: %s", p.Detail)
		case p.Status < internal.Status:
			return nil, invalid("run: %s", p.Detail)
		}
		return nil, err
	}
	return times, nil
}

// timesOf returns the times of a schedule, or an error if its settings are invalid by themselves.
func timesOf(name string, settings api.ScheduleSettings) (*schedule.Times, error) {
	jitter, late := time.Duration(settings.Jitter), lateness(settings)
	switch {
	case !slices.Contains([]string{"", api.OverlapSkip, api.OverlapQueueOne, api.OverlapAllow, api.OverlapCancel}, settings.Overlap):
		return nil, fmt.Errorf("overlap is %.40q: use %s, %s, %s or %s", settings.Overlap, api.OverlapSkip, api.OverlapQueueOne, api.OverlapAllow, api.OverlapCancel)
	case jitter != 0 && (jitter < time.Second || jitter > 24*time.Hour):
		return nil, fmt.Errorf("jitter is %s: set 1s to 24h, or omit it", jitter)
	case late < time.Minute || late > 24*time.Hour:
		return nil, fmt.Errorf("catch_up is %s: set 1m to 24h, or omit it for %s", late, catchUp)
	}
	return schedule.New(settings.Cron, settings.Timezone, name, jitter)
}

// lateness returns the time after an instant within which the schedule still fires for it.
func lateness(settings api.ScheduleSettings) time.Duration {
	if settings.CatchUp == nil {
		return catchUp
	}
	return time.Duration(*settings.CatchUp)
}

// change replaces a schedule with the result of fn, and returns the result. fn receives nil if there is no schedule.
// If another request changes the schedule at the same time, change calls fn again with the new one, so fn must not
// depend on earlier calls; after maxScheduleChanges attempts the error is a problem. If fn returns nil, change stores
// nothing and returns what fn received, which may be nil.
func (s *Schedules) change(ctx context.Context, tenant, name string, fn func(was *storedSchedule) (*storedSchedule, error)) (*storedSchedule, error) {
	for range maxScheduleChanges {
		was, raw, err := s.load(ctx, tenant, name)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return nil, err
		}
		now, err := fn(was)
		if err != nil || now == nil {
			return was, err
		}
		data, err := json.Marshal(now)
		if err != nil {
			return nil, err
		}
		if err = s.store.ReplaceDocument(ctx, state.SchedulesOf(tenant), name, raw, data); err == nil {
			return now, nil
		}
		if !errors.Is(err, state.ErrChanged) {
			return nil, err
		}
	}
	return nil, contended("schedule", name)
}

// load returns a schedule and its document, or nil and state.ErrNotFound.
func (s *Schedules) load(ctx context.Context, tenant, name string) (*storedSchedule, json.RawMessage, error) {
	if !resourceName.MatchString(name) {
		return nil, nil, state.ErrNotFound
	}
	raw, err := s.store.Document(ctx, state.SchedulesOf(tenant), name)
	if err != nil {
		return nil, nil, err
	}
	var stored storedSchedule
	if err := json.Unmarshal(raw, &stored); err != nil {
		return nil, nil, fmt.Errorf("decode schedule %s: %w", name, err)
	}
	return &stored, raw, nil
}

// checkSoon sets the timer of a schedule to fireLease from now. A request that changes the schedule calls checkSoon
// first and setTimer last: if its gateway dies in between, the gateway that claims the timer sets it.
func (s *Schedules) checkSoon(ctx context.Context, tenant, name string, now time.Time) error {
	return s.store.PutTimer(ctx, state.TimerID{Tenant: tenant, Kind: timersOfSchedules, Name: name}, now.Add(fireLease))
}

// setTimer sets the timer of a schedule that was changed. The gateway that has decided a pending firing may be dead, so
// the schedule is due soon if there is one.
func (s *Schedules) setTimer(ctx context.Context, tenant, name string, stored *storedSchedule, times *schedule.Times) error {
	now, err := s.clock.now(ctx)
	if err != nil {
		return err
	}
	var due time.Time
	if !stored.Paused {
		due = nextDue(times, stored, now.Time)
	}
	if soon := now.Add(fireLease); stored.Status.Pending != nil && (due.IsZero() || due.After(soon)) {
		due = soon
	}
	return s.store.PutTimer(ctx, state.TimerID{Tenant: tenant, Kind: timersOfSchedules, Name: name}, due)
}

// Get returns a schedule. The problem is schedule_not_found if it does not exist.
func (s *Schedules) Get(ctx context.Context, c access.Caller, name string) (api.Schedule, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Schedule{}, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return api.Schedule{}, err
	}
	stored, _, err := s.load(ctx, c.Tenant, name)
	if errors.Is(err, state.ErrNotFound) {
		err = scheduleNotFound(name)
	}
	if err != nil {
		return api.Schedule{}, err
	}
	return s.shown(name, *stored, now.Time), nil
}

// shown returns a schedule as clients see it. A paused schedule has no next instants.
func (s *Schedules) shown(name string, stored storedSchedule, now time.Time) api.Schedule {
	out := api.Schedule{
		Name: name, ScheduleSettings: stored.ScheduleSettings, Next: []state.Time{}, Last: stored.Status.Last, Waiting: stored.Status.Waiting,
		Fired: stored.Status.Fired, Skipped: stored.Status.Skipped, UpdatedAt: stored.UpdatedAt, UpdatedBy: stored.UpdatedBy,
	}
	times, err := timesOf(name, stored.ScheduleSettings)
	if err != nil || stored.Paused {
		return out
	}
	at := now
	if seen := stored.Status.Seen.Time; seen.After(at) {
		at = seen
	}
	for range shownInstants {
		if at = times.Next(at); at.IsZero() {
			break
		}
		out.Next = append(out.Next, state.At(at))
	}
	return out
}

// List returns a page of the schedules of the caller's tenant, by name.
func (s *Schedules) List(ctx context.Context, c access.Caller, p Page) (api.Page[api.Schedule], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.Schedule]{}, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return api.Page[api.Schedule]{}, err
	}
	names, err := s.store.DocumentNames(ctx, state.SchedulesOf(c.Tenant))
	if err != nil {
		return api.Page[api.Schedule]{}, err
	}
	return readPage(ctx, s.core, p, names, func(ctx context.Context, name string) (api.Schedule, int, error) {
		stored, raw, err := s.load(ctx, c.Tenant, name)
		if err != nil {
			return api.Schedule{}, 0, err
		}
		return s.shown(name, *stored, now.Time), len(raw), nil
	})
}

// Delete deletes a schedule. The runs that it has started continue, but a run that waits for the end of another is not
// started.
func (s *Schedules) Delete(ctx context.Context, c access.Caller, name string) error {
	if err := s.permit(ctx, c, DeleteSchedule); err != nil {
		return err
	}
	_, _, err := s.load(ctx, c.Tenant, name)
	if err == nil {
		err = s.remove(ctx, c.Tenant, name)
	}
	if errors.Is(err, state.ErrNotFound) {
		err = scheduleNotFound(name)
	}
	s.note(ctx, c, DeleteSchedule, name, err)
	return err
}

// remove deletes a schedule and its timers. After a failure a timer may remain; it is removed when it is due.
func (s *Schedules) remove(ctx context.Context, tenant, name string) error {
	if err := s.store.DeleteDocument(ctx, state.SchedulesOf(tenant), name); err != nil {
		return err
	}
	for _, timer := range []string{name, name + waitingSuffix} {
		if err := s.store.PutTimer(ctx, state.TimerID{Tenant: tenant, Kind: timersOfSchedules, Name: timer}, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// removeAll deletes the schedules of a tenant.
func (s *Schedules) removeAll(ctx context.Context, tenant string) error {
	return s.eachDocument(ctx, state.SchedulesOf(tenant), func(ctx context.Context, name string) error { return s.remove(ctx, tenant, name) })
}

// Pause pauses a schedule if paused is true. Otherwise it resumes the schedule, for instants after the call. A paused
// schedule still starts a run that waits for the end of an earlier one, or whose firing was decided before. If the
// schedule is already in the requested state, Pause does not change it.
func (s *Schedules) Pause(ctx context.Context, c access.Caller, name string, paused bool) (api.Schedule, error) {
	o := PauseSchedule
	if !paused {
		o = ResumeSchedule
	}
	if err := s.permit(ctx, c, o); err != nil {
		return api.Schedule{}, err
	}
	out, err := s.pause(ctx, c, name, paused)
	s.note(ctx, c, o, name, err)
	return out, err
}

func (s *Schedules) pause(ctx context.Context, c access.Caller, name string, paused bool) (api.Schedule, error) {
	now, err := s.clock.now(ctx)
	if err != nil {
		return api.Schedule{}, err
	}
	if !paused {
		if err := s.checkSoon(ctx, c.Tenant, name, now.Time); err != nil {
			return api.Schedule{}, err
		}
	}
	stored, err := s.change(ctx, c.Tenant, name, func(was *storedSchedule) (*storedSchedule, error) {
		if was == nil {
			return nil, scheduleNotFound(name)
		}
		if was.Paused == paused {
			return nil, nil //nolint:nilnil // nothing changes
		}
		was.Paused, was.UpdatedAt, was.UpdatedBy = paused, now, c.Principal.Name
		if !paused {
			was.Status = was.Status.from(now)
		}
		return was, nil
	})
	if err != nil {
		return api.Schedule{}, err
	}
	times, err := timesOf(name, stored.ScheduleSettings)
	if err == nil {
		err = s.setTimer(ctx, c.Tenant, name, stored, times)
	}
	return s.shown(name, *stored, now.Time), err
}

// Run starts the run of a schedule now, even if the schedule is paused or an earlier run has not ended. Calls with the
// same key return the same run for at least a week, unless that is deleted before; each call with an empty key starts
// another.
func (s *Schedules) Run(ctx context.Context, c access.Caller, name, key string) (state.State, error) {
	if err := s.permit(ctx, c, RunSchedule); err != nil {
		return state.State{}, err
	}
	st, err := s.run(ctx, c, name, key)
	s.note(ctx, c, RunSchedule, name, err)
	return st, err
}

func (s *Schedules) run(ctx context.Context, c access.Caller, name, key string) (state.State, error) {
	stored, _, err := s.load(ctx, c.Tenant, name)
	if errors.Is(err, state.ErrNotFound) {
		err = scheduleNotFound(name)
	}
	if err != nil {
		return state.State{}, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return state.State{}, err
	}
	sub := s.firing(c.Tenant, name, *stored, pendingFiring{At: now})
	sub.caller, sub.key = c.For(sub.caller.Requesters...), ""
	if key != "" {
		if err := checkKey(key); err != nil {
			return state.State{}, err
		}
		sub.key = "request " + key
	}
	sub.body = []byte("schedule " + name)
	return s.submissions.submit(ctx, sub)
}

// firing returns the submission of a firing. The schedule and the instant alone decide whether two firings are the
// same: the settings may change in between.
func (s *Schedules) firing(tenant, name string, stored storedSchedule, p pendingFiring) submission {
	at := p.At.UTC().Format(time.RFC3339)
	req := stored.Run
	if req.Metadata = maps.Clone(req.Metadata); req.Metadata == nil {
		req.Metadata = map[string]string{}
	}
	req.Metadata[metadataSchedule], req.Metadata[metadataScheduledAt] = name, at
	return submission{
		caller: access.ForSchedule(tenant, name).For(stored.StoredBy, stored.UpdatedBy), req: req, id: p.Run, schedule: name, key: at, body: []byte("schedule " + name + " " + at),
	}
}
