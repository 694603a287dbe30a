package intake

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

const (
	// unpulledInterval is the time between two counts of the messages that no process pulls.
	unpulledInterval = 15 * time.Second

	// unpulledRepeat is the number of consecutive counts with messages between two warnings about the same queue.
	unpulledRepeat = 20
)

// Unpulled counts, by queue, the messages that wait while no process requests any and none is unacknowledged;
// unacknowledged turns do not count if no worker is alive. It warns at the second consecutive count that finds
// messages, and then at every unpulledRepeat-th. It is a prometheus.Collector.
type Unpulled struct {
	*prometheus.GaugeVec

	count   func(ctx context.Context) (map[string]bus.Unpulled, error)
	working func() bool
	log     *slog.Logger
	found   map[string]int // number of consecutive counts that found messages, by queue
}

// NewUnpulled returns an Unpulled that reads the numbers with count, a method of bus.Bus. working reports whether any
// worker is alive: if none is, those that held turns have died.
func NewUnpulled(count func(ctx context.Context) (map[string]bus.Unpulled, error), working func() bool, log *slog.Logger) *Unpulled {
	return &Unpulled{
		GaugeVec: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "turnpike_unpulled_messages", Help: "Messages that wait although no living process requests or holds messages of their queue.",
		}, []string{"queue"}),
		count: count, working: working, log: log, found: map[string]int{},
	}
}

// Run counts every 15 seconds until ctx ends.
func (u *Unpulled) Run(ctx context.Context) {
	tick := time.NewTicker(unpulledInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		u.look(ctx)
	}
}

func (u *Unpulled) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, unpulledInterval)
	defer cancel()
	all, err := u.count(ctx)
	u.Reset() // if the bus does not answer, export no value instead of an old one
	if err != nil {
		u.log.Debug("messages that no process pulls not counted", "error", err)
		return
	}
	for queue, of := range all {
		n := of.Waiting
		if of.Unacknowledged > 0 && (queue != bus.UnpulledTurns || u.working()) {
			n = 0
		}
		u.WithLabelValues(queue).Set(float64(n))
		if n == 0 {
			u.found[queue] = 0
			continue
		}
		if u.found[queue]++; u.found[queue]%unpulledRepeat == 2 {
			u.log.Warn("messages wait in NATS, but no process fetches them", "queue", queue, "messages", n, "hint", unpulledHint(queue))
		}
	}
}

func unpulledHint(queue string) string {
	if queue == bus.UnpulledTurns {
		return "start a worker, or find the cause in the log of the running one"
	}
	return "restart the gateways, and report this bug in Turnpike with the output of turnpike doctor"
}
