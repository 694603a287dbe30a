package natsbus

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run counts as watched as long as a process repeats its watch: a dead process stops repeating.
func TestWatchesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &watchers{until: map[state.RunID]time.Time{}}
		w.hear([]byte("run_a\nrun_b"), time.Now())
		time.Sleep(watchLasts / 2)
		w.hear([]byte("run_b"), time.Now())
		time.Sleep(watchLasts * 3 / 4)
		if w.Watched("run_a") || !w.Watched("run_b") {
			t.Errorf("watched: the run without a repeated hint %t, the other %t; want false and true", w.Watched("run_a"), w.Watched("run_b"))
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
		w.add(state.RunID(fmt.Sprint("run_", i)))
	}
	if runs := announced(); len(runs) != 2*watchBatch+1 {
		t.Errorf("announced %d runs, want %d", len(runs), 2*watchBatch+1)
	}
}
