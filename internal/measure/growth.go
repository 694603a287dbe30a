package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// mostGrowth is the growth that the targets of the scenario growth allow.
const mostGrowth = 1.1

// growth measures the cost of a turn next to many runs that wait for a person, that are queued and that have ended,
// against its cost in a deployment without them, and the cost of the turns of a run that becomes long.
func growth(ctx context.Context, t *trial) error {
	finished := 10 * t.n
	if t.cfg.Store == "jetstream" {
		finished = min(finished, 20_000) // each process holds the header of every run
	}
	for _, p := range []population{
		{name: "waiting", n: t.n, agent: asksHuman, status: state.Waiting},
		{name: "queued", n: t.n, agent: noops(1, queuedCall), status: state.Queued},
		{name: "finished", n: finished, agent: answers, status: state.Completed},
	} {
		if err := t.grow(ctx, p); err != nil {
			return err
		}
	}
	return t.lengthen(ctx)
}

// queuedCall is the duration of the model call of a queued run, and queuedSlots the number of slots, all of which such
// calls occupy.
const queuedCall, queuedSlots = 500 * time.Millisecond, 50

// fewQueued is the number of runs that keep the slots occupied during a probe, for the other deployment.
const fewQueued = 2000

// population is a number of runs next to which turns are measured.
type population struct {
	name, agent string
	n           int
	status      state.Status // of its runs
}

// queued reports whether the runs of the population execute, a few at a time, while others are measured.
func (p population) queued() bool { return p.status == state.Queued }

// fill submits runs until the population has n, and returns when they have its status.
func (p population) fill(ctx context.Context, t *trial, n int) error {
	r := request(p.name)
	if p.queued() {
		counts, err := t.store.Counts(ctx)
		if err != nil {
			return err
		}
		r.Priority = string(state.Low)
		_, _, err = t.submitMany(ctx, r, n-int(counts[state.Queued]), 0)
		return err
	}
	batches, _, err := t.submitMany(ctx, r, n, 0)
	if err != nil {
		return err
	}
	return t.reach(ctx, batches, p.status)
}

// grow measures a load in turns on two deployments, only one with the population.
func (t *trial) grow(parent context.Context, p population) (err error) {
	ctx, stop := context.WithCancel(parent)
	cfg := rig.Config{}
	if p.queued() {
		cfg.Env = []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", queuedSlots)}
	}
	dir := filepath.Join(t.dir, p.name)
	empty, full := t.another(filepath.Join(dir, "empty")), t.another(filepath.Join(dir, "full"))
	defer func() {
		stop()
		err = errors.Join(err, empty.close(), full.close())
		if err == nil && t.result.Failed == 0 {
			err = os.RemoveAll(dir) // a million runs take gigabytes
		}
	}()
	for _, one := range []*trial{empty, full} {
		if err := one.deploy(ctx, cfg); err != nil {
			return err
		}
		if err := errors.Join(one.define(ctx, p.name, p.agent), one.define(ctx, "probe", noops(turnsEach, 0)), one.define(ctx, "brief", answers)); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := p.fill(ctx, full, p.n); err != nil {
		return err
	}
	t.figure(Figure{Name: fmt.Sprintf("%s: %d runs", p.name, p.n), Value: time.Since(began).Seconds(), Unit: "s"})
	if !t.cfg.Short {
		// The worker's cache drops the logs of runs that wait, and the sweeper looks at each run for the first time.
		pause(ctx, time.Minute)
	}
	var without, with []load
	for round := range t.rounds() + 1 {
		for one, all := range map[*trial]*[]load{empty: &without, full: &with} {
			if p.queued() {
				if err := p.fill(ctx, one, map[*trial]int{empty: min(p.n/5, fewQueued), full: p.n}[one]); err != nil {
					return err
				}
			}
			l, err := one.probe(ctx, t.probes())
			if err != nil {
				return err
			}
			if round > 0 { // the first warms connections, scripts and caches
				*all = append(*all, l)
			}
		}
	}
	t.grown(p.name, "next to them, times that without", without, with)
	if p.queued() {
		q := &queue{trial: full}
		for range 3 * t.rounds() {
			if err := q.timer(ctx); err != nil {
				return err
			}
		}
		t.times("queued: an urgent run, from its start_at to its end", q.late, 0.9, 2000)
	}
	full.look()
	for _, used := range full.result.Processes {
		used.Name = p.name + ", " + used.Name
		t.result.Processes = append(t.result.Processes, used)
	}
	for _, one := range []*trial{empty, full} {
		t.result.Failed += one.result.Failed
		t.result.Failures = append(t.result.Failures, one.result.Failures...)
	}
	return nil
}

// another returns a trial of a further deployment with the same configuration.
func (t *trial) another(dir string) *trial {
	return &trial{cfg: t.cfg, n: t.n, repeat: t.repeat, dir: dir, model: t.model}
}

// rounds and probes are the repetitions of a load and the number of its runs.
func (t *trial) rounds() int {
	if t.cfg.Short {
		return 1
	}
	return 2*t.repeat + 1
}

func (t *trial) probes() int { return max(10, min(300, t.n/10)) }

// load is the cost of a number of turns.
type load struct {
	turns, took float64 // and seconds
	cpu         usage
	bytes       float64 // to and from Redis
}

// middle returns the mean of the middle half of the values: the system counts processor time in steps of 10 ms, so a
// median would jump.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return mean(sorted[len(sorted)/4 : len(sorted)-len(sorted)/4])
}

// meter measures a load from its creation on.
type meter struct {
	*trial

	began time.Time
	cpu   usage
	bytes float64
}

func (t *trial) meter(ctx context.Context) (m *meter, err error) {
	m = &meter{trial: t}
	m.bytes, err = t.traffic(ctx)
	m.began, m.cpu = time.Now(), t.used()
	return m, err
}

// load returns the cost since the creation of m or the last call, in which so many turns were made.
func (m *meter) load(ctx context.Context, turns float64) (l load, err error) {
	l.turns, l.took, l.cpu = turns, time.Since(m.began).Seconds(), m.used().since(m.cpu)
	before := m.bytes
	m.bytes, err = m.traffic(ctx)
	l.bytes = m.bytes - before
	m.began, m.cpu = time.Now(), m.used()
	return l, err
}

// lines reads n lines of a file that grows.
func lines(ctx context.Context, file io.Reader, n int) error {
	one := make([]byte, 1)
	return soon(ctx, "all turns have called the tool", func() (bool, error) {
		for n > 0 {
			if _, err := file.Read(one); err == io.EOF {
				return false, nil
			} else if err != nil {
				return false, err
			}
			if one[0] == '\n' {
				n--
			}
		}
		return true, nil
	})
}

// traffic returns the number of bytes to and from Redis; 0 without Redis.
func (t *trial) traffic(ctx context.Context) (float64, error) {
	if t.Redis == nil {
		return 0, nil
	}
	v, err := t.info(ctx, "stats", "total_net_input_bytes", "total_net_output_bytes")
	return v[0] + v[1], err
}

// probe executes n urgent runs of ten turns, and measures them together with the other runs that end meanwhile, of one
// turn each.
func (t *trial) probe(ctx context.Context, n int) (l load, err error) {
	calls, err := t.calls()
	if err != nil {
		return l, err
	}
	defer calls.Close() //nolint:errcheck // it is only read
	before, err := t.ended(ctx)
	if err != nil {
		return l, err
	}
	m, err := t.meter(ctx)
	if err != nil {
		return l, err
	}
	r := request("probe")
	r.Priority = string(state.High)
	batches, _, err := t.submitMany(ctx, r, n, 0)
	if err != nil {
		return l, err
	}
	if err := lines(ctx, calls, n*(turnsEach-1)); err != nil {
		return l, err
	}
	if err := t.reach(ctx, batches, state.Completed); err != nil {
		return l, err
	}
	if l, err = m.load(ctx, 0); err != nil {
		return l, err
	}
	after, err := t.ended(ctx)
	l.turns = float64(n*(turnsEach-1) + after - before)
	return l, err
}

// calls opens the list of the calls of the tool noop at its end. Questions to the deployment would cost as much as the
// turns that one waits for.
func (t *trial) calls() (*os.File, error) {
	f, err := os.Open(t.stepsFile())
	if err == nil {
		_, err = f.Seek(0, io.SeekEnd)
	}
	return f, err
}

// grown records the cost of a turn of two loads as ratios.
func (t *trial) grown(what, times string, without, with []load) {
	ratio := func(name string, target float64, unit string, of func(load) float64) {
		each := func(all []load) (values []float64) {
			for _, l := range all {
				values = append(values, of(l))
			}
			return values
		}
		if a, b := middle(each(without)), middle(each(with)); a > 0 {
			t.figure(Figure{Name: fmt.Sprintf("%s: %s of a turn, %s", what, name, times), Value: b / a, Most: target, Note: fmt.Sprintf("%s → %s %s", number(a), number(b), unit)})
		}
	}
	cost := func(of func(usage) time.Duration) func(load) float64 {
		return func(l load) float64 { return 1000 * ms(of(l.cpu)) / l.turns }
	}
	ratio("processor time", mostGrowth, "µs", cost(usage.sum))
	ratio("the gateway's", 0, "µs", cost(func(u usage) time.Duration { return u.gateway }))
	ratio("the worker's", 0, "µs", cost(func(u usage) time.Duration { return u.workers }))
	ratio("NATS'", 0, "µs", cost(func(u usage) time.Duration { return u.nats }))
	ratio("Redis'", 0, "µs", cost(func(u usage) time.Duration { return u.redis }))
	ratio("bytes to and from Redis", mostGrowth, "B", func(l load) float64 { return l.bytes / l.turns })
	ratio("time", 0, "µs", func(l load) float64 { return 1e6 * l.took / l.turns })
}

// lengthen measures the first and the last hundred turns of runs of a thousand, which messages continue four times.
func (t *trial) lengthen(parent context.Context) (err error) {
	const legs, leg = 5, 200
	ctx, stop := context.WithCancel(parent)
	one := t.another(filepath.Join(t.dir, "turns"))
	defer func() {
		stop()
		err = errors.Join(err, one.close())
	}()
	if err := one.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	var responses []string
	for i := range legs * leg {
		if (i+1)%leg == 0 {
			responses = append(responses, fmt.Sprintf("{text: %q}", modelText))
		} else {
			responses = append(responses, fmt.Sprintf("{tool_calls: [{name: noop, arguments: {q: \"%d %s\"}}]}", i, arguments))
		}
	}
	if err := one.define(ctx, "long", fmt.Sprintf("model: {provider: scripted, responses: [%s]}\nloop: {max_turns: %d}\ntools: [{name: noop, idempotent: true, reuse: false}]\n", strings.Join(responses, ", "), leg)); err != nil {
		return err
	}
	calls, err := one.calls()
	if err != nil {
		return err
	}
	defer calls.Close() //nolint:errcheck // it is only read
	n := max(2, min(8, t.n/100))
	var first, last []load
	for range t.rounds() {
		m, err := one.meter(ctx)
		if err != nil {
			return err
		}
		batches, runs, err := one.submitMany(ctx, request("long"), n, 0)
		if err != nil {
			return err
		}
		for i := range legs {
			if i > 0 {
				if err := one.message(ctx, runs); err != nil {
					return err
				}
			}
			if err := lines(ctx, calls, n*leg/2); err != nil {
				return err
			}
			l, err := m.load(ctx, float64(n*leg/2))
			if err != nil {
				return err
			}
			if i == 0 {
				first = append(first, l)
			}
			if err := lines(ctx, calls, n*(leg/2-1)); err != nil {
				return err
			}
			if err := one.reach(ctx, batches, state.Completed); err != nil {
				return err
			}
			if l, err = m.load(ctx, float64(n*leg/2)); err != nil {
				return err
			}
			if i == legs-1 {
				last = append(last, l)
			}
		}
	}
	t.grown("one run", "the last hundred of a thousand, times the first hundred", first, last)
	return nil
}

// message sends a message to each of the runs.
func (t *trial) message(ctx context.Context, runs []string) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for _, id := range runs {
		group.Go(func() error {
			_, err := t.Client.Signal(groupCtx, id, api.SignalRequest{Message: json.RawMessage(`"go on"`)})
			return err
		})
	}
	return group.Wait()
}
