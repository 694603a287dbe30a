package natsbus

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run counts as watched as long as a process repeats its watch: a dead process stops repeating.
func TestWatchesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(time.Now().Add(-watchUnknown))
		w.hear([]byte("run_a\nrun_b"), time.Now())
		time.Sleep(watchLasts / 2)
		w.hear([]byte("run_b"), time.Now())
		time.Sleep(watchLasts * 3 / 4)
		if w.Watched("run_a") || !w.Watched("run_b") {
			t.Errorf("watched: the run without a repeated hint %t, the other %t; want false and true", w.Watched("run_a"), w.Watched("run_b"))
		}
	})
}

// A process sends no notice of an unwatched run. It sends those of the last second when it hears of a watch:
// the watcher may have read the store before them.
func TestNoticesWaitForWatchers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(time.Now())
		notify := func(run state.RunID, from, to int64) (sent bool) {
			return !w.keep("acme", run, bus.Notice{From: from, To: to}, time.Now())
		}
		if !notify("run_a", 0, 1) {
			t.Error("a notice is not sent although the watched runs are not known yet")
		}
		time.Sleep(watchUnknown)
		if notify("run_old", 0, 1) {
			t.Error("a notice of an unwatched run is sent")
		}
		time.Sleep(2 * keepNotices)
		for to := range int64(3) {
			if notify("run_a", to, to+1) || notify("run_b", to, to+1) {
				t.Error("a notice of an unwatched run is sent")
			}
			time.Sleep(keepNotices / 2)
		}
		want := map[state.RunID]*kept{"run_a": {"acme", bus.Notice{From: 0, To: 3}}}
		if diff := cmp.Diff(want, w.hear([]byte("run_old\nrun_a"), time.Now()), cmp.AllowUnexported(kept{})); diff != "" {
			t.Errorf("sent when the watches became known:\n%s", diff)
		}
		if late := w.hear([]byte("run_a"), time.Now()); len(late) > 0 {
			t.Errorf("%v is sent again with the repeated announcement", late)
		}
		if !notify("run_a", 3, 4) {
			t.Error("a notice of a watched run is not sent")
		}
		time.Sleep(watchLasts)
		notify("run_a", 4, 5)
		if late := w.hear([]byte("run_a"), time.Now()); late["run_a"] == nil || late["run_a"].To != 5 {
			t.Errorf("sent when a new watch became known: %v, want the notice after the earlier watch", late)
		}
		notify("run_c", 0, 1)
		if late := w.hear([]byte(everyRun), time.Now()); len(late) != 1 || late["run_c"] == nil {
			t.Errorf("sent when a watch of all runs became known: %v, want the notice of run_c", late)
		}
		if !notify("run_b", 3, 4) {
			t.Error("a notice is not sent although all runs are watched")
		}
	})
}

// A run is announced as long as anybody in the process watches it, and every run is, however many there are.
func TestWatchesAreAnnounced(t *testing.T) {
	t.Parallel()
	var w watching
	announced := func() map[string]int {
		runs := map[string]int{}
		for _, batch := range w.batches() {
			lines := bytes.Split(batch, []byte{'\n'})
			if len(lines) > watchBatch {
				t.Errorf("a message names %d runs, want at most %d", len(lines), watchBatch)
			}
			for _, run := range lines {
				runs[string(run)]++
			}
		}
		return runs
	}
	first, second := w.add("run_a"), w.add("run_a")
	first()
	if runs := announced(); len(runs) != 1 || runs["run_a"] != 1 {
		t.Errorf("announced %v, want the run that is still watched", runs)
	}
	second()
	if runs := announced(); len(runs) != 0 {
		t.Errorf("announced %v, want nothing", runs)
	}
	for i := range 2*watchBatch + 1 {
		w.add(fmt.Sprint("run_", i))
	}
	if runs := announced(); len(runs) != 2*watchBatch+1 {
		t.Errorf("announced %d runs, want %d", len(runs), 2*watchBatch+1)
	}
}
