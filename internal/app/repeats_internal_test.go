package app

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// A warning that repeats a thousand times has ten lines and a count; other warnings and errors keep all their
// lines.
func TestRepeatedWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(limitRepeats(&handler{out: zerolog.New(&out)})).With("part", "bus")
		for range 1000 {
			log.Warn("streams not restored", "error", errors.New("away"))
		}
		log.Warn("another")
		for range 20 {
			log.Error("not noted in the audit")
		}
		time.Sleep(repeatsInterval + time.Second)
		synctest.Wait()
		for text, want := range map[string]int{
			`"message":"streams not restored"`: 11, `"suppressed":990`: 1, `"message":"another"`: 1, `"message":"not noted in the audit"`: 20,
		} {
			if n := strings.Count(out.String(), text); n != want {
				t.Errorf("%d lines have %s, want %d:\n%s", n, text, want, out.String())
			}
		}

		out.Reset()
		log.Warn("streams not restored")
		time.Sleep(10 * repeatsInterval)
		synctest.Wait()
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Errorf("a warning after a quiet time has %d lines, want 1:\n%s", n, out.String())
		}
	})
}
