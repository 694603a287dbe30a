package service

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/retention"
)

// deletions exports the metrics of retention.
type deletions struct {
	stats               func() retention.Stats
	total, backlog, age *prometheus.Desc
}

func newDeletions(stats func() retention.Stats) *deletions {
	return &deletions{
		stats:   stats,
		total:   prometheus.NewDesc("turnpike_runs_deleted_total", "Runs that this gateway deleted because their retention had ended.", nil, nil),
		backlog: prometheus.NewDesc("turnpike_deletion_backlog", "Runs whose retention has ended and that this gateway must still delete.", nil, nil),
		age:     prometheus.NewDesc("turnpike_deletion_age_seconds", "Time since the retention of the oldest of these runs ended.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (d *deletions) Describe(to chan<- *prometheus.Desc) {
	to <- d.total
	to <- d.backlog
	to <- d.age
}

// Collect implements prometheus.Collector.
func (d *deletions) Collect(to chan<- prometheus.Metric) {
	s := d.stats()
	to <- prometheus.MustNewConstMetric(d.total, prometheus.CounterValue, float64(s.Deleted))
	to <- prometheus.MustNewConstMetric(d.backlog, prometheus.GaugeValue, float64(s.Backlog))
	to <- prometheus.MustNewConstMetric(d.age, prometheus.GaugeValue, s.Age.Seconds())
}
