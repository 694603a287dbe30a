package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

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
	writable      *prometheus.Desc

	asks singleflight.Group

	mu     sync.Mutex
	latest figures
}

// figures are the answer of the bus at a time.
type figures struct {
	asked  time.Time
	writes bool // the bus took a write
	lanes  map[state.Priority]int64
	since  state.Backlog
}

func newLag(b bus.Bus) *lag {
	return &lag{
		bus:      b,
		count:    prometheus.NewDesc("turnpike_queue_lag", "Turn messages of the deployment that wait or that a worker has.", []string{"lane"}, nil),
		oldest:   prometheus.NewDesc("turnpike_queue_oldest_seconds", "How long the oldest turn message has waited that no worker has fetched.", []string{"lane"}, nil),
		writable: prometheus.NewDesc("turnpike_bus_writable", "1 if the bus took the last write of a probe, 0 if not.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (l *lag) Describe(to chan<- *prometheus.Desc) {
	to <- l.count
	to <- l.oldest
	to <- l.writable
}

// Collect implements prometheus.Collector.
func (l *lag) Collect(to chan<- prometheus.Metric) {
	now := l.figures()
	writable := 0.0
	if now.writes {
		writable = 1
	}
	to <- prometheus.MustNewConstMetric(l.writable, prometheus.GaugeValue, writable)
	for lane, n := range now.lanes {
		age := time.Duration(0)
		if since, waits := now.since[lane]; waits {
			age = max(0, time.Since(since))
		}
		to <- prometheus.MustNewConstMetric(l.count, prometheus.GaugeValue, float64(n), string(lane))
		to <- prometheus.MustNewConstMetric(l.oldest, prometheus.GaugeValue, age.Seconds(), string(lane))
	}
}

// figures returns a young answer of the bus. Those who come while it is asked get that answer,
// too.
func (l *lag) figures() figures {
	l.mu.Lock()
	latest := l.latest
	l.mu.Unlock()
	if time.Since(latest.asked) < lagFor {
		return latest
	}
	got, _, _ := l.asks.Do("", func() (any, error) {
		now := l.ask()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.latest = now
		return now, nil
	})
	return got.(figures) //nolint:forcetypeassert // made above
}

// errNoFigures reports that the bus did not say what waits.
var errNoFigures = errors.New("the bus does not say what waits in the queues")

// ask has the figures as they are now, or none. A bus that takes no writes has none: runs wait in
// the store then, and its empty queues would have an autoscaler stop the workers.
func (l *lag) ask() figures {
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	if l.bus.Ready(ctx) != nil {
		return figures{asked: time.Now()}
	}
	lanes, err := l.bus.LagByLane(ctx)
	since, sinceErr := l.bus.Backlog(ctx)
	if err != nil || sinceErr != nil {
		lanes, since = nil, nil
	}
	return figures{time.Now(), true, lanes, since}
}
