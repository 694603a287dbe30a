package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

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
	Hash string `help:"Of the draft that you have looked at, as \"turnpike agents drafts\" shows it."`
}

func (c *agentsPublishCmd) Run(e *env) error {
	if c.Hash == "" {
		return errors.New("--hash is missing: look at the draft with \"turnpike agents drafts " + c.Name + "\", and name its hash")
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

func (c *agentsDiscardCmd) Run(e *env) error { return e.client.DiscardAgentDraft(e.ctx, c.Name) }
