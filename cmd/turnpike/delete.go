package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

type deleteCmd struct {
	ID string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
}

func (c *deleteCmd) Run(e *env) error {
	if err := e.client.Delete(e.ctx, c.ID); err != nil {
		return err
	}
	return e.print(map[string]string{"deleted": c.ID}, "deleted "+c.ID)
}

type gcCmd struct {
	OlderThan string `name:"older-than" required:"" placeholder:"DURATION" help:"Delete runs that ended longer ago: 30d, 72h, 90m."`
	DryRun    bool   `name:"dry-run" help:"Only count them; -o json names them."`
}

func (c *gcCmd) Run(e *env) error {
	period, err := agent.ParsePeriod(c.OlderThan)
	if err != nil {
		return usagef("--older-than: %w", err)
	}
	until := time.Now().Add(-time.Duration(period))
	q := url.Values{"status": {"completed,incomplete,failed,cancelled"}, "created_before": {until.UTC().Format(time.RFC3339)}, "limit": {strconv.Itoa(200)}}
	ids := []string{}
	for {
		page, err := e.client.List(e.ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Items {
			if r.FinishedAt.IsZero() || r.FinishedAt.After(until) || r.Parent != nil {
				continue // the deletion of a run deletes its child runs
			}
			gone, err := c.forget(e, r.ID)
			if err != nil {
				return err
			}
			if gone {
				ids = append(ids, r.ID)
			}
		}
		if page.NextCursor == nil {
			break
		}
		q.Set("cursor", *page.NextCursor)
	}
	what := "deleted"
	if c.DryRun {
		what = "would delete"
	}
	return e.print(map[string]any{"runs": ids, "dry_run": c.DryRun}, fmt.Sprintf("%s %d runs that ended more than %s ago", what, len(ids), period))
}

// forget deletes one run. It returns false if the run was already deleted or has continued, and true without deleting
// anything in a dry run.
func (c *gcCmd) forget(e *env, id string) (bool, error) {
	if c.DryRun {
		return true, nil
	}
	err := e.client.Delete(e.ctx, id)
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Status == http.StatusNotFound || p.Status == http.StatusConflict) {
		return false, nil
	}
	return err == nil, err
}
