package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type agentsCmd struct {
	Ls  agentsLsCmd  `cmd:"" default:"1" help:"List agents."`
	Get agentsGetCmd `cmd:"" help:"Show an agent."`
	Put agentsPutCmd `cmd:"" help:"Define an agent from a YAML or JSON file."`
	Rm  agentsRmCmd  `cmd:"" help:"Remove an agent."`

	Versions agentsVersionsCmd `cmd:"" help:"List the versions of an agent, with a summary of their runs."`

	Drafts  agentsDraftsCmd  `cmd:"" help:"List drafts that wait for review, or show the draft of an agent."`
	Publish agentsPublishCmd `cmd:"" help:"Publish another author's draft."`
	Discard agentsDiscardCmd `cmd:"" help:"Remove a draft."`
}

type agentsLsCmd struct{}

func (*agentsLsCmd) Run(e *env) error {
	list, err := e.client.Agents(e.ctx)
	if err != nil {
		return err
	}
	return e.print(api.NewPage(list, ""), table("AGENT\tVERSION\tCREATED", list, func(a api.Agent) string {
		return fmt.Sprintf("%s\t%d\t%s", a.Name, a.Version, a.CreatedAt.Local().Format(time.DateTime))
	}))
}

type agentsGetCmd struct {
	Name string `arg:"" complete:"agent"`
}

func (c *agentsGetCmd) Run(e *env) error {
	a, err := e.client.Agent(e.ctx, c.Name)
	if err != nil {
		return misspelt(e, c.Name, err)
	}
	if e.json {
		return e.print(a, "")
	}
	return e.document(a.Definition)
}

type agentsPutCmd struct {
	File []string `arg:"" help:"Files, one agent each; - is standard input."`
}

func (c *agentsPutCmd) Run(e *env) error {
	for _, f := range c.File { // check all before saving any
		if f == stdin {
			continue
		}
		if info, err := os.Stat(f); err != nil {
			return named(err)
		} else if info.IsDir() {
			return usagef("%s is a directory: name the files in it", f)
		}
	}
	var errs []error
	saved := map[string]bool{}
	warnings := map[string][]api.Warning{}
	for _, f := range c.File {
		a, err := saveFile(e, f)
		if err == nil {
			saved[a.Name], warnings[f] = true, a.Warnings
			text := fmt.Sprintf("%s version %d", a.Name, a.Version)
			if a.Status == api.StatusDraft {
				text += fmt.Sprintf(", a draft: another person reviews and publishes it (turnpike agents drafts %s)", a.Name)
			}
			err = e.print(a, text)
		}
		errs = append(errs, err)
	}
	for _, f := range c.File {
		// An agent may delegate to an agent in a later file.
		e.warn(f, slices.DeleteFunc(warnings[f], func(w api.Warning) bool { return w.Kind == string(lookup.Agent) && saved[w.Name] }))
	}
	return errors.Join(errs...)
}

type agentsRmCmd struct {
	Name string `arg:"" complete:"agent"`
}

func (c *agentsRmCmd) Run(e *env) error {
	if err := e.client.DeleteAgent(e.ctx, c.Name); err != nil {
		return misspelt(e, c.Name, err)
	}
	return e.print(map[string]string{"removed": c.Name}, "removed "+c.Name)
}

type agentsVersionsCmd struct {
	Name  string `arg:"" complete:"agent" help:"Agent."`
	Limit int    `default:"20" help:"Maximum number of rows, the newest first; at most 1000."`
}

func (c *agentsVersionsCmd) Run(e *env) error {
	if err := checkLimit(c.Limit); err != nil {
		return err
	}
	page, err := e.client.AgentVersions(e.ctx, c.Name, "", c.Limit)
	if err != nil {
		return misspelt(e, c.Name, err)
	}
	return e.print(page, table("VERSION\tCREATED\tRUNS\tCOMPLETED\tFAILED\tCANCELLED\tCOST\tHALF\t95%", page.Items, func(v api.AgentVersionStats) string {
		r := v.Runs
		return fmt.Sprintf("%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s", v.Version, v.CreatedAt.Local().Format(time.DateTime), r.Total,
			r.Statuses[state.Completed], r.Statuses[state.Failed], r.Statuses[state.Cancelled], cost(r.CostUSD), took(r.DurationMS.P50), took(r.DurationMS.P95))
	}))
}

// took formats a duration in milliseconds.
func took(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return (time.Duration(*ms) * time.Millisecond).String()
}

type agentsDraftsCmd struct {
	Name string `arg:"" optional:"" help:"Agent whose draft to show."`
}

func (c *agentsDraftsCmd) Run(e *env) error {
	if c.Name != "" {
		d, err := e.client.AgentDraft(e.ctx, c.Name)
		if err != nil {
			return err
		}
		return e.print(d, fmt.Sprintf("%s\nhash %s, by %s", d.Definition, d.Hash, d.By.Principal))
	}
	list, err := e.client.AgentDrafts(e.ctx)
	if err != nil {
		return err
	}
	return e.print(api.NewPage(list, ""), table("AGENT\tVERSION\tBY\tWRITTEN\tHASH", list, func(d api.AgentDraft) string {
		return fmt.Sprintf("%s\t%d\t%s\t%s\t%s", d.Name, d.Version, d.By.Principal, d.CreatedAt.Local().Format(time.DateTime), d.Hash)
	}))
}

type agentsPublishCmd struct {
	Name string `arg:"" help:"Agent."`
	Hash string `help:"Hash of the draft that you reviewed, as \"turnpike agents drafts\" shows it."`
}

func (c *agentsPublishCmd) Run(e *env) error {
	if c.Hash == "" {
		return usagef("--hash is missing: review the draft with \"turnpike agents drafts %s\", and give the hash that it prints", c.Name)
	}
	a, err := e.client.PublishAgent(e.ctx, c.Name, c.Hash)
	if err != nil {
		return err
	}
	return e.print(a, fmt.Sprintf("%s version %d", a.Name, a.Version))
}

type agentsDiscardCmd struct {
	Name string `arg:"" help:"Agent."`
}

func (c *agentsDiscardCmd) Run(e *env) error {
	if err := e.client.DiscardAgentDraft(e.ctx, c.Name); err != nil {
		return err
	}
	return e.print(map[string]string{"discarded": c.Name}, "discarded the draft of "+c.Name)
}
