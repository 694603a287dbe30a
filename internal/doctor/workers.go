package doctor

import (
	"context"
	"fmt"
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
	alive, first := map[string]bool{}, make(chan struct{})
	end := time.NewTimer(workerPatience)
	stopListening, err := b.Heartbeats(ctx, func(h bus.Heartbeat) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case h.Gateway:
		case h.Leaving:
			delete(alive, h.Worker)
		default:
			alive[h.Worker] = true
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
			return state.Finding{Name: f.Name, OK: true, Detail: fmt.Sprintf("%d running", n)}
		}
		return f
	}, stopListening
}
