package measure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// fair measures the duration of a short run while many long ones are queued: in a lower lane, in batches with
// few runs in flight, of another tenant, and of the same one, which is not fair.
func fair(ctx context.Context, t *trial) error {
	const call = 200 * time.Millisecond
	if err := t.deploy(ctx, rig.Config{Workers: 2, Env: []string{"TURNPIKE_SLOTS=50", "TURNPIKE_AUTH=keys"}}); err != nil {
		return err
	}
	quiet, _, err := t.tenant(ctx, "quiet", "short", noops(2, call))
	if err != nil {
		return err
	}
	idle, err := series(ctx, quiet, state.Normal, 5)
	if err != nil {
		return err
	}
	for i, of := range []struct {
		what       string
		bulk, lane state.Priority // of the long runs, and of the short one
		parallel   int            // of each batch of the long runs; 0: all
		tries      int
		other      bool // the short run belongs to another tenant
		most       float64
	}{
		{"the long ones are in the lane low", state.Low, state.Normal, 0, 5, false, 2},
		{"the short one is in the lane high", state.Normal, state.High, 0, 5, false, 2},
		{"at most five of each batch at a time", state.Normal, state.Normal, 5, 5, false, 2},
		{"of another tenant", state.Normal, state.Normal, 0, 5, true, 2},
		{"of one tenant", state.Normal, state.Normal, 0, 1, false, 0},
	} {
		name := fmt.Sprint("noisy", i)
		noisy, _, err := t.tenant(ctx, name, "bulk", noops(50, call))
		if err != nil {
			return err
		}
		if _, err := noisy.PutAgent(ctx, "short", []byte(noops(2, call))); err != nil {
			return err
		}
		t.Client = noisy
		r := request("bulk")
		r.Priority = string(of.bulk)
		if _, _, err := t.submitMany(ctx, r, t.n, of.parallel); err != nil {
			return err
		}
		visitor := noisy
		if of.other {
			visitor = quiet
		}
		took, err := series(ctx, visitor, of.lane, of.tries)
		if err != nil {
			return err
		}
		t.figure(Figure{Name: "times what it takes alone: " + of.what, Value: quantile(took, 0.5) / quantile(idle, 0.5), Most: of.most, Note: fmt.Sprintf("alone %.0f ms, at most %.0f", quantile(idle, 0.5), quantile(took, 1))})
		if err := t.cancelAll(ctx, "bulk"); err != nil {
			return err
		}
	}
	return nil
}

// series executes short runs one after the other, and returns the duration of each in ms.
func series(ctx context.Context, c *api.Client, lane state.Priority, n int) (took []float64, err error) {
	for range n {
		began := time.Now()
		r := request("short")
		r.Priority = string(lane)
		run, err := c.Submit(ctx, r, "")
		if err != nil {
			return nil, err
		}
		if run, err = c.Wait(ctx, run.ID); err != nil {
			return nil, err
		}
		if run.Status != string(state.Completed) {
			return nil, fmt.Errorf("run %s is %s", run.ID, run.Status)
		}
		took = append(took, ms(time.Since(began)))
	}
	return took, nil
}

// trees makes one tenant run trees whose runs delegate to themselves as often as they may, while another tenant
// executes one short run after the other.
func trees(ctx context.Context, t *trial) error {
	lasts := 45 * time.Second
	if t.cfg.Short {
		lasts = time.Second
	}
	if err := t.deploy(ctx, rig.Config{Workers: 2, Env: []string{"TURNPIKE_AUTH=keys"}}); err != nil {
		return err
	}
	noisy, _, err := t.tenant(ctx, "noisy", "tree", selfDelegating("tree", 0))
	if err != nil {
		return err
	}
	quiet, _, err := t.tenant(ctx, "quiet", "short", answers)
	if err != nil {
		return err
	}
	measure := func(name string, lasts time.Duration, most float64) error {
		var took []time.Duration
		for end := time.Now().Add(lasts); len(took) == 0 || time.Now().Before(end); rig.Pause(ctx, 20*time.Millisecond) {
			one, err := series(ctx, quiet, state.Normal, 1)
			if err != nil {
				return err
			}
			took = append(took, time.Duration(one[0]*float64(time.Millisecond)))
		}
		t.times(name, took, 0.95, most)
		return nil
	}
	if err := measure("a run alone", lasts/5, 0); err != nil {
		return err
	}
	for range t.n {
		if _, err := noisy.Submit(ctx, request("tree"), ""); err != nil {
			return err
		}
	}
	return measure("a run next to the trees", lasts, 200)
}

// selfDelegating returns the definition of an agent that delegates to itself as often as it may, in each
// of five turns.
func selfDelegating(name string, delay time.Duration) string {
	var turns []string
	for n := range 5 {
		turns = append(turns, delegating("again", n, agent.MaxChildren, delay))
	}
	return fmt.Sprintf("model: {provider: scripted, responses: [%s, {text: done}]}\ntools: [{name: again, kind: agent, agent: %s}]\n", strings.Join(turns, ", "), name)
}

// delegating returns a response that calls a tool n times, in the given turn.
func delegating(tool string, turn, n int, delay time.Duration) string {
	calls := make([]string, n)
	for i := range calls {
		calls[i] = fmt.Sprintf("{name: %s, id: c%d_%d, arguments: {task: go}}", tool, turn, i)
	}
	return fmt.Sprintf("{delay: %s, tool_calls: [%s]}", delay, strings.Join(calls, ", "))
}
