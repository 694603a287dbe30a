package api

import (
	"net/url"
	"time"
)

// Filter selects runs. The zero value selects all runs of the tenant.
type Filter struct {
	Agent         string
	Loop          string
	Parent        string // id of the parent run
	Batch         string
	WaitingReason string

	// CreatedAfter and CreatedBefore bound the time of submission; zero: no bound.
	CreatedAfter, CreatedBefore time.Time

	// Statuses selects runs with one of these statuses; empty: any.
	Statuses []string

	// Metadata selects runs that have all these values.
	Metadata map[string]string
}

// Query returns f as the parameters of GET /v1/runs.
func (f Filter) Query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"agent": f.Agent, "loop": f.Loop, "parent": f.Parent, "batch": f.Batch, "waiting_reason": f.WaitingReason} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for name, at := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	for _, s := range f.Statuses {
		q.Add("status", s)
	}
	for k, v := range f.Metadata {
		q.Set("metadata."+k, v)
	}
	return q
}
