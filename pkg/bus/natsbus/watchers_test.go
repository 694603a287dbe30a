package natsbus

import (
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
