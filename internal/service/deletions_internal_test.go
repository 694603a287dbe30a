package service

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/retention"
)

// The metrics of retention show its counts and the age of the oldest deletion that is not done, as they are when read.
func TestDeletionMetrics(t *testing.T) {
	t.Parallel()
	now := retention.Stats{Deleted: 7, Backlog: 3, Age: 90 * time.Second}
	r := prometheus.NewRegistry()
	if err := r.Register(newDeletions(func() retention.Stats { return now })); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want map[string]float64) {
		t.Helper()
		all, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range all {
			m := family.GetMetric()[0]
			if got[family.GetName()] = m.GetGauge().GetValue(); m.GetCounter() != nil {
				got[family.GetName()] = m.GetCounter().GetValue()
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	check("during a pass", map[string]float64{"turnpike_runs_deleted_total": 7, "turnpike_deletion_backlog": 3, "turnpike_deletion_age_seconds": 90})
	now = retention.Stats{Deleted: 10}
	check("after it", map[string]float64{"turnpike_runs_deleted_total": 10, "turnpike_deletion_backlog": 0, "turnpike_deletion_age_seconds": 0})
}
