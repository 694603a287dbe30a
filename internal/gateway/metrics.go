package gateway

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// countsTimeout bounds how long a scrape waits for the numbers of runs.
const countsTimeout = 2 * time.Second

// statuses exports the number of runs by status. Each scrape reads the numbers from the store. If the store does not
// answer, it exports none instead of old ones.
type statuses struct {
	counts func(context.Context) (map[state.Status]int64, error)
	desc   *prometheus.Desc
}

func newStatuses(store state.Schedule) *statuses {
	return &statuses{store.Counts, prometheus.NewDesc("turnpike_runs", "Runs of the deployment by status.", []string{"status"}, nil)}
}

// Describe implements prometheus.Collector.
func (s *statuses) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s *statuses) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countsTimeout)
	defer cancel()
	counts, err := s.counts(ctx)
	if err != nil {
		return
	}
	for _, status := range state.Statuses() {
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(counts[status]), string(status))
	}
}
