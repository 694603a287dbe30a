package upkeep_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// dead is the time after which a worker with leases counts as dead.
const dead = upkeep.MissedHeartbeats

// peers makes n other workers send heartbeats until stop is called.
func (d *deployment) peers(t *testing.T, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for i := range n {
				d.hear(bus.Heartbeat{Worker: fmt.Sprintf("peer%d", i), Format: state.Format, Slots: 1})
			}
			select {
			case <-ctx.Done():
			case <-time.After(periods.Heartbeat):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// heartbeats returns the number of heartbeats that the worker me sends in a time, and the last one.
func (d *deployment) heartbeats(during time.Duration) (n int, last bus.Heartbeat) {
	d.set(func() { n = len(d.sent) })
	time.Sleep(during)
	d.set(func() { n, last = len(d.sent)-n, d.sent[len(d.sent)-1] })
	return n, last
}

// In a large fleet a worker without leases sends few heartbeats, and names their interval in each. It sends the usual
// ones from the moment at which it begins to claim a run until a while after its last lease.
func TestIdleWorkerSendsFewHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{alive: map[string]bool{}}
		leases, leave := d.join(t)
		defer leave()
		const spell = 100
		if n, h := d.heartbeats(spell * periods.Heartbeat); n < spell-1 || h.Interval != 0 {
			t.Errorf("alone it sends %d heartbeats in %d intervals, the last one %+v", n, spell, h)
		}
		defer d.peers(t, 59)()
		time.Sleep(5 * periods.Heartbeat)
		n, h := d.heartbeats(spell * periods.Heartbeat)
		if want := spell / 6; n < want-1 || n > want+1 || h.Interval != 6*periods.Heartbeat {
			t.Errorf("one of 60 sends %d heartbeats in %d intervals, want %d; the last one %+v", n, spell, want, h)
		}
		d.set(func() {
			if want := (dead + 5) * periods.Heartbeat; d.lasts != want {
				t.Errorf("its heartbeat in the store lasts %s, want %s", d.lasts, want)
			}
		})
		done := leases.Expect("run")
		synctest.Wait() // no time passes
		d.set(func() {
			if h := d.sent[len(d.sent)-1]; h.Interval != 0 || d.lasts != dead*periods.Heartbeat {
				t.Errorf("when it begins to claim it has sent %+v, and to the store one that lasts %s", h, d.lasts)
			}
		})
		done()
		if n, h := d.heartbeats(periods.RedeliveryDelay - periods.Heartbeat); n < int(periods.RedeliveryDelay/periods.Heartbeat)-3 || h.Interval != 0 {
			t.Errorf("after a claim it sends %d heartbeats, the last one %+v", n, h)
		}
		if n, _ = d.heartbeats(spell * periods.Heartbeat); n > spell/2 {
			t.Errorf("long after a claim it sends %d heartbeats in %d intervals", n, spell)
		}
	})
}

// A worker that has named a long interval counts as dead only when its next heartbeat is late by the usual time. A new
// worker does not claim eagerly before it must have received the heartbeats of all.
func TestIdleWorkerIsDeadLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{alive: map[string]bool{}}
		leases, leave := d.join(t)
		defer leave()
		is := func(when string, eager bool, evicted int) {
			t.Helper()
			d.set(func() {
				if leases.ClaimsEagerly() != eager || len(d.evicted) != evicted {
					t.Errorf("%s the next heartbeat of an idle worker is due, this one claims eagerly: %t; has evicted %q", when, leases.ClaimsEagerly(), d.evicted)
				}
			})
		}
		d.hear(bus.Heartbeat{Worker: "idle", Format: state.Format, Interval: 10 * periods.Heartbeat})
		time.Sleep((dead + 8) * periods.Heartbeat)
		is("before", false, 0)
		time.Sleep(4 * periods.Heartbeat)
		is("after", true, 1)
	})
}

// A heartbeat that names a longer interval than any worker has does not keep its sender alive.
func TestLongestIntervalIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{alive: map[string]bool{}}
		_, leave := d.join(t)
		defer leave()
		d.hear(bus.Heartbeat{Worker: "forged", Format: state.Format, Interval: time.Hour})
		time.Sleep(max(6*time.Second, periods.Heartbeat) + (dead+4)*periods.Heartbeat) // the bubble's clock
		d.set(func() {
			if len(d.evicted) != 1 {
				t.Errorf("evicted %q, want the worker whose heartbeat names an hour", d.evicted)
			}
		})
	})
}

// In a large fleet few workers evict a dead one at once. The others do so later.
func TestFewWorkersEvictAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{alive: map[string]bool{}}
		_, leave := d.join(t)
		defer leave()
		const live, lost = 40, 100
		defer d.peers(t, live-1)()
		time.Sleep(2 * dead * periods.Heartbeat)
		for i := range lost {
			d.hear(bus.Heartbeat{Worker: fmt.Sprintf("lost%d", i), Format: state.Format})
		}
		evicted := func() (n int) {
			d.set(func() { n = len(d.evicted) })
			return n
		}
		time.Sleep((dead + 2) * periods.Heartbeat)
		if n := evicted(); n == 0 || n > lost/4 {
			t.Errorf("one of %d workers evicts %d of %d dead ones at once, want a tenth", live, n, lost)
		}
		time.Sleep(live / 4 * dead * periods.Heartbeat)
		if n := evicted(); n != lost {
			t.Errorf("it has evicted %d of %d dead workers in the end", n, lost)
		}
	})
}

// In a large fleet a worker sweeps seldom, unless it retains turns that the bus has rejected.
func TestFewWorkersSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{backlog: state.Backlog{}}
		running, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		const spell = 2000
		passes := 0
		go func() {
			d.sweeper().Run(running, func() int { return 200 }, func(context.Context) { d.set(func() { passes++ }) })
			close(ended)
		}()
		sweeps := func() (n int) {
			d.set(func() { n = d.sweeps })
			time.Sleep(spell * periods.Sweep)
			d.set(func() { n = d.sweeps - n })
			return n
		}
		if n := sweeps(); n < 10 || n > 90 {
			t.Errorf("one of 200 workers sweeps %d times in %d intervals, want about 40", n, spell)
		}
		d.set(func() { d.refuses, d.due = true, []state.Due{{Run: "r", Version: 1}} })
		sweeps() // it takes the turn
		if n := sweeps(); n < spell-1 {
			t.Errorf("with a rejected turn it sweeps %d times in %d intervals", n, spell)
		}
		end()
		<-ended
		if passes < 3*spell-1 {
			t.Errorf("it has called the function after the sweep %d times in %d intervals", passes, 3*spell)
		}
	})
}
