package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// lagTimeout bounds the question for the backlog, which a scrape waits for.
	lagTimeout = 2 * time.Second

	// lagFor is how long an answer is used again, however many ask.
	lagFor = time.Second
)

// lag is the metrics of what waits in the deployment. Each gateway has all of it, whether a
// worker runs or not; workers have none of it, so what they export may be added up. The bus
// is asked when somebody scrapes. Without its answer there are no figures rather than old
// ones.
type lag struct {
	bus           bus.Bus
	count, oldest *prometheus.Desc

	mu    sync.Mutex
	asked time.Time
	lanes map[state.Priority]int64
	since state.Backlog
}

func newLag(b bus.Bus) *lag {
	return &lag{
		bus:    b,
		count:  prometheus.NewDesc("turnpike_queue_lag", "Turn messages of the deployment that wait or that a worker has.", []string{"lane"}, nil),
		oldest: prometheus.NewDesc("turnpike_queue_oldest_seconds", "How long the oldest turn message has waited that no worker has fetched.", []string{"lane"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (l *lag) Describe(to chan<- *prometheus.Desc) {
	to <- l.count
	to <- l.oldest
}

// Collect implements prometheus.Collector.
func (l *lag) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.asked) >= lagFor {
		l.ask()
	}
	for lane, n := range l.lanes {
		age := time.Duration(0)
		if since, waits := l.since[lane]; waits {
			age = max(0, time.Since(since))
		}
		to <- prometheus.MustNewConstMetric(l.count, prometheus.GaugeValue, float64(n), string(lane))
		to <- prometheus.MustNewConstMetric(l.oldest, prometheus.GaugeValue, age.Seconds(), string(lane))
	}
}

// ask has the figures as they are now, or none.
func (l *lag) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	lanes, err := l.bus.LagByLane(ctx)
	since, sinceErr := l.bus.Backlog(ctx)
	if err != nil || sinceErr != nil {
		lanes, since = nil, nil
	}
	l.lanes, l.since, l.asked = lanes, since, time.Now()
}
