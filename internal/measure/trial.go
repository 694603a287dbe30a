package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// trial is a scenario in progress: its size, its deployment and its results. It has many methods because
// scenarios share the code that starts, loads and watches a deployment.
type trial struct {
	*rig.Deployment

	cfg    Config
	n      int    // the size of the scenario
	repeat int    // repetitions of measurements with a floor
	dir    string // of data and logs
	model  *modelServer
	store  state.Store // for direct reads, bypassing the gateway
	floor  *floor      // nil: not started

	mu     sync.Mutex
	result Result
}

// patience bounds every wait for completion.
const patience = 10 * time.Minute

// submitters is the number of clients that submit at once.
const submitters = 16

// deploy starts the deployment of the scenario, as cfg and the configuration of the measurement say.
func (t *trial) deploy(ctx context.Context, cfg rig.Config) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg.Self, cfg.Dir, cfg.JetStream = []string{self, childArgument}, t.dir, t.cfg.Store == "jetstream"
	cfg.FromNATS, cfg.FromRedis = cmp.Or(t.cfg.NATSLatency, cfg.FromNATS), cmp.Or(t.cfg.RedisLatency, cfg.FromRedis)
	cfg.Direct = cfg.FromNATS == 0 && cfg.FromRedis == 0
	if t.cfg.Profile == "lazy" {
		cfg.Redis = []string{"--appendfsync", "everysec"}
	}
	cfg.Env = append([]string{
		"TURNPIKE_SECRET_" + modelKey + "=any", "TURNPIKE_MODEL_ALLOW=127.0.0.0/8", "TURNPIKE_HTTP_ALLOW=127.0.0.0/8",
		stepsVariable + "=" + t.stepsFile(), withoutVariable + "=" + strings.Join(t.cfg.Without, ","),
	}, cfg.Env...)
	if t.Deployment, err = rig.Deploy(ctx, cfg); err != nil {
		return err
	}
	if cfg.JetStream {
		t.store, err = natsstore.Open(ctx, t.Conn, natsstore.Config{Prefix: rig.Prefix})
	} else {
		t.store, err = redisstore.Open(ctx, redisstore.Config{URL: "redis://" + t.Redis.Addr + "/0", Prefix: rig.Prefix})
	}
	if err != nil {
		return err
	}
	t.store.SetFormat(state.Format)
	return nil
}

// close ends what the scenario has started; the processes have ended with its context.
func (t *trial) close() error {
	if t.floor != nil {
		t.floor.close()
	}
	if store, ok := t.store.(interface{ Close() error }); ok {
		_ = store.Close()
	}
	if t.Deployment == nil {
		return nil
	}
	return t.Wait()
}

// look records the resource usage of each process.
func (t *trial) look() {
	if t.Deployment == nil {
		return
	}
	all := append(t.Processes(), &t.NATS.Process)
	if t.Redis != nil {
		all = append(all, &t.Redis.Process)
	}
	if t.floor != nil {
		all = append(all, t.floor.worker)
	}
	for _, p := range all {
		t.result.Processes = append(t.result.Processes, Process{p.Name, p.CPU().Seconds(), mib(p.Peak())})
	}
}

// figure records a measurement.
func (t *trial) figure(f Figure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Figures = append(t.result.Figures, f)
}

// times records a distribution of durations as two figures, in milliseconds; the larger one, at the
// given quantile, has the target.
func (t *trial) times(name string, all []time.Duration, high, most float64) {
	values := make([]float64, len(all))
	for i, d := range all {
		values[i] = ms(d)
	}
	if len(all) == 0 {
		t.fail("%s: there is none", name)
		return
	}
	t.figure(Figure{Name: name + ", p50", Value: quantile(values, 0.5), Unit: "ms", Note: fmt.Sprintf("of %d", len(all))})
	t.figure(Figure{Name: fmt.Sprintf("%s, p%.0f", name, 100*high), Value: quantile(values, high), Unit: "ms", Most: most})
}

// fail records a broken guarantee.
func (t *trial) fail(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Failed++
	if len(t.result.Failures) < 5 {
		t.result.Failures = append(t.result.Failures, fmt.Sprintf(format, args...))
	}
}

// define stores an agent.
func (t *trial) define(ctx context.Context, name, definition string) error {
	_, err := t.Client.PutAgent(ctx, name, []byte(definition))
	return err
}

// noops is an agent that calls the tool in each turn, and answers in the last of n. Its model takes delay for
// each call. After that it answers one more message.
func noops(n int, delay time.Duration) string {
	call := fmt.Sprintf("{tool_calls: [{name: noop, arguments: {q: %q}}], delay: %s}, ", arguments, delay)
	answer := fmt.Sprintf("{text: %q, delay: %s}", modelText, delay)
	return fmt.Sprintf("model: {provider: scripted, responses: [%s%s, %[2]s]}\n", strings.Repeat(call, n-1), answer) +
		"loop: {max_turns: 200, tool_loop_threshold: 1000}\ntools: [{name: noop, idempotent: true, reuse: false}]\n"
}

// answers is an agent that answers at once.
const answers = "model: {provider: scripted, responses: [{text: done}]}"

// asksHuman is an agent that waits for a person after one turn.
const asksHuman = `
model: {provider: scripted, responses: [{tool_calls: [{name: ask, arguments: {question: "well?"}}]}, {text: done}]}
tools: [{name: ask, kind: human}]`

// request returns the submission of a run of an agent.
func request(agent string) api.SubmitRequest {
	return api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}
}

// submit submits one run of an agent.
func (t *trial) submit(ctx context.Context, agent string) (api.Run, error) {
	return t.Client.Submit(ctx, request(agent), "")
}

// submitMany submits n runs in batches. At most parallel runs of a batch are in flight at once; 0 means
// all.
func (t *trial) submitMany(ctx context.Context, r api.SubmitRequest, n, parallel int) (batches, runs []string, err error) {
	for n > 0 {
		size := min(n, state.MaxBatch)
		n -= size
		req := api.BatchRequest{Runs: make([]api.SubmitRequest, size), MaxParallel: parallel}
		for i := range req.Runs {
			req.Runs[i] = r
		}
		accepted, err := t.Client.SubmitBatch(ctx, req, "")
		if err != nil {
			return nil, nil, err
		}
		batches, runs = append(batches, accepted.BatchID), append(runs, accepted.RunIDs...)
	}
	return batches, runs, nil
}

// reach waits until all runs of the batches have a status, or have ended with another one, which is a failure.
func (t *trial) reach(ctx context.Context, batches []string, want state.Status) error {
	for _, id := range batches {
		var counts map[string]int
		if err := rig.Until(ctx, patience, "batch "+id+" is "+string(want), func(ctx context.Context) error {
			b, err := t.Client.Batch(ctx, id)
			counts = b.Counts
			left := counts[string(state.Queued)] + counts[string(state.Running)]
			if want != state.Waiting {
				left += counts[string(state.Waiting)]
			}
			if err == nil && left > 0 {
				err = fmt.Errorf("%v", counts)
			}
			return err
		}); err != nil {
			return err
		}
		for status, n := range counts {
			if status != string(want) && n > 0 {
				t.fail("%d runs of batch %s are %s", n, id, status)
			}
		}
	}
	return nil
}

// completed waits for one run, which must complete.
func (t *trial) completed(ctx context.Context, c *api.Client, id string) (api.Run, error) {
	run, err := c.Wait(ctx, id)
	if err == nil && run.Status != string(state.Completed) {
		t.fail("run %s is %s: %v", id, run.Status, run.Error)
	}
	return run, err
}

// ended returns the number of runs that have ended, and fails if one did not complete.
func (t *trial) ended(ctx context.Context) (int, error) {
	counts, err := t.store.Counts(ctx)
	if lost := counts[state.Failed] + counts[state.Incomplete] + counts[state.Cancelled]; lost > 0 {
		return 0, fmt.Errorf("%d runs did not complete", lost)
	}
	return int(counts[state.Completed]), err
}

// crowd submits n runs of an agent separately, and returns when all have completed.
func (t *trial) crowd(ctx context.Context, agent string, n int) error {
	before, err := t.ended(ctx)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for range n {
		group.Go(func() error { _, err := t.submit(groupCtx, agent); return err })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return soon(ctx, "all runs have completed", func() (bool, error) {
		now, err := t.ended(ctx)
		return now >= before+n, err
	})
}

// tenant returns a client of a tenant that has one agent. The deployment must have TURNPIKE_AUTH=keys.
func (t *trial) tenant(ctx context.Context, name, agent, definition string) (c *api.Client, key string, err error) {
	key, _, err = access.NewKeys(t.store).Create(ctx, access.KeySpec{Tenant: name, Roles: access.Roles()})
	if err != nil {
		return nil, "", err
	}
	c = api.New(t.URL, api.WithToken(key))
	_, err = c.PutAgent(ctx, agent, []byte(definition))
	return c, key, err
}

func (t *trial) stepsFile() string { return filepath.Join(t.dir, "steps") }

// steps returns the calls of the tool noop so far.
func (t *trial) steps() ([]step, error) { return readSteps(t.stepsFile()) }

// awaitSteps returns the steps in a file when there are n.
func awaitSteps(ctx context.Context, file string, n int) (steps []step, err error) {
	err = soon(ctx, fmt.Sprintf("the tool is called %d times", n), func() (bool, error) {
		steps, err = readSteps(file)
		return len(steps) >= n, err
	})
	return steps, err
}

// byWorker counts steps in a span of time.
func byWorker(steps []step, from, to time.Time) map[string]int {
	counts := map[string]int{}
	for _, s := range steps {
		if !s.at.Before(from) && s.at.Before(to) {
			counts[s.worker]++
		}
	}
	return counts
}

// soon polls ok at short intervals until it is true, where rig.Until would be too slow for a figure.
func soon(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		if !rig.Pause(ctx, 5*time.Millisecond) {
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// pause waits for d, if it is not 0, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	return rig.Pause(ctx, d)
}

// usage is the processor time of each kind of process.
type usage struct{ gateway, workers, nats, redis, floor time.Duration }

func (t *trial) used() usage {
	u := usage{gateway: t.Gateway.CPU(), nats: t.NATS.CPU()}
	for _, w := range t.Workers {
		u.workers += w.CPU()
	}
	if t.Redis != nil {
		u.redis = t.Redis.CPU()
	}
	if t.floor != nil {
		u.floor = t.floor.worker.CPU()
	}
	return u
}

func (u usage) sum() time.Duration { return u.gateway + u.workers + u.nats + u.redis + u.floor }

// since returns the usage since an earlier measurement.
func (u usage) since(b usage) usage {
	return usage{u.gateway - b.gateway, u.workers - b.workers, u.nats - b.nats, u.redis - b.redis, u.floor - b.floor}
}
