package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// parkedCall is how long each model call of parked takes.
const parkedCall = 5 * time.Second

// parked has many turns at once in a model call of five seconds on one worker process,
// and looks at its memory and at how long all of them take.
func parked(ctx context.Context, cfg Config, add func(Row)) error {
	sizes, targets := []int{2000, 10_000}, []string{"< 72", "< 300"}
	if cfg.Short {
		sizes = []int{200}
	}
	for i, n := range sizes {
		if err := parkedAt(ctx, cfg, n, targets[i], add); err != nil {
			return err
		}
	}
	return nil
}

func parkedAt(ctx context.Context, cfg Config, n int, target string, add func(Row)) error {
	f, err := startFleet(ctx, cfg.Profile, 1, n+n/10)
	if err != nil {
		return err
	}
	defer f.stop()
	call := parkedCall
	if cfg.Short {
		call = time.Second
	}
	if err := f.define(ctx, agentName, turns(1, call)); err != nil {
		return err
	}
	base := memory(f.workers[0], "VmRSS")
	began := time.Now()
	if _, err := f.submitMany(ctx, request(agentName), n, 0); err != nil {
		return err
	}
	submitted := time.Since(began)
	if err := until(ctx, "all runs are in their model calls", func() (bool, error) {
		calls, err := f.calls(ctx)
		return err == nil && calls[0] >= n, err
	}); err != nil {
		return err
	}
	inFlight := time.Since(began)
	held := memory(f.workers[0], "VmRSS")
	if err := f.reach(ctx, state.Completed, n); err != nil {
		return err
	}
	done := time.Since(began)
	peak, own := memory(f.workers[0], "VmHWM"), memory(f.workers[0], "RssAnon")
	what := func(s string) string { return fmt.Sprintf("%d turns: %s", n, s) }
	done53 := ""
	if n == 2000 {
		done53 = "≤ 5.3"
	}
	add(Row{What: what("all done"), Value: done.Seconds(), Unit: "s", Target: done53, Note: fmt.Sprintf("submitted after %.2f s, all in their calls after %.2f s", submitted.Seconds(), inFlight.Seconds())})
	add(Row{What: what("worker, most resident"), Value: mib(peak), Unit: "MiB", Target: target, Note: fmt.Sprintf("%.0f MiB before; at the end %.0f are its own, the rest is the program's file", mib(base), mib(own))})
	add(Row{What: what("a turn in its call, over the base"), Value: float64(held-base) / 1024 / float64(n), Unit: "KiB", Target: "≈ 16"})
	return nil
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// memory reads a line of /proc/PID/status, in bytes; 0 where there is none.
func memory(p *exec.Cmd, name string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		return 0
	}
	_, line, _ := strings.Cut(string(status), name+":")
	var kilobytes int64
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}
