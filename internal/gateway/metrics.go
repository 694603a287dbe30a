package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metrics of a gateway. Labels come from closed sets only.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	readers  prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_http_requests_total", Help: "Requests by route and status code."}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "turnpike_http_request_duration_seconds", Help: "Requests, until the answer begins.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 9),
		}, []string{"route"}),
		readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "turnpike_event_readers", Help: "Open event streams."}),
	}
}

func (m *metrics) register(r *prometheus.Registry, more ...prometheus.Collector) error {
	var errs []error
	for _, c := range append(more, m.requests, m.seconds, m.readers) {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// answered counts a request. A request with wait lasts as long as its run, which says nothing about
// the gateway.
func (m *metrics) answered(route string, r *http.Request, rec *recorder) {
	m.requests.WithLabelValues(route, strconv.Itoa(max(rec.status, 200))).Inc()
	if rec.status != 0 && !r.URL.Query().Has("wait") {
		m.seconds.WithLabelValues(route).Observe(rec.began.Sub(rec.received).Seconds())
	}
}

// countsTimeout bounds the question for the number of runs, which a scrape waits for.
const countsTimeout = 2 * time.Second

// statuses collects how many runs have each status. The store is asked when somebody scrapes, and
// keeps the numbers itself. Without its answer there are no figures rather than old ones.
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
