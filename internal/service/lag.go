package service

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
	// lagTimeout bounds one reading of the bus and of the store: a scrape waits for it.
	lagTimeout = 2 * time.Second

	// lagFor bounds how long one reading serves all scrapes.
	lagFor = time.Second
)

// lag exports the number of turns that wait or are in flight in the deployment. Every gateway exports
// all of them, whether or not a worker runs; workers export none, so metrics of workers may be
// summed. A scrape reads the bus, or uses a reading younger than lagFor. If the bus accepts no writes
// or does not report its queues, lag exports only turnpike_bus_writable, instead of old figures.
type lag struct {
	bus           bus.Bus
	store         state.Schedule
	workers       *workers
	count, oldest *prometheus.Desc
	writable      *prometheus.Desc

	asks singleflight.Group

	mu     sync.Mutex
	latest figures
}

// figures are the answers of the bus to one reading.
type figures struct {
	asked  time.Time
	writes bool // the bus accepted a write
	lanes  map[state.Priority]int64
	since  state.Backlog
}

func newLag(b bus.Bus, store state.Schedule, w *workers) *lag {
	return &lag{
		bus: b, store: store, workers: w,
		count:    prometheus.NewDesc("turnpike_queue_lag", "Turns of the deployment that wait or that a worker has.", []string{"lane"}, nil),
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

// figures returns a recent reading of the bus. Concurrent callers share one reading.
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

// errNoFigures reports that the bus did not return its queue lengths.
var errNoFigures = errors.New("the lengths of the queues cannot be read from NATS: run `turnpike doctor`: NATS may be unreachable or refuse the operation")

// ask reads the current figures, or none. While the bus rejects writes it returns none: runs then
// wait in the store, and empty queues would make an autoscaler stop the workers.
func (l *lag) ask() figures {
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	if l.bus.Ready(ctx) != nil {
		return figures{asked: time.Now()}
	}
	messages, err := l.bus.LagByLane(ctx)
	since, sinceErr := l.bus.Backlog(ctx)
	if err != nil || sinceErr != nil {
		return figures{asked: time.Now(), writes: true}
	}
	return figures{time.Now(), true, l.turns(ctx, messages), since}
}

// turns returns the number of outstanding turns in each lane. It counts all messages that no worker has fetched.
// It counts fetched messages only up to the number of queued and running runs that then remain in the store: a message
// that a dead worker fetched stays until its ack wait ends, although its turn was published again. Within that bound
// it first counts the turns in flight on reachable workers, and then other fetched messages, in proportion to their
// number in each lane. If the store does not answer, every message counts.
func (l *lag) turns(ctx context.Context, messages map[state.Priority]bus.LaneLag) map[state.Priority]int64 {
	lanes, fetched, inFlight := map[state.Priority]int64{}, map[state.Priority]int64{}, map[state.Priority]int64{}
	var waiting int64
	held := l.workers.turns(time.Now())
	for lane, m := range messages {
		lanes[lane], fetched[lane] = m.Waiting, m.Fetched
		waiting += m.Waiting
		inFlight[lane] = min(m.Fetched, held[lane])
	}
	most := sum(fetched)
	if counts, err := l.store.Counts(ctx); err == nil {
		most = min(most, max(0, counts[state.Queued]+counts[state.Running]-waiting))
	}
	for lane, n := range portions(min(most, sum(inFlight)), inFlight) {
		lanes[lane] += n
		fetched[lane] -= n
		most -= n
	}
	for lane, n := range portions(most, fetched) {
		lanes[lane] += n
	}
	return lanes
}

// portions divides n, which is at most the sum of all, in proportion to them.
func portions(n int64, all map[state.Priority]int64) map[state.Priority]int64 {
	parts, rest := map[state.Priority]int64{}, sum(all)
	for lane, of := range all {
		if of > 0 {
			parts[lane] = n * of / rest
			n, rest = n-parts[lane], rest-of
		}
	}
	return parts
}

func sum(lanes map[state.Priority]int64) (n int64) {
	for _, of := range lanes {
		n += of
	}
	return n
}
