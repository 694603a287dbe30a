// Package measure runs deployments as users run them, each gateway, worker and server a process of its
// own, and measures them from outside: speed next to a floor of bare operations, memory, and the fate of
// many runs at once. A scenario fails if a run is lost or a promise is broken. No scenario fails for
// being slow: the report marks a figure that misses its target.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config selects what to measure, and on which deployments.
type Config struct {
	Only   []string `default:"turns,alone" help:"Scenarios, by commas: all, or some of turns, alone, history, parked, abort, submit, readers, workers, fair, start, stream, steady, waiting, messages, death, sleep, backlog, growth, lists, bomb, children, trees, retention, intake, attack, webhooks, receivers, triggers, fleet."`
	Short  bool     `help:"A small load, to see that it works."`
	Size   int      `help:"How much of the one scenario that --only names, in place of its own number of runs, turns, readers or bytes."`
	Repeat int      `default:"5" help:"Repetitions of a figure that has a floor, each followed by one of the floor."`

	Store        string        `enum:"redis,jetstream" default:"redis" help:"Where checkpoints are: ${enum}. With jetstream there is no floor."`
	Profile      string        `enum:"lazy,durable" default:"lazy" help:"lazy: Redis syncs its file every second; durable: at every write."`
	NATSLatency  time.Duration `help:"Distance of NATS from gateways and workers."`
	RedisLatency time.Duration `help:"Distance of Redis from them."`
	Without      []string      `enum:"eager_claims,sticky,quarantine," help:"Optimisations of workers to do without, by commas: eager_claims, sticky, quarantine."`

	Dir string `help:"Directory for data and logs. Default: a temporary one, which stays only if something failed."`
}

// scenario is one measurement.
type scenario struct {
	name, what  string
	full, short int // the default sizes
	run         func(ctx context.Context, t *trial) error
}

// scenarios returns all of them, in the order in which they run.
func scenarios() []scenario {
	return []scenario{
		{"turns", "runs of ten turns at once", 500, 50, turns},
		{"alone", "turns of one run alone", 200, 60, alone},
		{"history", "turns of runs that a fresh worker continues", 200, 40, history},
		{"parked", "turns in a model call, on one worker", 2000, 100, parked},
		{"abort", "runs that are aborted in a model call", 200, 10, abort},
		{"submit", "submissions a second", 2500, 200, submit},
		{"readers", "readers of events, every second one slow", 1000, 20, readers},
		{"workers", "workers at most, on the same servers", 8, 2, workers},
		{"fair", "long runs next to a short one", 5000, 300, fair},
		{"start", "starts of turnpike dev and turnpike demo", 5, 1, start},
		{"stream", "seconds of messages of one stream", 3, 1, stream},
		{"steady", "runs in model calls of 10 s that end one after the other", 10_000, 200, steady},
		{"waiting", "runs that wait for a person", 10_000, 200, waiting},
		{"messages", "bytes of one run's history", 5_000_000, 1_000_000, messages},
		{"death", "runs in flight in each of three workers, of which one is killed", 5000, 100, death},
		{"sleep", "runs in flight in each of three workers, of which one sleeps", 5000, 100, sleep},
		{"backlog", "runs that queue for few slots", 100_000, 500, backlog},
		{"growth", "runs that wait, that are queued, and a tenth of those that have ended, next to which turns are measured", 100_000, 100, growth},
		{"lists", "runs among which lists look", 1_000_000, 2000, lists},
		{"bomb", "runs of a tree that is cancelled, at most", 1000, 200, bomb},
		{"children", "runs that one run starts, 32 a turn", 992, 64, children},
		{"trees", "trees of one tenant next to short runs of another", 8, 2, trees},
		{"retention", "ended runs that are deleted while others run", 4000, 300, retention},
		{"intake", "submissions of 64 KiB that one tenant has on NATS while another submits", 1600, 128, intake},
		{"attack", "connections of a hostile tenant that send batches and stall", 400, 20, attack},
		{"webhooks", "runs whose webhook fails half of the requests, while workers are killed", 10_000, 30, webhooks},
		{"receivers", "events to each of two receivers, next to ones that are dead", 1000, 25, receivers},
		{"triggers", "messages of a stream that triggers make runs of", 10_000, 200, triggers},
		{"fleet", "idle workers on 64 streams of turns", 48, 2, fleet},
	}
}

// Names returns the names of all scenarios.
func Names() []string {
	all := make([]string, 0, len(scenarios()))
	for _, s := range scenarios() {
		all = append(all, s.name)
	}
	return all
}

// Check returns an error if the configuration names a scenario that does not exist, or gives a size to
// several.
func (c Config) Check() error {
	_, err := c.chosen()
	return err
}

func (c Config) chosen() (chosen []scenario, err error) {
	for _, name := range c.Only {
		if name != "all" && !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("there is no scenario %q: name all, or some of %s", name, strings.Join(Names(), ", "))
		}
	}
	for _, s := range scenarios() {
		if slices.Contains(c.Only, s.name) || slices.Contains(c.Only, "all") {
			chosen = append(chosen, s)
		}
	}
	if c.Size > 0 && len(chosen) != 1 {
		return nil, fmt.Errorf("a size applies to 1 scenario, and %d are chosen: name 1, or omit the size", len(chosen))
	}
	return chosen, nil
}

// Run measures the chosen scenarios, each on its own deployment. If one cannot be measured, it returns an error
// and the report of the earlier ones. progress receives a line for each.
func Run(ctx context.Context, cfg Config, progress io.Writer) (*Report, error) {
	report := &Report{Store: cfg.Store, Profile: cfg.Profile}
	chosen, err := cfg.chosen()
	if err != nil {
		return report, err
	}
	keep := cfg.Dir != ""
	if !keep {
		if cfg.Dir, err = os.MkdirTemp("", "turnpike-bench-"); err != nil {
			return report, err
		}
	}
	report.Dir = cfg.Dir
	for _, s := range chosen {
		r, err := s.measure(ctx, cfg)
		if err != nil {
			return report, fmt.Errorf("%s: %w (the logs are in %s)", s.name, err, cfg.Dir)
		}
		report.Results = append(report.Results, r)
		fmt.Fprintf(progress, "%s: %.1f s, %d failures\n", s.name, r.Seconds, r.Failed)
	}
	if !keep && !report.Failed() {
		return report, os.RemoveAll(cfg.Dir)
	}
	return report, nil
}

func (s scenario) measure(ctx context.Context, cfg Config) (r Result, err error) {
	ctx, stop := context.WithCancel(ctx)
	t := &trial{cfg: cfg, n: s.full, repeat: max(1, cfg.Repeat), dir: filepath.Join(cfg.Dir, s.name)}
	if cfg.Short {
		t.n, t.repeat = s.short, min(t.repeat, 2)
	}
	if cfg.Size > 0 {
		t.n = cfg.Size
	}
	defer func() {
		stop()
		err = errors.Join(err, t.close())
	}()
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return r, err
	}
	if t.model, err = startModel(ctx, t.n/pageSize); err != nil {
		return r, err
	}
	began := time.Now()
	if err := s.run(ctx, t); err != nil {
		return r, err
	}
	t.result.Scenario, t.result.What, t.result.Count, t.result.Seconds = s.name, s.what, t.n, time.Since(began).Seconds()
	t.look()
	return t.result, nil
}
