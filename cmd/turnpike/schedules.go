package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type schedulesCmd struct {
	Put    schedulesPutCmd    `cmd:"" help:"Store a schedule from a file: it starts a run each time that its cron expression names."`
	Ls     schedulesLsCmd     `cmd:"" help:"List schedules."`
	Show   schedulesShowCmd   `cmd:"" help:"Show a schedule with its next instants and its latest run."`
	Pause  schedulesPauseCmd  `cmd:"" help:"Stop a schedule from firing."`
	Resume schedulesResumeCmd `cmd:"" help:"Let a schedule fire again, for instants from now on."`
	Run    schedulesRunCmd    `cmd:"" help:"Start the run of a schedule now, and print its id."`
	Rm     schedulesRmCmd     `cmd:"" help:"Remove a schedule. Its runs continue."`
}

type schedulesPutCmd struct {
	Name string `arg:"" help:"Name of the schedule."`
	File string `arg:"" help:"File with the settings in YAML or JSON; - is standard input."`
}

func (c *schedulesPutCmd) Run(e *env) error {
	var read api.Schedule
	if err := e.decodeNamed(c.File, c.Name, &read, &read.Name); err != nil {
		return err
	}
	s, err := e.client.PutSchedule(e.ctx, c.Name, read.ScheduleSettings)
	if err != nil {
		return err
	}
	return e.print(s, "schedule "+s.Name+" "+nextOf(s))
}

// nextOf returns a text with the next time of a schedule.
func nextOf(s api.Schedule) string {
	switch {
	case s.Paused:
		return "is paused"
	case len(s.Next) == 0:
		return "fires no more"
	default:
		return "fires next at " + s.Next[0].UTC().Format(time.RFC3339)
	}
}

type schedulesLsCmd struct {
	Limit int `default:"200" help:"Maximum number of schedules."`
}

func (c *schedulesLsCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.Schedule], error) {
		return e.client.Schedules(e.ctx, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("NAME\tCRON\tTIMEZONE\tAGENT\tNEXT\tFIRED\tSKIPPED\tLAST", page.Items, func(s api.Schedule) string {
		zone, next, last := s.Timezone, "paused", "-"
		if zone == "" {
			zone = "UTC"
		}
		if len(s.Next) > 0 {
			next = s.Next[0].UTC().Format(time.RFC3339)
		}
		if s.Last != nil {
			last = s.Last.RunID + s.Last.Error
		}
		return strings.Join([]string{s.Name, s.Cron, zone, s.Run.Agent, next, strconv.FormatInt(s.Fired, 10), strconv.FormatInt(s.Skipped, 10), last}, "\t")
	}))
}

type schedulesShowCmd struct {
	Name string `arg:"" help:"Name of the schedule."`
}

func (c *schedulesShowCmd) Run(e *env) error {
	s, err := e.client.Schedule(e.ctx, c.Name)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(s)
	if err != nil {
		return err
	}
	return e.print(s, strings.TrimSuffix(string(text), "\n"))
}

type schedulesPauseCmd struct {
	Name string `arg:"" help:"Name of the schedule."`
}

func (c *schedulesPauseCmd) Run(e *env) error {
	s, err := e.client.PauseSchedule(e.ctx, c.Name)
	if err != nil {
		return err
	}
	return e.print(s, "schedule "+s.Name+" "+nextOf(s))
}

type schedulesResumeCmd struct {
	Name string `arg:"" help:"Name of the schedule."`
}

func (c *schedulesResumeCmd) Run(e *env) error {
	s, err := e.client.ResumeSchedule(e.ctx, c.Name)
	if err != nil {
		return err
	}
	return e.print(s, "schedule "+s.Name+" "+nextOf(s))
}

type schedulesRunCmd struct {
	Name string `arg:"" help:"Name of the schedule."`
	Key  string `help:"Idempotency key: calls with the same one start one run."`
}

func (c *schedulesRunCmd) Run(e *env) error {
	run, err := e.client.RunSchedule(e.ctx, c.Name, c.Key)
	if err != nil {
		return err
	}
	return e.print(run, run.ID)
}

type schedulesRmCmd struct {
	Name string `arg:"" help:"Name of the schedule."`
}

func (c *schedulesRmCmd) Run(e *env) error {
	if err := e.client.DeleteSchedule(e.ctx, c.Name); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": c.Name}, fmt.Sprintf("removed schedule %s", c.Name))
}
