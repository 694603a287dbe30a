package measure

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	near   = 3 * time.Millisecond // NATS has that latency, unless the configuration says otherwise
	asleep = 3 * time.Second

	// untilDead is the silence after which a worker at its defaults is dead.
	untilDead = upkeep.MissedHeartbeats * 300 * time.Millisecond
)

// threeWorkers have runs in flight: as many in the first as it has slots, and twice as many in the two others,
// which could take all.
type threeWorkers struct {
	*trial

	batches []string // those of the first worker's runs come first
	whole   int      // the number of those batches
	first   []string // runs of the first worker
	calls   []string // and their calls
}

// steadyFor returns how long runs are in flight before and after the fault, so that workers
// renew leases.
func (t *trial) steadyFor() time.Duration {
	if t.cfg.Short {
		return time.Second
	}
	return 10 * time.Second
}

func (t *trial) threeWorkers(ctx context.Context, definition string) (*threeWorkers, error) {
	if err := t.deploy(ctx, rig.Config{FromNATS: near, Env: []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", t.n)}}); err != nil {
		return nil, err
	}
	if err := t.define(ctx, "held", definition); err != nil {
		return nil, err
	}
	t.model.hold()
	w := &threeWorkers{trial: t}
	fill := func(n int) (runs []string, err error) {
		began := time.Now()
		batches, runs, err := t.submitMany(ctx, request("held"), n, 0)
		w.batches = append(w.batches, batches...)
		if err != nil {
			return nil, err
		}
		if err := t.model.await(ctx, n+len(w.first), 1); err != nil {
			return nil, err
		}
		t.figure(Figure{Name: fmt.Sprintf("%d runs are in flight", n), Value: time.Since(began).Seconds(), Unit: "s"})
		return runs, nil
	}
	var err error
	if w.first, err = fill(t.n); err != nil {
		return nil, err
	}
	w.whole = len(w.batches)
	w.calls = slices.Collect(maps.Keys(t.model.times()))
	if err := t.StartWorkers(ctx, 2, fmt.Sprintf("TURNPIKE_SLOTS=%d", 2*t.n)); err != nil {
		return nil, err
	}
	if _, err := fill(2 * t.n); err != nil {
		return nil, err
	}
	rig.Pause(ctx, t.steadyFor())
	return w, ctx.Err()
}

// death kills a worker whose runs wait for their models: the others resume all of them, and no other run
// changes its worker.
func death(ctx context.Context, t *trial) error {
	w, err := t.threeWorkers(ctx, t.model.agent("once"))
	if err != nil {
		return err
	}
	began := time.Now()
	w.Workers[0].Kill(patience)
	if err := t.model.await(ctx, t.n, 2); err != nil {
		return err
	}
	var again []float64
	for _, at := range t.model.times() {
		if len(at) > 1 {
			again = append(again, at[1].Sub(began).Seconds())
		}
	}
	t.figure(Figure{Name: "kill to the first run that another worker resumes", Value: quantile(again, 0), Unit: "s", Note: fmt.Sprintf("not before %.1f s is the worker dead", untilDead.Seconds())})
	t.figure(Figure{Name: "kill to half of all", Value: quantile(again, 0.5), Unit: "s"})
	t.figure(Figure{Name: "kill to the last", Value: quantile(again, 1), Unit: "s", Most: 5 + untilDead.Seconds()})
	rig.Pause(ctx, t.steadyFor())
	t.model.release()
	if err := t.reach(ctx, w.batches, state.Completed); err != nil {
		return err
	}
	for id, at := range t.model.times() {
		want := 1
		if slices.Contains(w.calls, id) {
			want = 2
		}
		if len(at) != want {
			t.fail("the model was called %d times for run %s, want %d: once, and again only if the worker was killed in the call: if no log says that another worker was declared dead, report this bug in Turnpike", len(at), id, want)
		}
	}
	return w.judge("worker1")
}

// sleep pauses a worker whose runs wait for a tool that must not be called twice. Its calls end while it
// sleeps. It may be evicted, but its results are accepted when it is back.
func sleep(ctx context.Context, t *trial) error {
	// With the default max_result a worker has memory for the results of about a thousand calls.
	w, err := t.threeWorkers(ctx, fmt.Sprintf(`
model: {provider: scripted, responses: [{tool_calls: [{name: pay}]}, {text: done}]}
tools: [{name: pay, kind: http, url: "%spay", timeout: 1h, max_result: 1024}]`, t.model.url))
	if err != nil {
		return err
	}
	began := time.Now()
	w.Workers[0].Signal(syscall.SIGSTOP)
	rig.Pause(ctx, asleep/3)
	t.model.release(w.calls...)
	rig.Pause(ctx, asleep-time.Since(began))
	w.Workers[0].Signal(syscall.SIGCONT)
	if err := t.reach(ctx, w.batches[:w.whole], state.Completed); err != nil {
		return err
	}
	t.figure(Figure{Name: "stop of the worker to the end of its runs", Value: time.Since(began).Seconds(), Unit: "s", Note: fmt.Sprintf("it sleeps for %s", asleep)})
	t.model.release()
	if err := t.reach(ctx, w.batches, state.Completed); err != nil {
		return err
	}
	if err := w.resultsTaken(ctx); err != nil {
		return err
	}
	for key, at := range t.model.times() {
		if len(at) != 1 {
			t.fail("call %s was made %d times", key, len(at))
		}
	}
	return w.judge("worker1")
}

// resultsTaken checks that each run of the paused worker has the result of the tool.
func (w *threeWorkers) resultsTaken(ctx context.Context) error {
	var reading errgroup.Group
	reading.SetLimit(submitters)
	for _, id := range w.first {
		reading.Go(func() error {
			messages, err := w.Client.Messages(ctx, id)
			if err != nil {
				return err
			}
			said, err := json.Marshal(messages)
			if err == nil && !strings.Contains(string(said), toolSaid) {
				w.fail("run %s lacks the result %q of its tool call, which the paused worker should have handed in: find the reason in the logs of the workers, and report this bug in Turnpike; the messages of the run are %.300s", id, toolSaid, said)
			}
			return err
		})
	}
	return reading.Wait()
}

// evicted is the log message of a worker that has ended the leases of another one.
const evicted = "worker is unreachable, other workers resume its turns"

// judge reads the logs of the workers for evictions and dropped turns: only butFor may be evicted.
func (w *threeWorkers) judge(butFor string) error {
	for _, p := range w.Workers {
		log, err := os.ReadFile(filepath.Join(w.dir, p.Name+".log"))
		if err != nil {
			return err
		}
		for text := range strings.Lines(string(log)) {
			var line struct {
				Message    string `json:"message"`
				DeadWorker string `json:"dead_worker"`
				Runs       int    `json:"runs"`
			}
			if json.Unmarshal([]byte(text), &line) != nil {
				continue // a line of the Go runtime
			}
			switch {
			case line.Message == evicted && line.DeadWorker != butFor:
				w.fail("%s says that %s is unreachable", p.Name, line.DeadWorker)
			case line.Message == evicted:
				w.figure(Figure{Name: "runs that " + p.Name + " has evicted", Value: float64(line.Runs)})
			case line.Message == "turn dropped" && p.Name != butFor:
				w.fail("%s has dropped a turn: %s", p.Name, text)
			}
		}
		if n := p.Exits(); n > 0 && p.Name != butFor {
			w.fail("%s has ended %d times", p.Name, n)
		}
	}
	return nil
}
