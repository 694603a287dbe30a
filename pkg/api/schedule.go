package api

import (
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// What a schedule does when it fires while the run of the firing before has not ended.
const (
	OverlapSkip     = "skip"      // nothing; the default
	OverlapQueueOne = "queue_one" // starts the run when the other has ended; while one waits so, it skips
	OverlapAllow    = "allow"     // starts the run beside the other
	OverlapCancel   = "cancel"    // cancels the other and starts the run
)

// ScheduleSettings are what an author has set for a schedule, which starts a run at fixed times.
type ScheduleSettings struct {
	// Cron has five fields (minute, hour, day of the month, month, day of the week), or is @hourly, @daily,
	// @weekly, @monthly or @yearly.
	Cron string `json:"cron"`

	// Timezone is of the IANA database, such as Europe/Berlin. Default: UTC.
	Timezone string `json:"timezone,omitempty"`

	// Run is the submission of each firing, at most 64 KiB. Its metadata also gets the name of the
	// schedule as schedule, and the instant as scheduled_at. It must not have StartAt.
	Run SubmitRequest `json:"run"`

	Overlap string `json:"overlap,omitempty"` // see OverlapSkip

	// Jitter delays each firing by up to that time and never beyond the next one, so that many schedules
	// do not fire at once. From one second to 24 hours.
	Jitter model.Duration `json:"jitter,omitempty"`

	Paused bool `json:"paused,omitempty"` // it does not fire

	// CatchUp is how late a firing may be: after an outage the latest one that is not later takes place,
	// and the others do not. From one minute to 24 hours. Default: 10 minutes.
	CatchUp model.Duration `json:"catch_up,omitempty"`
}

// Schedule is a schedule with its name and what became of it.
type Schedule struct {
	Name string `json:"name"`

	ScheduleSettings

	Next    []state.Time    `json:"next"`              // its next instants, without jitter: five, or none while it is paused
	Last    *ScheduleFiring `json:"last,omitempty"`    // the latest firing
	Waiting *state.Time     `json:"waiting,omitempty"` // the instant whose run waits for the end of another
	Fired   int64           `json:"fired"`             // number of runs that it has started, those on request not among them
	Skipped int64           `json:"skipped"`           // number of firings that Overlap has skipped

	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}

// ScheduleFiring is what became of one instant of a schedule.
type ScheduleFiring struct {
	At    state.Time `json:"at"` // the instant
	RunID string     `json:"run_id,omitempty"`
	Error string     `json:"error,omitempty"` // why no run was started
}
