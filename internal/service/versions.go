package service

import (
	"context"
	"slices"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// versionRuns is the maximum number of an agent's runs that Versions reads, the newest first, to summarize its
// versions.
const versionRuns = 1000

// Versions returns the versions of an agent, the newest first, with a summary of their runs. Get
// returns their definitions.
func (s *Agents) Versions(ctx context.Context, c access.Caller, name string, p Page) (api.AgentVersions, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.AgentVersions{}, err
	}
	tenant := c.Tenant
	latest, err := s.store.Agent(ctx, tenant, name, 0)
	if err != nil {
		return api.AgentVersions{}, agentError(err)
	}
	from := latest.Version
	if p.Cursor != "" {
		if from, err = strconv.Atoi(p.Cursor); err != nil || from < 1 || from > latest.Version {
			return api.AgentVersions{}, invalidCursor()
		}
	}
	runs, examined := map[int][]state.State{}, 0
	more, err := s.eachRun(ctx, state.Filter{Tenant: tenant, Agent: name, Limit: versionRuns}, func(st state.State) {
		examined++
		slim := state.State{Status: st.Status, Usage: st.Usage, StartedAt: st.StartedAt, FinishedAt: st.FinishedAt, IdleMS: st.IdleMS, Trouble: st.Trouble} // a run has up to a megabyte
		runs[st.AgentVersion] = append(runs[st.AgentVersion], slim)
	})
	if err != nil {
		return api.AgentVersions{}, err
	}
	answer := api.AgentVersions{Examined: examined, Complete: more == ""}
	to := max(0, from-p.Limit)
	answer.Items = make([]api.AgentVersionStats, from-to)
	err = s.readEach(ctx, from-to, func(ctx context.Context, i int) (err error) {
		v, n := latest, from-i
		if n != latest.Version {
			if v, err = s.store.Agent(ctx, tenant, name, n); err != nil {
				return agentError(err)
			}
		}
		answer.Items[i] = api.AgentVersionStats{Version: n, CreatedAt: v.CreatedAt, Latest: n == latest.Version, Runs: statsOf(runs[n])}
		return nil
	})
	if err != nil {
		return api.AgentVersions{}, err
	}
	next := ""
	if to > 0 {
		next = strconv.Itoa(to)
	}
	answer.Page = api.NewPage(answer.Items, next)
	return answer, nil
}

// statsOf sums up runs.
func statsOf(runs []state.State) api.RunStats {
	s := api.RunStats{Total: len(runs), Statuses: map[state.Status]int{}}
	var took []int64
	for _, st := range runs {
		s.Statuses[st.Status]++
		if st.Trouble.Any() {
			s.Troubled++
		}
		if st.Usage.CostUSD != nil {
			if s.CostUSD == nil {
				s.CostUSD = new(state.MicroUSD)
			}
			*s.CostUSD += *st.Usage.CostUSD
		}
		if st.Status.Terminal() && !st.StartedAt.IsZero() {
			took = append(took, max(0, st.FinishedAt.Sub(st.StartedAt.Time).Milliseconds()-st.IdleMS))
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		s.DurationMS.P50, s.DurationMS.P95 = &took[(len(took)-1)*50/100], &took[(len(took)-1)*95/100]
	}
	return s
}
