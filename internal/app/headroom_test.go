package app

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// Steady work gets much GC headroom, a burst and an idle process little (ADR 22).
func TestNextHeadroom(t *testing.T) {
	t.Parallel()
	headroom := int64(minHeadroom)
	for n, step := range []struct {
		after time.Duration
		want  int64
	}{
		{time.Minute, 16 << 20},
		{100 * time.Millisecond, 24 << 20},
		{100 * time.Millisecond, 36 << 20},
		{5 * time.Second, 36 << 20},
		{100 * time.Millisecond, 54 << 20},
		{100 * time.Millisecond, maxHeadroom},
		{100 * time.Millisecond, maxHeadroom},
		{time.Minute, maxHeadroom / 2},
		{2 * time.Minute, minHeadroom},
		{2 * time.Minute, minHeadroom},
	} {
		if headroom = next(headroom, step.after); headroom != step.want {
			t.Fatalf("step %d: %d MiB after %s, want %d", n, headroom>>20, step.after, step.want>>20)
		}
	}
}

// GC headroom is set as a percentage of live memory, and a heap below 4 MiB is not collected.
func TestHeadroomPercent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ headroom, baseline, goal int64 }{
		{16 << 20, 0, 16 << 20},
		{16 << 20, 2 << 20, 18 << 20},
		{64 << 20, 16 << 20, 80 << 20},
		{16 << 20, 99 << 20, 132 << 20},
		{64 << 20, 90 << 20, 154 << 20},
		{64 << 20, 108 << 20, 160 << 20},
		{64 << 20, 300 << 20, 400 << 20},
	} {
		p := int64(percent(test.headroom, test.baseline))
		goal := max(test.baseline+test.baseline*p/100, smallestHeap*p/100)
		if diff := test.goal - goal; diff < 0 || diff > 2<<20 {
			t.Errorf("headroom %d MiB, held %d MiB: %d percent collects at %d MiB, want %d", test.headroom>>20, test.baseline>>20, p, goal>>20, test.goal>>20)
		}
	}
}

// An operator who sets GOGC or GOMEMLIMIT decides. Without them, a process has headroom until its end.
func TestHeadroomIsOptional(t *testing.T) { //nolint:paralleltest // it sets variables and the collector
	usual := debug.SetGCPercent(77)
	defer debug.SetGCPercent(usual)
	percent := func() int {
		p := debug.SetGCPercent(77)
		debug.SetGCPercent(p)
		return p
	}
	for _, c := range []struct {
		gogc, limit string
		with, after int
	}{{"50", "", 77, 77}, {"", "1GiB", 77, 77}, {"", "", -1, 100}} {
		t.Setenv("GOGC", c.gogc)
		t.Setenv("GOMEMLIMIT", c.limit)
		release := GCHeadroom()
		if got := percent(); got != c.with && (c.with > 0 || got == 77) {
			t.Errorf("GOGC=%s GOMEMLIMIT=%s: %d percent", c.gogc, c.limit, got)
		}
		release()
		if got := percent(); got != c.after {
			t.Errorf("GOGC=%s GOMEMLIMIT=%s: %d percent after the release, want %d", c.gogc, c.limit, got, c.after)
		}
	}
}

func TestQuietProcessReturnsMemory(t *testing.T) { //nolint:paralleltest // it measures memory
	for _, c := range []struct {
		unused, allocated uint64
		want              bool
	}{{100 << 20, 1 << 20, true}, {100 << 20, 500 << 20, false}, {1 << 20, 1 << 20, false}} {
		if got := returnable(c.unused, c.allocated); got != c.want {
			t.Errorf("%d unused bytes, %d allocated: returned is %v", c.unused, c.allocated, got)
		}
	}
	burst := make([]byte, 64<<20)
	for i := range burst {
		burst[i] = 1
	}
	runtime.KeepAlive(burst)
	runtime.GC()
	if left, _ := unused(); left < 48<<20 {
		t.Errorf("%d bytes are unused after a burst of 64 MiB", left)
	}
	debug.FreeOSMemory()
	if left, _ := unused(); left > minReturn {
		t.Errorf("%d bytes are unused after their return to the system", left)
	}
}

// A process that is quiet after a burst returns the memory by itself, until the headroom is released.
func TestMemoryGoesBackAfterABurst(t *testing.T) { //nolint:paralleltest // it measures memory
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	synctest.Test(t, func(t *testing.T) {
		release := GCHeadroom()
		defer release()
		burst := make([]byte, 64<<20)
		for i := range burst {
			burst[i] = 1
		}
		runtime.KeepAlive(burst)
		runtime.GC()
		if left, _ := unused(); left < 48<<20 {
			t.Fatalf("%d bytes are unused after a burst of 64 MiB", left)
		}
		time.Sleep(3 * returnInterval) // the clock of the bubble: the first interval has the burst
		synctest.Wait()
		if left, _ := unused(); left > minReturn {
			t.Errorf("%d bytes are unused although the process was quiet", left)
		}
	})
}
