package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type statsCmd struct {
	By    string   `enum:"agent,model,none" default:"agent" help:"Print a row for each ${enum}."`
	Since lifetime `default:"24h" help:"Time from now back to the first hour, such as 24h or 7d; at most 90d, and 7d with --step hour."`
	Step  string   `enum:"hour,day,all" default:"all" help:"Time that a row covers: ${enum}."`
	Agent string   `complete:"agent" help:"Only runs of this agent."`
	Model string   `help:"Only what used this model."`
	Limit int      `default:"20" help:"Maximum number of agents or models, those with the most runs; at most 50."`
	JSON  bool     `name:"json" help:"Print JSON, like --output json."`
}

func (c *statsCmd) Run(e *env) error {
	q := api.StatsQuery{By: c.By, Step: c.Step, Agent: c.Agent, Model: c.Model, Limit: c.Limit, From: time.Now().Add(-time.Duration(c.Since))}
	if c.By == "none" {
		q.By = ""
	}
	stats, err := e.client.Stats(e.ctx, q)
	if err != nil {
		return err
	}
	if c.JSON {
		e.json = true
	}
	return e.print(stats, table("START\tNAME\tENDED\tFAILED\tTOKENS IN\tOUT\tCOST\tEXPIRED\tQUEUE 50%\t95%\tMODEL 50%\t95%\tTOOL 50%\t95%\tREASONS", stats.Items, func(r api.StatsRow) string {
		name := r.Name
		if name == "" {
			name = "-"
		}
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", r.Start.Local().Format("2006-01-02 15:04"), name, r.Runs, r.Failed, r.InputTokens, r.OutputTokens, known(r.CostUSD), known(r.CacheExpiredCostUSD),
			took(r.Queue.P50MS), took(r.Queue.P95MS), took(r.Model.P50MS), took(r.Model.P95MS), took(r.Tool.P50MS), took(r.Tool.P95MS), reasons(r.Reasons))
	}))
}

// known formats a sum of costs, in which calls without a known price count as 0.
func known(sum state.MicroUSD) string {
	if sum == 0 {
		return cost(nil)
	}
	return cost(&sum)
}

// reasons formats the numbers of ended runs by reason, the most frequent first.
func reasons(ends map[state.Reason]int64) string {
	var names []state.Reason
	for reason := range ends {
		names = append(names, reason)
	}
	slices.SortFunc(names, func(a, b state.Reason) int {
		if n := ends[b] - ends[a]; n != 0 {
			return int(n)
		}
		return strings.Compare(string(a), string(b))
	})
	texts := make([]string, len(names))
	for i, reason := range names {
		texts[i] = fmt.Sprintf("%s %d", reason, ends[reason])
	}
	return strings.Join(texts, ", ")
}
