package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

const (
	near   = 3 * time.Millisecond
	asleep = 3 * time.Second

	// unheard is for how long a worker at its defaults is silent before it is dead.
	unheard = upkeep.MissedHeartbeats * 300 * time.Millisecond
)

// crowd is three workers with runs in flight: as many in the first as it has slots, and
// twice as many in the two others, which could take all.
type crowd struct {
	*scene

	batches []string // of the first worker's runs, first
	whole   int      // how many batches those are
	first   []string // runs of the first worker
	calls   []string // and their calls
}

func (s *scene) crowd(ctx context.Context, fromNATS time.Duration, agent string) (*crowd, error) {
	if err := s.deploy(ctx, rig.Config{FromNATS: fromNATS, Env: []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", s.Runs)}}); err != nil {
		return nil, err
	}
	if _, err := s.Client.PutAgent(ctx, "parked", []byte(agent)); err != nil {
		return nil, err
	}
	c := &crowd{scene: s}
	fill := func(n int) (runs []string, err error) {
		began := time.Now()
		batches, runs, err := s.submitMany(ctx, "parked", n, func(int) {})
		c.batches = append(c.batches, batches...)
		if err != nil {
			return nil, err
		}
		s.figure("%d runs are submitted in %.1f s", n, time.Since(began).Seconds())
		within, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := s.parked.await(within, n+len(c.first), 1); err != nil {
			return nil, fmt.Errorf("%d of %d calls are in flight: %w", s.parked.calls(1), n+len(c.first), err)
		}
		s.figure("and in flight after %.1f s", time.Since(began).Seconds())
		return runs, nil
	}
	var err error
	if c.first, err = fill(s.Runs); err != nil {
		return nil, err
	}
	c.whole = len(c.batches)
	c.calls = slices.Collect(maps.Keys(s.parked.times()))
	if err := s.StartWorkers(ctx, 2, fmt.Sprintf("TURNPIKE_SLOTS=%d", 2*s.Runs)); err != nil {
		return nil, err
	}
	if _, err := fill(2 * s.Runs); err != nil {
		return nil, err
	}
	rig.Pause(ctx, s.Steady)
	return c, ctx.Err()
}

// death kills a worker whose runs wait for their models: the others resume all of them, and no
// other run changes its worker.
func death(ctx context.Context, s *scene, fromNATS time.Duration) error {
	c, err := s.crowd(ctx, fromNATS, fmt.Sprintf("model: {provider: openai, name: parked, base_url: \"http://%s/v1\", api_key: \"secret://%s\", timeout: 1h}", s.parked.host, modelKey))
	if err != nil {
		return err
	}
	began := time.Now()
	c.Workers[0].Kill(patience)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.parked.await(within, s.Runs, 2); err != nil {
		return fmt.Errorf("%d of %d runs are taken over: %w", c.parked.calls(2), s.Runs, err)
	}
	var again []time.Duration
	for _, at := range c.parked.times() {
		if len(at) > 1 {
			again = append(again, at[1].Sub(began))
		}
	}
	slices.Sort(again)
	took := func(share float64) float64 { return again[int(share*float64(len(again)-1))].Seconds() }
	c.figure("after the kill the first run is taken over at %.2f s, half of all at %.2f s, the last at %.2f s", took(0), took(0.5), took(1))
	c.figure("all are %.2f s after the detection, which is not before %.1f s; want 5", took(1)-unheard.Seconds(), unheard.Seconds())
	rig.Pause(ctx, s.Steady)
	c.parked.release()
	if err := c.complete(ctx, c.batches); err != nil {
		return err
	}
	mine := map[string]bool{}
	for _, id := range c.calls {
		mine[id] = true
	}
	for id, at := range c.parked.times() {
		want := 1
		if mine[id] {
			want = 2
		}
		if len(at) != want {
			c.fail("the model was called %d times for run %s, want %d", len(at), id, want)
		}
	}
	return c.judge("worker1")
}

// sleep stops a worker whose runs wait for a tool that must not be called twice. Its calls end
// while it sleeps. It may be evicted, but its results are accepted when it is back.
func sleep(ctx context.Context, s *scene) error {
	c, err := s.crowd(ctx, near, fmt.Sprintf(`
model: {provider: scripted, responses: [{tool_calls: [{name: pay}]}, {text: done}]}
tools: [{name: pay, kind: http, url: "http://%s/tool", timeout: 1h}]`, s.parked.host))
	if err != nil {
		return err
	}
	began := time.Now()
	c.Workers[0].Signal(syscall.SIGSTOP)
	rig.Pause(ctx, asleep/3)
	c.parked.release(c.calls...)
	rig.Pause(ctx, asleep-time.Since(began))
	c.Workers[0].Signal(syscall.SIGCONT)
	if err := c.complete(ctx, c.batches[:c.whole]); err != nil {
		return err
	}
	c.figure("its runs have completed %.1f s after it fell asleep", time.Since(began).Seconds())
	c.parked.release()
	if err := c.complete(ctx, c.batches); err != nil {
		return err
	}
	if err := c.resultsTaken(ctx); err != nil {
		return err
	}
	for key, at := range c.parked.times() {
		if len(at) != 1 {
			c.fail("call %s was made %d times", key, len(at))
		}
	}
	return c.judge("worker1")
}

// resultsTaken looks for the result of the tool in each run of the worker that slept.
func (c *crowd) resultsTaken(ctx context.Context) error {
	var reading errgroup.Group
	reading.SetLimit(16)
	for _, id := range c.first {
		reading.Go(func() error {
			messages, err := c.Client.Messages(ctx, id)
			if err != nil {
				return err
			}
			said, err := json.Marshal(messages)
			if err == nil && !strings.Contains(string(said), toolSaid) {
				c.fail("run %s does not have the result of its call: %.300s", id, said)
			}
			return err
		})
	}
	return reading.Wait()
}

// judge reads the logs of the workers for evictions and dropped turns: only butFor may be evicted.
func (c *crowd) judge(butFor string) error {
	for _, w := range c.Workers {
		f, err := os.Open(filepath.Join(c.dir, w.Name+".log"))
		if err != nil {
			return err
		}
		err = c.judgeLog(w.Name, butFor, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if n := w.Exits(); n > 0 && w.Name != butFor {
			c.fail("%s has ended %d times", w.Name, n)
		}
	}
	return nil
}

func (c *crowd) judgeLog(name, butFor string, log io.Reader) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	counts := map[string]int{}
	for lines.Scan() {
		var line struct {
			Level      string `json:"level"`
			Message    string `json:"message"`
			DeadWorker string `json:"dead_worker"`
			Runs       int    `json:"runs"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // what the runtime says
		}
		switch {
		case line.Message == "worker is dead" && line.DeadWorker != butFor:
			c.fail("%s says that %s is dead", name, line.DeadWorker)
		case line.Message == "worker is dead":
			c.figure("%s has evicted %d runs of %s", name, line.Runs, line.DeadWorker)
		case line.Message == "turn dropped" && name != butFor:
			c.fail("%s has dropped a turn: %s", name, lines.Text())
		case line.Level == "warn" || line.Level == "error" || line.Message == "turn postponed: its worker was lost during calls, and may hand in what they came to":
			counts[line.Message]++
		}
	}
	for message, n := range counts {
		c.figure("%s says %d times: %s", name, n, message)
	}
	return lines.Err()
}
