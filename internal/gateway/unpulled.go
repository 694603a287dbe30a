package gateway

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

const (
	// unpulledInterval is the time between two looks for messages that no process pulls.
	unpulledInterval = 15 * time.Second

	// unpulledEvery is how many looks in a row pass between two warnings of the same queue.
	unpulledEvery = 20
)

func newUnpulled() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "turnpike_unpulled_messages", Help: "Messages that wait although no process asks for them or holds another one.",
	}, []string{"queue"})
}

// watchUnpulled looks for messages that wait and that no process pulls, until ctx ends. It warns
// when two looks in a row have found some.
func (g *Gateway) watchUnpulled(ctx context.Context) {
	tick := time.NewTicker(unpulledInterval)
	defer tick.Stop()
	looks := map[string]int{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		g.lookForUnpulled(ctx, looks)
	}
}

// lookForUnpulled looks once. Looks counts, by queue, how many looks in a row have found messages.
func (g *Gateway) lookForUnpulled(ctx context.Context, looks map[string]int) {
	ctx, cancel := context.WithTimeout(ctx, unpulledInterval)
	defer cancel()
	all, err := g.bus.Unpulled(ctx)
	g.metrics.unpulled.Reset() // no figure rather than an old one
	if err != nil {
		g.log.Debug("messages that no process pulls not counted", "error", err)
		return
	}
	for queue, n := range all {
		g.metrics.unpulled.WithLabelValues(queue).Set(float64(n))
		if n == 0 {
			looks[queue] = 0
			continue
		}
		if looks[queue]++; looks[queue]%unpulledEvery == 2 {
			g.log.Warn("messages wait and no process pulls them", "queue", queue, "messages", n, "hint", unpulledHint(queue))
		}
	}
}

func unpulledHint(queue string) string {
	if queue == bus.UnpulledTurns {
		return "start a worker, or read the log of the one that runs"
	}
	return "restart the gateways, and report it with the output of turnpike doctor"
}
