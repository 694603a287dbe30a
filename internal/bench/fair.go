package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// load is how somebody else's long runs are queued, and the lane of the short one.
type load struct {
	what        string
	bulk, short string // lanes
	parallel    int    // of each batch of the long runs; 0: all
	tries       int
	tenant      string // of the short run, if it is another
	target      string
}

// fair measures how long a short run takes while somebody else has queued many long
// ones, five times as many turns as there are slots at least.
func fair(ctx context.Context, cfg Config, add func(Row)) error {
	queued := 5000
	if cfg.Short {
		queued = 300
	}
	loads := []load{
		{"these in the lane low", "low", "normal", 0, 5, "", "≤ 2"},
		{"the short one in the lane high", "normal", "high", 0, 5, "", "≤ 2"},
		{"one lane, at most 5 of each batch at a time", "normal", "normal", 5, 5, "", "≤ 2"},
		{"one lane, all at once, another tenant", "normal", "normal", 0, 5, "other", "≤ 2"},
		{"one lane, all at once, one tenant", "normal", "normal", 0, 1, "", ""},
	}
	for _, c := range loads {
		if err := c.measure(ctx, cfg, queued, add); err != nil {
			return err
		}
	}
	return nil
}

func (c load) measure(ctx context.Context, cfg Config, queued int, add func(Row)) error {
	const delay = 200 * time.Millisecond
	f, err := startFleet(ctx, cfg.Profile, 2, 50)
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
	visitor := f.client
	if c.tenant != "" {
		if visitor, err = f.admit(ctx, c.tenant); err != nil {
			return err
		}
		if _, err := visitor.PutAgent(ctx, agentName, []byte(turns(2, delay))); err != nil {
			return err
		}
	}
	idle, err := short(ctx, visitor, c.short, 5)
	if err != nil {
		return err
	}
	bulk := request("bulk")
	bulk.Priority = c.bulk
	if _, err := f.submitMany(ctx, bulk, queued, c.parallel); err != nil {
		return err
	}
	took, err := short(ctx, visitor, c.short, c.tries)
	if err != nil {
		return err
	}
	add(Row{
		What: c.what, Value: took.P50 / idle.P50, Unit: "times", Target: c.target,
		Note: fmt.Sprintf("a run of two turns took %.0f ms alone and %.0f, at most %.0f, beside %d of 50 turns", idle.P50, took.P50, took.P99, queued),
	})
	return nil
}

// short submits a short run so many times and returns how long it took.
func short(ctx context.Context, c *api.Client, lane string, tries int) (Latency, error) {
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
			return Latency{}, err
		}
		if run.Status != "completed" {
			return Latency{}, fmt.Errorf("run %s is %s", run.ID, run.Status)
		}
		took = append(took, ms(time.Since(began)))
	}
	return latency(took), nil
}
