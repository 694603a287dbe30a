package docs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/hook/hookcall"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The page about times has the values in the code.
func TestTimes(t *testing.T) {
	t.Parallel()
	w := worker.Config{}.Defaults()
	short := func(d time.Duration) string {
		switch {
		case d%time.Hour == 0:
			return fmt.Sprintf("%d h", d/time.Hour)
		case d%time.Minute == 0:
			return fmt.Sprintf("%d min", d/time.Minute)
		default:
			return fmt.Sprintf("%v s", d.Seconds())
		}
	}
	hasRows(t, "times.md", map[string]string{
		"a call of a tool |":           "| " + short(agent.DefaultToolTimeout) + " |",
		"a hook |":                     fmt.Sprintf("%s; `post_sampling` %s", short(hookcall.DefaultTimeout), short(hookcall.DefaultPostSamplingTimeout)),
		"`not_done` of a probe":        short(w.ProbeMargin) + " after the call's deadline",
		"a tool that ignores an abort": short(timelimit.Straggle),
		"attempts at a turn":           fmt.Sprintf("%d claims", w.MaxAttempts),
		"heartbeats of a worker":       "each " + short(w.HeartbeatInterval),
		"a lease":                      short(w.LeaseDuration),
		"late results of a worker":     fmt.Sprintf("%s; %s if", short(w.LateResults), short(4*w.LateResults)),
		"a turn message that is lost":  short(w.RedeliveryDelay) + "; " + short(state.BacklogLook*w.RedeliveryDelay),
		"a turn message that its worker does not acknowledge": short(w.LeaseDuration + 5*time.Second),
		"SIGTERM of a worker":       short(w.ShutdownGrace),
		"the id of a deleted run":   short(state.MarkerLifetime),
		"a file that nothing names": short(file.Keep),
		"a token for a user":        fmt.Sprintf("%s, at most %s", short(access.DefaultTokenLifetime), short(access.MaxTokenLifetime)),
	})
}
