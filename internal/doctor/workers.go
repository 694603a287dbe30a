package doctor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// workerPatience is the time that doctor waits for a heartbeat. A worker sends several a second.
const workerPatience = 3 * time.Second

// processPatience is the time for which doctor listens to heartbeats, so that it receives those of all processes: each
// sends one in 300 ms. If workers name a longer interval, it listens for that time more.
const processPatience = 600 * time.Millisecond

// heardWorkers receives the heartbeats of workers and gateways until stop is called. findings may be called once: it
// waits until processPatience after the call of heardWorkers and, if no worker was heard by then, until workerPatience
// after that call; it does not wait after the end of ctx. own is the store of doctor's settings.
func heardWorkers(ctx context.Context, b bus.Membership, own onestore.Identity) (findings func() []state.Finding, stop func()) {
	f := state.Finding{Name: "workers", Broken: true, Detail: "no heartbeat received from any worker", Remedy: "start a worker, or turnpike dev"}
	var mu sync.Mutex
	var once sync.Once
	gateways, settings := map[string]bool{}, values{}
	alive, first := map[string]int{}, make(chan struct{}) // the turns in quarantine by worker
	var longest time.Duration                             // until the next heartbeat of a worker
	stores := map[onestore.Identity]map[string]bool{}     // the processes by store
	end, all := time.NewTimer(workerPatience), time.NewTimer(processPatience)
	stopListening, err := b.Heartbeats(ctx, func(h bus.Heartbeat) {
		mu.Lock()
		defer mu.Unlock()
		if h.Store != "" && !h.Leaving {
			store := onestore.Of(h)
			if stores[store] == nil {
				stores[store] = map[string]bool{}
			}
			stores[store][h.Worker] = true
		}
		if !h.Leaving {
			settings.add(h.Worker, h.Settings)
		}
		switch {
		case h.Gateway && h.Leaving:
			delete(gateways, h.Worker)
		case h.Gateway:
			gateways[h.Worker] = true
		case h.Leaving:
			delete(alive, h.Worker)
		default:
			alive[h.Worker] = h.Quarantined
			longest = max(longest, h.Interval)
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
		idle := longest
		mu.Unlock()
		clock.Pause(ctx, idle)
		mu.Lock()
		defer mu.Unlock()
		if n := len(alive); n > 0 {
			f = running(n, maps.Values(alive))
		}
		return append([]state.Finding{f, runningGateways(len(gateways))}, slices.Concat(severalStores(stores, own), settings.findings())...)
	}, stopListening
}

// severalStores is the finding that the processes of a deployment, or the settings of doctor, name different stores;
// there is none if they agree. All workers take turns from the same queues, also turns of runs that only the store of
// the others has.
func severalStores(processes map[onestore.Identity]map[string]bool, own onestore.Identity) []state.Finding {
	stores := slices.SortedFunc(maps.Keys(processes), func(a, b onestore.Identity) int { return cmp.Compare(a.String(), b.String()) })
	differs := func(from onestore.Identity) bool { return slices.ContainsFunc(stores, from.Differs) }
	broken := slices.ContainsFunc(stores, differs)
	if !broken && !differs(own) {
		return nil
	}
	f := state.Finding{Name: "stores", Broken: broken, Remedy: "for doctor and the processes: " + onestore.Remedy}
	for _, store := range stores {
		names := slices.Sorted(maps.Keys(processes[store]))
		f.Detail += fmt.Sprintf("%d with runs in %s, such as %s; ", len(names), store, names[0])
	}
	f.Detail = "processes: " + f.Detail + "the settings of doctor: " + own.String()
	return []state.Finding{f}
}

// runningGateways is the finding about n gateways.
func runningGateways(n int) state.Finding {
	f := state.Finding{Name: "gateways", OK: n > 0, Detail: fmt.Sprintf("%d running", n)}
	switch n {
	case 0:
		f.Detail, f.Remedy = "no heartbeat received from any gateway", "start a gateway, or turnpike dev; none is needed if programs submit in the process"
	case 1:
	default:
		f.Detail += "; doctor asks only the one that the finding gateway names. To ask another one, give its URL with --server"
	}
	return f
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
