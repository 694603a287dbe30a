package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// versionRuns is how many runs of an agent are looked at to sum up those of its versions.
const versionRuns = 1000

// listVersions tells which versions an agent has, the newest first, and what came of their
// runs. Their definitions are those of GET /v1/agents/{name}?version=.
func (g *Gateway) listVersions(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	tenant, name := tenantOf(r), r.PathValue("name")
	latest, err := g.store.Agent(r.Context(), tenant, name, 0)
	if err != nil {
		return agentError(err)
	}
	from := latest.Version
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil || from < 1 || from > latest.Version {
			return problem(http.StatusBadRequest, api.CodeInvalidCursor, "the cursor is not one that a list gave")
		}
	}
	runs, examined := map[int][]state.State{}, 0
	more, err := g.eachRun(r.Context(), state.Filter{Tenant: tenant, Agent: name, Limit: versionRuns}, func(st state.State) {
		examined++
		slim := state.State{Status: st.Status, Usage: st.Usage, StartedAt: st.StartedAt, FinishedAt: st.FinishedAt, IdleMS: st.IdleMS} // a run has up to a megabyte
		runs[st.AgentVersion] = append(runs[st.AgentVersion], slim)
	})
	if err != nil {
		return err
	}
	answer := api.AgentVersions{Examined: examined, Complete: more == ""}
	to := max(0, from-limit)
	answer.Items = make([]api.AgentVersionStats, from-to)
	err = g.readEach(r.Context(), from-to, func(ctx context.Context, i int) (err error) {
		v, n := latest, from-i
		if n != latest.Version {
			if v, err = g.store.Agent(ctx, tenant, name, n); err != nil {
				return agentError(err)
			}
		}
		answer.Items[i] = api.AgentVersionStats{Version: n, CreatedAt: v.CreatedAt, Latest: n == latest.Version, Runs: statsOf(runs[n])}
		return nil
	})
	if err != nil {
		return err
	}
	next := ""
	if to > 0 {
		next = strconv.Itoa(to)
	}
	answer.Page = api.NewPage(answer.Items, next)
	return reply(w, http.StatusOK, answer)
}

// statsOf sums up runs.
func statsOf(runs []state.State) api.RunStats {
	s := api.RunStats{Total: len(runs), Statuses: map[state.Status]int{}}
	var took []int64
	for _, st := range runs {
		s.Statuses[st.Status]++
		if st.Usage.CostUSD != nil {
			s.CostUSD += *st.Usage.CostUSD
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
