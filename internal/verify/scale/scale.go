package scale

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
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config selects the measurements.
type Config struct {
	Only  []string `env:"ONLY" help:"Bars to measure, by commas: death, far-death, sleep, backlog, lists, lists-jetstream, bomb, bomb-jetstream, children, children-jetstream, trees, retention, retention-feed, retention-far, retention-jetstream, retention-jetstream-feed, intake, attack. Default: all."`
	Sizes Sizes    `embed:""`
	Dir   string   `help:"Directory for data and logs. Default: a temporary one, which is kept only if something failed."`
	Bin   string   `help:"Directory that has nats-server, gateway and worker. Default: they are built."`
}

// Sizes are how much of each.
type Sizes struct {
	Runs   int           `default:"5000" help:"Runs in flight in each of three workers, of which one dies or sleeps."`
	Steady time.Duration `default:"10s" help:"How long they are in flight before and after that: leases are renewed meanwhile."`

	Queued int           `default:"100000" help:"Runs of the backlog."`
	Slots  int           `default:"50" help:"Turns in flight at once, of two workers, that the backlog waits for."`
	Takes  time.Duration `default:"500ms" help:"What a turn of the backlog takes."`
	Watch  time.Duration `default:"150s" help:"How long the backlog is watched at most."`

	Listed          int `default:"1000000" help:"Runs among which lists look, on Redis."`
	ListedJetStream int `default:"20000" help:"The same on JetStream."`

	Tree int `default:"1000" help:"Most runs of the tree that a cancellation has to stop."`
	Grow int `default:"100" help:"Runs of the tree when it is cancelled, 100 at most."`

	Children int `default:"992" help:"Runs that one run starts, 32 a turn."`

	Old int `default:"4000" help:"Runs that have ended and are deleted."`

	Queue   int `default:"104857600" help:"Bytes of submissions that one tenant has on NATS while another submits."`
	Tenants int `default:"1000" help:"Tenants that submit over NATS once each."`

	Trees  int           `default:"8" help:"Trees of one tenant whose runs delegate to themselves."`
	Beside time.Duration `default:"45s" help:"Time for which another tenant makes runs in addition to them."`

	Flood      int           `default:"400" help:"Connections of an attack that send batches and stall; there are 20 times as many of other kinds."`
	Greedy     int           `default:"10" help:"Runs of the attack that call 32 tools with answers of 4 MiB."`
	Afterwards time.Duration `default:"5m" help:"Time after the attack in which memory must come back; 0 does not look."`
}

// bar is one thing to hold a deployment to.
type bar struct {
	name, what string
	run        func(ctx context.Context, s *scene) error
}

const far = 50 * time.Millisecond

func bars() []bar {
	return []bar{
		{"death", "one of three workers is killed, NATS is 3 ms away", func(ctx context.Context, s *scene) error { return death(ctx, s, near) }},
		{"far-death", "one of three workers is killed, NATS is 50 ms away", func(ctx context.Context, s *scene) error { return death(ctx, s, far) }},
		{"sleep", "one of three workers sleeps for 3 s, NATS is 3 ms away", sleep},
		{"backlog", "runs queue for few slots", backlog},
		{"lists", "lists look among many runs, on Redis", listsOnRedis},
		{"lists-jetstream", "lists look among many runs, on JetStream", listsOnJetStream},
		{"bomb", "a tree that grows 32 times a turn is cancelled", bomb},
		{"bomb-jetstream", "the same on JetStream", bombOnJetStream},
		{"children", "a run starts runs below it, 32 a turn, on Redis", children},
		{"children-jetstream", "the same on JetStream", childrenOnJetStream},
		{"retention", "old runs are deleted beside live load, on Redis", retention(rig.Config{})},
		{"retention-feed", "the same with the event feed", retention(rig.Config{Env: feedOn})},
		{"retention-far", "the same, Redis is 50 ms away", retention(rig.Config{FromRedis: far})},
		{"retention-jetstream", "the same on JetStream", retention(rig.Config{JetStream: true})},
		{"retention-jetstream-feed", "the same on JetStream with the event feed", retention(rig.Config{JetStream: true, Env: feedOn})},
		{"intake", "a quiet tenant submits over NATS beside a loud one, and many tenants do", intake},
		{"trees", "short runs of a tenant beside trees of another one that grow 32 times a turn", trees},
		{"attack", "a hostile tenant takes memory of gateway and worker", attack},
	}
}

// Row is the result of one bar.
type Row struct {
	Name, What string
	Figures    []string
	Failures   []string // the first few
	Failed     int
}

// Report is all of them.
type Report struct {
	Rows []Row
	Dir  string // with logs, if something failed
}

// Failed reports whether anything did.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Failed > 0 })
}

// String returns the figures for people.
func (r *Report) String() string {
	var b strings.Builder
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%s: %s; %d failures\n", row.Name, row.What, row.Failed)
		for _, f := range row.Figures {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		for _, f := range row.Failures {
			fmt.Fprintf(&b, "  FAILED %s\n", f)
		}
	}
	if r.Failed() {
		fmt.Fprintf(&b, "logs are in %s\n", r.Dir)
	}
	return strings.TrimRight(b.String(), "\n")
}

// Run measures each bar on its own deployment; an error means that it could not. progress receives
// progress messages.
func Run(ctx context.Context, cfg Config, progress io.Writer) (*Report, error) {
	all := bars()
	for _, name := range cfg.Only {
		if !slices.ContainsFunc(all, func(b bar) bool { return b.name == name }) {
			return nil, fmt.Errorf("there is no bar %q", name)
		}
	}
	kept := cfg.Dir != ""
	if !kept {
		var err error
		if cfg.Dir, err = os.MkdirTemp("", "turnpike-scale-"); err != nil {
			return nil, err
		}
	}
	if cfg.Bin == "" {
		cfg.Bin = filepath.Join(cfg.Dir, "bin")
		if err := build(ctx, cfg.Bin); err != nil {
			return nil, err
		}
	}
	report := &Report{Dir: cfg.Dir}
	for _, b := range all {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, b.name) {
			continue
		}
		began := time.Now()
		row, err := b.measure(ctx, cfg, progress)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; logs are in %s", b.name, err, cfg.Dir)
		}
		report.Rows = append(report.Rows, row)
		fmt.Fprintf(progress, "%s: %s, %d failures\n", b.name, time.Since(began).Round(time.Second), row.Failed)
	}
	if !kept && !report.Failed() {
		return report, os.RemoveAll(cfg.Dir)
	}
	return report, nil
}

func build(ctx context.Context, dir string) error {
	return rig.Build(ctx, dir, false, rig.ServerNATS, rig.Module+"cmd/gateway", rig.Module+"cmd/worker")
}

// scene is the environment of a bar.
type scene struct {
	*rig.Deployment
	Sizes

	bin, dir string
	parked   *parked
	progress io.Writer

	mu  sync.Mutex
	row Row
}

func (b bar) measure(ctx context.Context, cfg Config, progress io.Writer) (row Row, err error) {
	ctx, stop := context.WithCancel(ctx)
	s := &scene{Sizes: cfg.Sizes, bin: cfg.Bin, dir: filepath.Join(cfg.Dir, b.name), row: Row{Name: b.name, What: b.what}, progress: progress}
	defer func() {
		stop()
		if s.Deployment != nil {
			err = errors.Join(err, s.Wait())
		}
	}()
	if s.parked, err = park(ctx); err != nil {
		return row, err
	}
	err = b.run(ctx, s)
	return s.row, err
}

// deploy starts the bar's deployment.
func (s *scene) deploy(ctx context.Context, cfg rig.Config) (err error) {
	cfg.Bin, cfg.Dir = s.bin, s.dir
	cfg.Env = append([]string{"TURNPIKE_SECRET_" + modelKey + "=any", "TURNPIKE_MODEL_ALLOW=127.0.0.0/8", "TURNPIKE_HTTP_ALLOW=" + s.parked.host}, cfg.Env...)
	s.Deployment, err = rig.Deploy(ctx, cfg)
	return err
}

// figure records a measurement, and its limit if that is known.
func (s *scene) figure(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	s.row.Figures = append(s.row.Figures, text)
	fmt.Fprintf(s.progress, "%s: %s\n", s.row.Name, text)
}

// fail records a failure.
func (s *scene) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.row.Failed++
	if len(s.row.Failures) < 5 {
		s.row.Failures = append(s.row.Failures, fmt.Sprintf(format, args...))
	}
}

// patience bounds how long anything may take to come to its end.
const patience = 10 * time.Minute

// submitMany submits n runs in batches, as fast as the gateway accepts them. It calls sent with
// each batch before it submits it.
func (s *scene) submitMany(ctx context.Context, agent string, n int, sent func(n int)) (batches, runs []string, err error) {
	for n > 0 {
		size := min(n, state.MaxBatch)
		n -= size
		req := api.BatchRequest{Runs: make([]api.SubmitRequest, size)}
		for i := range req.Runs {
			req.Runs[i] = api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}
		}
		sent(size)
		accepted, err := s.Client.SubmitBatch(ctx, req, "")
		if err != nil {
			return nil, nil, err
		}
		batches, runs = append(batches, accepted.BatchID), append(runs, accepted.RunIDs...)
	}
	return batches, runs, nil
}

// complete waits until all runs of the batches have, or have ended otherwise, which is a
// failure.
func (s *scene) complete(ctx context.Context, batches []string) error {
	for _, id := range batches {
		var counts map[string]int
		err := rig.Until(ctx, patience, "batch "+id+" has completed", func(context.Context) error {
			b, err := s.Client.Batch(ctx, id)
			if counts = b.Counts; err == nil && !b.Done {
				err = fmt.Errorf("%v", b.Counts)
			}
			return err
		})
		if err != nil {
			return err
		}
		for status, n := range counts {
			if status != string(state.Completed) && n > 0 {
				s.fail("%d runs of batch %s are %s", n, id, status)
			}
		}
	}
	return nil
}
