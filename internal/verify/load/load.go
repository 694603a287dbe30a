package load

import (
	"context"
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
)

// Config selects the measurements.
type Config struct {
	Store string   `env:"STORE" default:"redis" enum:"redis,jetstream" help:"Where checkpoints are: ${enum}."`
	Only  []string `env:"ONLY" help:"Loads to measure, by commas: runs, turns, waiting, long, history, readers. Default: all."`
	Sizes Sizes    `embed:""`
	Dir   string   `help:"Directory for data and logs. Default: a temporary one, which is kept only if something failed."`
	Bin   string   `help:"Directory that has nats-server, gateway and worker. Default: they are built."`
}

// Sizes are how much of each load.
type Sizes struct {
	Runs    int `default:"10000" help:"Runs submitted at once."`
	Turns   int `default:"2000" help:"Turns in flight in one worker."`
	Waiting int `default:"100000" help:"Runs that wait for a person."`
	Long    int `default:"1000" help:"Turns of one run."`
	History int `default:"5000000" help:"Bytes of one run's history."`
	Readers int `default:"1000" help:"Readers of event streams, of which every second is slow."`
}

// load is one thing to measure. It returns what went wrong, run by run.
type load struct {
	name string
	what string
	size func(Sizes) int
	run  func(ctx context.Context, s *deployment, n int) error
}

func loads() []load {
	return []load{
		{"runs", "runs at once, two turns and a tool call each", func(z Sizes) int { return z.Runs }, manyRuns},
		{"turns", "turns in flight in one worker", func(z Sizes) int { return z.Turns }, manyTurns},
		{"waiting", "runs that wait for a person", func(z Sizes) int { return z.Waiting }, manyWaiting},
		{"long", "turns of one run", func(z Sizes) int { return z.Long }, longRun},
		{"history", "bytes of one run's history", func(z Sizes) int { return z.History }, longHistory},
		{"readers", "readers of streams, half of them slow", func(z Sizes) int { return z.Readers }, manyReaders},
	}
}

// Row is what one load took.
type Row struct {
	Name, What string
	Count      int
	Took       time.Duration
	Peaks      []Peak
	Failures   []string // the first few
	Failed     int
}

// Peak is the most memory that a process had resident.
type Peak struct {
	Process string
	Bytes   int64
}

// Peak returns the peak memory of a process, in bytes; 0 if no process has that name.
func (r *Row) Peak(process string) int64 {
	for _, p := range r.Peaks {
		if p.Process == process {
			return p.Bytes
		}
	}
	return 0
}

// Report is the table of a measurement.
type Report struct {
	Rows []Row
	Dir  string // with logs, if something failed
}

// Failed reports whether anything did.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Failed > 0 })
}

// String returns the table.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-46s %8s %8s  %s\n", "what", "count", "took", "peak resident, MiB")
	for _, row := range r.Rows {
		var peaks []string
		for _, p := range row.Peaks {
			peaks = append(peaks, fmt.Sprintf("%s %d", p.Process, p.Bytes>>20))
		}
		fmt.Fprintf(&b, "%-46s %8d %8s  %s; %d failures\n", row.What, row.Count, row.Took.Round(100*time.Millisecond), strings.Join(peaks, ", "), row.Failed)
		for _, f := range row.Failures {
			fmt.Fprintf(&b, "  %s\n", f)
		}
	}
	if r.Failed() {
		fmt.Fprintf(&b, "logs are in %s\n", r.Dir)
	}
	return strings.TrimRight(b.String(), "\n")
}

// Run measures each load on its own deployment; an error means that it could not. progress receives
// progress messages.
func Run(ctx context.Context, cfg Config, progress io.Writer) (*Report, error) {
	kept := cfg.Dir != ""
	if !kept {
		var err error
		if cfg.Dir, err = os.MkdirTemp("", "turnpike-load-"); err != nil {
			return nil, err
		}
	}
	report := &Report{Dir: cfg.Dir}
	if cfg.Bin == "" {
		cfg.Bin = filepath.Join(cfg.Dir, "bin")
		if err := build(ctx, cfg.Bin); err != nil {
			return nil, err
		}
	}
	for _, l := range loads() {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, l.name) {
			continue
		}
		row, err := l.measure(ctx, cfg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; logs are in %s", l.name, err, cfg.Dir)
		}
		report.Rows = append(report.Rows, row)
		fmt.Fprintf(progress, "%s: %d in %s, %d failures\n", l.name, row.Count, row.Took.Round(100*time.Millisecond), row.Failed)
	}
	if !kept && !report.Failed() {
		return report, os.RemoveAll(cfg.Dir)
	}
	return report, nil
}

// build compiles the programs of a deployment into dir.
func build(ctx context.Context, dir string) error {
	return rig.Build(ctx, dir, false, rig.ServerNATS, rig.Module+"cmd/gateway", rig.Module+"cmd/worker")
}

// deployment is the environment of a load.
type deployment struct {
	*rig.Deployment
	model     *gate
	restarted *rig.Process // by the load

	mu       sync.Mutex
	failures []string
	failed   int
}

// fail records a failure.
func (s *deployment) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed++
	if len(s.failures) < 5 {
		s.failures = append(s.failures, fmt.Sprintf(format, args...))
	}
}

func (l load) measure(ctx context.Context, cfg Config) (row Row, err error) {
	ctx, stop := context.WithCancel(ctx)
	s := &deployment{}
	defer func() {
		stop()
		if s.Deployment != nil {
			err = errors.Join(err, s.Wait())
		}
	}()
	row = Row{Name: l.name, What: l.what, Count: l.size(cfg.Sizes)}
	if s.model, err = startModel(ctx, cfg.Sizes); err != nil {
		return row, err
	}
	s.Deployment, err = rig.Deploy(ctx, rig.Config{
		Bin: cfg.Bin, Dir: filepath.Join(cfg.Dir, l.name), JetStream: cfg.Store == "jetstream",
		Env: []string{"TURNPIKE_SLOTS=2500", "TURNPIKE_LOG_LEVEL=warn", "TURNPIKE_SECRET_" + modelKey + "=any", "TURNPIKE_MODEL_ALLOW=127.0.0.0/8"},
	})
	if err != nil {
		return row, err
	}
	stopTools, err := s.serveTools()
	if err != nil {
		return row, err
	}
	defer func() { _ = stopTools() }()
	began := time.Now()
	if err := l.run(ctx, s, row.Count); err != nil {
		return row, err
	}
	row.Took = time.Since(began)
	for _, p := range s.all() {
		row.Peaks = append(row.Peaks, Peak{p.Name, p.Peak()})
		if n := p.Exits(); n > s.restarts(p) {
			s.fail("%s has ended %d times", p.Name, n)
		}
	}
	row.Failed, row.Failures = s.failed, s.failures
	return row, nil
}

func (s *deployment) all() []*rig.Process {
	all := append(s.Processes(), &s.NATS.Process)
	if s.Redis != nil {
		all = append(all, &s.Redis.Process)
	}
	return all
}
