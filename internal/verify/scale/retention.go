package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// feedOn are the settings of processes that publish every event.
var feedOn = []string{"TURNPIKE_EVENT_FEED=on"}

// keep is the shortest retention there is.
const keep = time.Minute

// retention lets runs end and grow old, and measures how fast a gateway deletes them while other
// runs are submitted half as fast as the deployment can take them.
func retention(cfg rig.Config) func(ctx context.Context, s *scene) error {
	return func(ctx context.Context, s *scene) error {
		cfg.Workers = 2
		if err := s.deploy(ctx, cfg); err != nil {
			return err
		}
		if _, err := s.Client.PutAgent(ctx, "old", []byte("model: {provider: scripted, responses: [{tool_calls: [{name: nothing}]}, {text: done}]}")); err != nil {
			return err
		}
		began := time.Now()
		batches, _, err := s.submitMany(ctx, "old", s.Old, func(int) {})
		if err != nil {
			return err
		}
		for _, id := range batches {
			if _, err := s.Client.WaitBatch(ctx, id, nil); err != nil {
				return err
			}
		}
		capacity := float64(s.Old) / time.Since(began).Seconds()
		rig.Pause(ctx, keep)
		live, calm := context.WithCancel(ctx)
		defer calm()
		load := s.liveLoad(live, capacity/2)
		gateway, err := s.StartGateway(ctx, "cleaner", "TURNPIKE_RETENTION=completed: 1m, failed: 1m")
		if err != nil {
			return err
		}
		first, deleted := time.Time{}, 0
		if err := rig.Until(ctx, patience, "the old runs are deleted", func(ctx context.Context) error {
			if deleted, err = counter(ctx, gateway, "turnpike_runs_deleted_total"); err != nil {
				return err
			}
			if first.IsZero() && deleted > 0 {
				first = time.Now().Add(-time.Second / 20)
			}
			if deleted < s.Old {
				return fmt.Errorf("%d of %d are", deleted, s.Old)
			}
			return nil
		}); err != nil {
			return err
		}
		rate := float64(deleted) / time.Since(first).Seconds()
		calm()
		submitted, lost := load()
		s.figure("%.0f runs are deleted a second, want 300 (100 with Redis 50 ms away), beside %.0f runs a second, half of what the deployment takes; %d were submitted", rate, capacity/2, submitted)
		if lost > 0 {
			s.fail("%d of %d live runs were refused or did not complete", lost, submitted)
		}
		return nil
	}
}

// liveLoad submits runs at a rate until ctx ends. The function that it returns waits until all have
// ended, and returns the number of runs and of those that did not complete.
func (s *scene) liveLoad(ctx context.Context, rate float64) func() (submitted, lost int) {
	const beat = 200 * time.Millisecond
	size := max(1, int(rate*beat.Seconds()))
	var sent sync.WaitGroup
	var mu sync.Mutex
	var batches []string
	submitted, lost := 0, 0
	sent.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			req := api.BatchRequest{Runs: make([]api.SubmitRequest, size)}
			for i := range req.Runs {
				req.Runs[i] = api.SubmitRequest{Agent: "old", Input: json.RawMessage(`"go"`)}
			}
			submitted += size
			accepted, err := s.Client.SubmitBatch(context.WithoutCancel(ctx), req, "")
			if err != nil {
				lost += size
				continue
			}
			mu.Lock()
			batches = append(batches, accepted.BatchID)
			mu.Unlock()
		}
	})
	return func() (int, int) {
		sent.Wait()
		after, done := context.WithTimeout(context.WithoutCancel(ctx), keep)
		defer done()
		for _, id := range batches {
			b, err := s.Client.WaitBatch(after, id, nil)
			if err != nil {
				lost += size
				continue
			}
			lost += size - b.Counts["completed"]
		}
		return submitted, lost
	}
}

// counter reads a counter without labels from the metrics of a gateway; 0 before it is there.
func counter(ctx context.Context, url, name string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseFloat(text, 64)
			return int(n), err
		}
	}
	return 0, nil
}
