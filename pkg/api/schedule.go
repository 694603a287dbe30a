package api

import (
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The behaviour of a schedule when it fires while the run of its previous firing has not ended.
const (
	OverlapSkip     = "skip"      // starts no run; the default
	OverlapQueueOne = "queue_one" // starts the run when the other has ended; skips further firings while one waits
	OverlapAllow    = "allow"     // starts the run in addition to the other
	OverlapCancel   = "cancel"    // cancels the other and starts the run
)

// ScheduleSettings are the settings of a schedule, which starts a run at fixed times.
type ScheduleSettings struct {
	// Cron has five fields (minute, hour, day of the month, month, day of the week), or is @hourly, @daily,
	// @weekly, @monthly or @yearly.
	Cron string `json:"cron"`

	// Timezone is a name in the IANA database, such as Europe/Berlin. Default: UTC.
	Timezone string `json:"timezone,omitempty"`

	// Run is the submission of each firing, at most 64 KiB of JSON. The gateway adds to its metadata the name of the
	// schedule as schedule, and the instant as scheduled_at. It must not have StartAt or these keys.
	Run SubmitRequest `json:"run"`

	Overlap string `json:"overlap,omitempty"` // OverlapSkip, OverlapQueueOne, OverlapAllow or OverlapCancel

	// Jitter is the maximum delay of each firing, from one second to 24 hours, so that many schedules do not fire at
	// once. No firing is delayed beyond the next one. Default: none.
	Jitter model.Duration `json:"jitter,omitempty"`

	Paused bool `json:"paused,omitempty"` // the schedule does not fire

	// CatchUp bounds how late the schedule decides to fire: after an outage it fires only for the latest instant, and
	// only if that, with its delay by Jitter, was at most CatchUp ago. A firing that waits for another run
	// (OverlapQueueOne) may start later. From one minute to 24 hours. Nil means 10 minutes.
	CatchUp *model.Duration `json:"catch_up,omitempty"`
}

// Schedule is a schedule with its name and its firings.
type Schedule struct {
	Name string `json:"name"`

	ScheduleSettings

	Next    []state.Time    `json:"next"`              // next five instants, without jitter; none while paused
	Last    *ScheduleFiring `json:"last,omitempty"`    // the latest firing
	Waiting *state.Time     `json:"waiting,omitempty"` // the instant whose run waits for the end of another
	Fired   int64           `json:"fired"`             // number of runs that its firings have started
	Skipped int64           `json:"skipped"`           // number of firings without a run because of Overlap

	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}

// ScheduleFiring is the result of one instant of a schedule.
type ScheduleFiring struct {
	At    state.Time `json:"at"` // the instant
	RunID string     `json:"run_id,omitempty"`
	Error string     `json:"error,omitempty"` // the reason why no run was started
}
