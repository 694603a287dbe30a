package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// A slow answer to a claim does not set the clock back. It counts only if no quicker answer has arrived for a
// long time.
func TestClockKeepsQuickAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		store := func() time.Time { return time.Now().Add(time.Hour) }
		off := func() time.Duration { return store().Sub(c.Now().Time) }
		c.Hear(store())
		c.Hear(store().Add(-time.Second))
		if off() != 0 {
			t.Errorf("after a slow answer the clock is off by %s", off())
		}
		time.Sleep(clockFor + time.Second)
		c.Hear(store().Add(-time.Second))
		if off() != time.Second {
			t.Errorf("after %s the last answer is ignored: off by %s", clockFor, off())
		}
		c.Hear(store())
		if off() != 0 {
			t.Errorf("after a quick answer the clock is off by %s", off())
		}
	})
}
