package doctor

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// workerPatience is the time that doctor waits for a heartbeat. A worker sends several a second.
const workerPatience = 3 * time.Second

// processPatience is the time for which doctor listens to heartbeats, so that it receives those of all processes:
// each sends one in 300 ms.
const processPatience = 600 * time.Millisecond

// heardWorkers receives the heartbeats of workers and gateways until stop is called. findings may be called once: it
// waits until processPatience after the call of heardWorkers and, if no worker was heard by then, until workerPatience
// after that call; it does not wait after the end of ctx. own is the kind of store of doctor's settings.
func heardWorkers(ctx context.Context, b bus.Membership, own string) (findings func() []state.Finding, stop func()) {
	f := state.Finding{Name: "workers", Broken: true, Detail: "no heartbeat received from any worker", Remedy: "start a worker, or turnpike dev"}
	var mu sync.Mutex
	var once sync.Once
	alive, first := map[string]int{}, make(chan struct{}) // the turns in quarantine by worker
	stores := map[string]map[string]bool{}                // the processes by kind of store
	end, all := time.NewTimer(workerPatience), time.NewTimer(processPatience)
	stopListening, err := b.Heartbeats(ctx, func(h bus.Heartbeat) {
		mu.Lock()
		defer mu.Unlock()
		if h.Store != "" && !h.Leaving {
			if stores[h.Store] == nil {
				stores[h.Store] = map[string]bool{}
			}
			stores[h.Store][h.Worker] = true
		}
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
		return func() []state.Finding { return []state.Finding{f} }, func() {}
	}
	return func() []state.Finding {
		for _, heard := range []<-chan time.Time{all.C, end.C} {
			select {
			case <-heard:
			case <-ctx.Done():
			}
			select {
			case <-first:
			default:
				continue // waits longer for the first worker
			}
			break
		}
		mu.Lock()
		defer mu.Unlock()
		if n := len(alive); n > 0 {
			f = running(n, maps.Values(alive))
		}
		return append([]state.Finding{f}, severalStores(stores, own)...)
	}, stopListening
}

// severalStores is the finding that the processes of a deployment, or the settings of doctor, name different kinds of
// store; there is none if they agree. All workers take turns from the same queues, also turns of runs that only the
// store of the others has.
func severalStores(processes map[string]map[string]bool, own string) []state.Finding {
	kinds := slices.Sorted(maps.Keys(processes))
	f := state.Finding{
		Name: "stores", Broken: len(kinds) > 1,
		Remedy: "set the same TURNPIKE_REDIS_URL in every process and for doctor, or use another TURNPIKE_PREFIX or NATS server; a variable whose name is misspelt has no effect",
	}
	if len(kinds) == 0 || len(kinds) == 1 && kinds[0] == own {
		return nil
	}
	for _, kind := range kinds {
		names := slices.Sorted(maps.Keys(processes[kind]))
		f.Detail += fmt.Sprintf("%d with runs in %s, such as %s; ", len(names), kind, names[0])
	}
	f.Detail = "processes: " + f.Detail + "the settings of doctor: " + own
	return []state.Finding{f}
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
		f.Detail += fmt.Sprintf("; turns in quarantine, in which several workers died: %d. They wait until others of them end", sum)
		f.Remedy = "find in the logs of the workers why they died; the lines `turn deferred` there name the runs. Each turn continues by itself, or its run fails as poisoned"
	}
	return f
}
