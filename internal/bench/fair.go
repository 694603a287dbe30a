package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/client"
)

// crowd is how somebody else's long runs are queued, and the lane of the short one.
type crowd struct {
	what        string
	bulk, short string // lanes
	parallel    int    // of each batch of the long runs; 0: all
	tries       int
}

// fair measures how long a short run takes while somebody else has queued many long
// ones, five times as many turns as there are slots at least.
func fair(ctx context.Context, cfg Config, add func(Row)) error {
	queued := 5000
	if cfg.Short {
		queued = 300
	}
	crowds := []crowd{
		{"these in the lane low", "low", "normal", 0, 5},
		{"the short one in the lane high", "normal", "high", 0, 5},
		{"one lane, at most 5 of each batch at a time", "normal", "normal", 5, 5},
		{"one lane, all at once", "normal", "normal", 0, 1},
	}
	for _, c := range crowds {
		if err := c.measure(ctx, cfg, queued, add); err != nil {
			return err
		}
	}
	return nil
}

func (c crowd) measure(ctx context.Context, cfg Config, queued int, add func(Row)) error {
	const delay = 200 * time.Millisecond
	f, err := deploy(ctx, cfg.Profile, 2, 50)
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.define(ctx, agentName, turns(2, delay)); err != nil {
		return err
	}
	if err := f.define(ctx, "bulk", turns(50, delay)); err != nil {
		return err
	}
	idle, err := short(ctx, f.client, c.short, 5)
	if err != nil {
		return err
	}
	bulk := request("bulk")
	bulk.Priority = c.bulk
	if _, err := f.submitMany(ctx, bulk, queued, c.parallel); err != nil {
		return err
	}
	took, err := short(ctx, f.client, c.short, c.tries)
	if err != nil {
		return err
	}
	add(Row{
		What: c.what, Value: took / idle, Unit: "times", Target: "≤ 2",
		Note: fmt.Sprintf("a run of two turns took %.0f ms alone and %.0f beside %d of 50 turns", idle, took, queued),
	})
	return nil
}

// short submits a short run so many times and returns the median of how long it took.
func short(ctx context.Context, c *client.Client, lane string, tries int) (float64, error) {
	var took []float64
	for range tries {
		began := time.Now()
		r := request(agentName)
		r.Priority = lane
		run, err := c.Submit(ctx, r, "")
		if err == nil {
			run, err = c.Wait(ctx, run.ID)
		}
		if err != nil {
			return 0, err
		}
		if run.Status != "completed" {
			return 0, fmt.Errorf("run %s is %s", run.ID, run.Status)
		}
		took = append(took, ms(time.Since(began)))
	}
	return latency(took).P50, nil
}
