package doctor

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// workerPatience is the time that doctor waits for a heartbeat. A worker sends several a second.
const workerPatience = 3 * time.Second

// heardWorkers receives the heartbeats of workers until stop is called. finding waits for the first
// one.
func heardWorkers(ctx context.Context, b bus.Membership) (finding func() state.Finding, stop func()) {
	f := state.Finding{Name: "workers", Broken: true, Detail: "no heartbeat received from any worker", Remedy: "start a worker, or turnpike dev"}
	var mu sync.Mutex
	var once sync.Once
	alive, first := map[string]int{}, make(chan struct{}) // the turns in quarantine by worker
	end := time.NewTimer(workerPatience)
	stopListening, err := b.Heartbeats(ctx, func(h bus.Heartbeat) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case h.Gateway:
		case h.Leaving:
			delete(alive, h.Worker)
		default:
			alive[h.Worker] = h.Quarantined
			once.Do(func() { close(first) })
		}
	})
	if err != nil {
		f.Detail, f.Remedy = "unknown: "+err.Error(), "check that NATS is running and answers"
		return func() state.Finding { return f }, func() {}
	}
	return func() state.Finding {
		select {
		case <-first:
		case <-end.C:
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		if n := len(alive); n > 0 {
			return running(n, maps.Values(alive))
		}
		return f
	}, stopListening
}

// running is the finding about n workers, each of which has a number of turns in quarantine.
func running(n int, quarantined iter.Seq[int]) state.Finding {
	f := state.Finding{Name: "workers", OK: true, Detail: fmt.Sprintf("%d running", n)}
	sum := 0
	for turns := range quarantined {
		sum += turns
	}
	if sum > 0 {
		f.OK = false
		f.Detail += fmt.Sprintf("; %d turns in which several workers died wait in quarantine, until others of them end", sum)
		f.Remedy = "find in the logs of the workers why they died; the lines `turn deferred` there name the runs. Each turn continues by itself, or its run fails as poisoned"
	}
	return f
}
