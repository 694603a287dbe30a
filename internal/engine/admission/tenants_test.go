package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A tenant is noisy from half of its even share of the slots on, but never with only one or two runs.
func TestTenantsNoisy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		slots int
		turns map[string]int
		noisy map[string]bool
	}{
		{1, map[string]int{"a": 1}, map[string]bool{"a": false}},
		{4, map[string]int{"a": 3, "b": 1}, map[string]bool{"a": true, "b": false}},
		{100, map[string]int{"a": 49}, map[string]bool{"a": false, "b": false}},
		{100, map[string]int{"a": 50}, map[string]bool{"a": true}},
		{100, map[string]int{"a": 90, "b": 10}, map[string]bool{"a": true, "b": false}},
		{100, map[string]int{"a": 45, "b": 45, "c": 2}, map[string]bool{"a": true, "b": true, "c": false}},
	} {
		x := NewTenants(tt.slots, 1000)
		for name, n := range tt.turns {
			for range n {
				x.Enter(name, false)
			}
			x.Enter(name, false).Leave()
		}
		x.Enter("gone", false).Leave()
		for name, want := range tt.noisy {
			if got := x.Noisy(name); got != want {
				t.Errorf("%d slots, %v: %s is noisy: %v", tt.slots, tt.turns, name, got)
			}
		}
	}
}

// On a shared worker, a tenant is also noisy with half as many working turns as noisy tenants may have. Turns
// that rest do not count until they work again.
func TestTenantsNoisyByWork(t *testing.T) {
	t.Parallel()
	x := NewTenants(1000, 8)
	var turns []*Turn
	for range 4 {
		turns = append(turns, x.Enter("a", false))
	}
	if x.Noisy("a") {
		t.Error("a tenant that is alone is noisy")
	}
	x.Enter("b", false)
	if !x.Noisy("a") || x.Noisy("b") {
		t.Errorf("noisy: a %v, b %v; want a alone", x.Noisy("a"), x.Noisy("b"))
	}
	turns[0].Rest()
	if x.Noisy("a") {
		t.Error("a resting turn counts as a working one")
	}
	turns[0].Work(t.Context())
	if !x.Noisy("a") {
		t.Error("a turn that works again does not count")
	}
	turns[0].Rest()
	if !turns[0].TryWork() || !x.Noisy("a") {
		t.Error("a turn that works again without a wait does not count")
	}
}

// shared returns a count of 1,000 slots for a worker that two tenants share.
func shared(maxWorking int) *Tenants {
	x := NewTenants(1000, maxWorking)
	x.Enter("quiet", false).Leave()
	x.Enter("noisy", true).Leave()
	return x
}

// The working turns from the queues of noisy tenants stay within their bound, whichever turns rest in between.
// Resting turns free their place, and every turn gets one.
func TestNoisyTurnsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, all = 3, 50
		x := shared(most)
		working, peak, done := 0, 0, 0
		for range all {
			u := x.Enter("noisy", true)
			u.Rest()
			go func() { // ends before the bubble
				defer u.Leave()
				for range 3 {
					u.Work(t.Context())
					x.mu.Lock()
					working++
					peak = max(peak, working)
					x.mu.Unlock()
					time.Sleep(time.Millisecond) // the bubble's clock
					x.mu.Lock()
					working--
					x.mu.Unlock()
					u.Rest()
				}
				x.mu.Lock()
				done++
				x.mu.Unlock()
			}()
		}
		time.Sleep(time.Second) // the bubble's clock
		synctest.Wait()         // all writers have ended
		if peak != most || done != all {
			t.Errorf("%d turns worked at once and %d were done, want %d and %d", peak, done, most, all)
		}
		if x.Free() != most || len(x.turns) != 0 {
			t.Errorf("%d are free and %v left, want %d and none", x.Free(), x.turns, most)
		}
	})
}

// The bound does not apply on a worker with turns of one tenant, nor if another tenant last used it long ago,
// nor ever to turns from other queues.
func TestBoundIsForSharedWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		works := func(what string, x *Tenants, noisy bool) {
			t.Helper()
			for range 5 {
				u := x.Enter("noisy", noisy)
				u.Rest()
				u.Work(t.Context()) // the bubble ends in a deadlock if it waits
			}
			if noisy && x.Free() == 0 {
				t.Errorf("%s: no more turns may work", what)
			}
		}
		works("alone", NewTenants(1000, 1), true)
		works("the other queues", shared(1), false)
		x := shared(1)
		time.Sleep(sharedFor) // the bubble's clock
		works("shared long ago", x, true)
	})
}

// A turn whose context ends stops waiting and leaves the count unchanged.
func TestCutShortTurnDoesNotWait(t *testing.T) {
	t.Parallel()
	x := shared(1)
	at := x.Enter("noisy", true)
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Await(cut); err == nil {
		t.Error("Await returned nil although its context had ended")
	}
	u := x.Enter("noisy", true)
	u.Rest()
	u.Work(cut)
	u.Leave()
	if x.Free() != 0 {
		t.Error("a cancelled turn released a place")
	}
	at.Leave()
	if err := x.Await(t.Context()); err != nil || x.Free() != 1 {
		t.Errorf("Await = %v, %d free, want nil and 1", err, x.Free())
	}
}

// TryWork takes a place for a noisy turn only if one is free, and the turn counts as working from then on. Without a
// place the turn still rests, so it releases none when it leaves.
func TestTryWorkTakesAPlace(t *testing.T) {
	t.Parallel()
	x := shared(4)
	turn := func() *Turn {
		u := x.Enter("noisy", true)
		u.Rest()
		return u
	}
	for i := range 3 {
		u := turn()
		first, again := u.TryWork(), u.TryWork()
		if !first || !again || x.Free() != 3-i {
			t.Fatalf("%d turns went back to work, and %d more may, want %d", i+1, x.Free(), 3-i)
		}
	}
	last, late := turn(), turn()
	if !last.TryWork() || late.TryWork() || late.TryWork() {
		t.Error("TryWork does not give the last place to one turn")
	}
	late.Leave()
	if n := x.Free(); n != 0 {
		t.Errorf("a turn without a place has released %d", n)
	}
	last.Leave()
	if n := x.Free(); n != 1 {
		t.Errorf("%d turns may work, want the 1 that has a place again", n)
	}
}

// When a worker is no longer shared, no limit applies. Turns that have waited for the limit work at the next change,
// although more than the limit work.
func TestUnsharedWorkerWakesWaitingTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenants := NewTenants(10, 1)
		tenants.Enter("quiet", false).Leave()
		first := tenants.Enter("loud", true)
		second := tenants.Enter("loud", true)
		second.Rest()
		worked := make(chan struct{})
		go func() {
			second.Work(t.Context())
			close(worked)
		}()
		synctest.Wait()
		time.Sleep(2 * time.Hour) // no other tenant has had a turn
		third, fourth := tenants.Enter("loud", true), tenants.Enter("loud", true)
		third.Leave()
		synctest.Wait()
		select {
		case <-worked:
		default:
			t.Error("a turn waits for a limit that no longer applies")
		}
		first.Leave()
		fourth.Leave()
		<-worked
		second.Leave()
	})
}
