package main

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type triggersCmd struct {
	Put  triggersPutCmd  `cmd:"" help:"Store a trigger from a file: each message of a JetStream stream starts a run or sends a signal."`
	Ls   triggersLsCmd   `cmd:"" help:"List triggers."`
	Show triggersShowCmd `cmd:"" help:"Show a trigger and its status."`
	Rm   triggersRmCmd   `cmd:"" help:"Remove a trigger and its consumer. Its runs continue."`
}

type triggersPutCmd struct {
	Name string `arg:"" help:"Name of the trigger."`
	File string `arg:"" help:"File with the settings in YAML or JSON; - is standard input."`
}

func (c *triggersPutCmd) Run(e *env) error {
	var read api.Trigger
	if err := e.decodeNamed(c.File, c.Name, &read, &read.Name); err != nil {
		return err
	}
	t, err := e.client.PutTrigger(e.ctx, c.Name, read.TriggerSettings)
	if err != nil {
		return err
	}
	e.warn(c.File, t.Warnings)
	does := "reads"
	if t.Paused {
		does = "is paused, and will read"
	}
	return e.print(t, fmt.Sprintf("trigger %s %s %s messages of stream %s", t.Name, does, t.From, t.Stream))
}

type triggersLsCmd struct {
	Limit int `default:"200" help:"Maximum number of triggers."`
}

func (c *triggersLsCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.Trigger], error) {
		return e.client.Triggers(e.ctx, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("NAME\tSTREAM\tSUBJECTS\tAGENT\tPAUSED\tDEAD", page.Items, func(t api.Trigger) string {
		agent, subjects := "-", "all"
		if t.Run != nil {
			agent = t.Run.Agent
		}
		if len(t.Subjects) > 0 {
			subjects = strings.Join(t.Subjects, ",")
		}
		return strings.Join([]string{t.Name, t.Stream, subjects, agent, fmt.Sprint(t.Paused), fmt.Sprint(t.Status.Dead)}, "\t")
	}))
}

type triggersShowCmd struct {
	Name string `arg:"" help:"Name of the trigger."`
}

func (c *triggersShowCmd) Run(e *env) error {
	t, err := e.client.Trigger(e.ctx, c.Name)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(t)
	if err != nil {
		return err
	}
	return e.print(t, strings.TrimSuffix(string(text), "\n"))
}

type triggersRmCmd struct {
	Name string `arg:"" help:"Name of the trigger."`
}

func (c *triggersRmCmd) Run(e *env) error {
	if err := e.client.DeleteTrigger(e.ctx, c.Name); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": c.Name}, "removed trigger "+c.Name)
}
