package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// Config of a campaign.
type Config struct {
	Seed    uint64        `env:"SEED" help:"What the faults and the users' choices are drawn from; drawn itself if 0."`
	Time    time.Duration `env:"TIME" default:"30m" help:"How long faults last, over all deployments."`
	Deploy  []string      `env:"DEPLOY" default:"cluster,single,failover,jetstream,jetstream-cluster,long-lease" help:"Deployments to break, by commas; any is one of these that the seed chooses. Others: redis-cluster, redis-sentinel, valkey."`
	Users   int           `default:"40" help:"Users, each with one run or batch at a time."`
	Workers int           `default:"3" help:"Worker processes."`
	Every   time.Duration `default:"700ms" help:"Mean time between faults."`
	Race    bool          `help:"Build gateways and workers with the race detector."`
	Dir     string        `help:"Directory for logs and evidence. Default: a temporary one, which is kept only if something was found."`
}

const (
	// rest is the time in which runs must wait or end after the last fault.
	rest = 90 * time.Second
	// deliveries is the number of consecutive workers that may lose the same message before it
	// counts as left: a worker may also die at a delivery after the last fault.
	deliveries = 4
	// overhead is the additional time of a phase: to deploy, and to examine every run.
	overhead = 5 * time.Minute
)

// Run runs a campaign and returns its findings; an error means that it could not run the campaign.
// progress receives progress messages.
func Run(ctx context.Context, cfg Config, progress io.Writer) (*Report, error) {
	began := time.Now()
	if cfg.Seed == 0 {
		cfg.Seed = uint64(rand.Uint32()) + 1 //nolint:gosec // not a secret
	}
	if cfg.Users < 1 || cfg.Workers < 2 || cfg.Time < time.Second || cfg.Every < 10*time.Millisecond {
		return nil, errors.New("a campaign needs a user, 2 workers, 1s, and 10ms between faults")
	}
	chosen, err := cfg.choose()
	if err != nil {
		return nil, err
	}
	kept := cfg.Dir != ""
	if !kept {
		if cfg.Dir, err = os.MkdirTemp("", "turnpike-chaos-"); err != nil {
			return nil, err
		}
	}
	if old, err := os.ReadDir(cfg.Dir); err == nil && len(old) > 0 {
		return nil, fmt.Errorf("%s is not empty: servers would find the data of another campaign", cfg.Dir)
	}
	bin := filepath.Join(cfg.Dir, "bin")
	if err := rig.Build(ctx, bin, cfg.Race, rig.ServerNATS, rig.Module+"cmd/gateway", rig.Module+"internal/verify/chaos/worker"); err != nil {
		return nil, err
	}
	m, err := startModel(ctx)
	if err != nil {
		return nil, err
	}
	logging.Disable() // a Redis that is down is expected here
	report := &Report{Seed: cfg.Seed, Dir: cfg.Dir, Replay: cfg.replay()}
	for i, d := range chosen {
		fmt.Fprintf(progress, "chaos: seed %d, %s for %v\n", cfg.Seed, d.name, cfg.Time/time.Duration(len(chosen)))
		c := campaign{Config: cfg, shape: d, seed: cfg.Seed + uint64(i)<<32, lasts: cfg.Time / time.Duration(len(chosen)), model: m}
		p, err := c.phase(ctx, bin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w\nlogs are in %s; to try again: %s", d.name, err, cfg.Dir, report.Replay)
		}
		fmt.Fprintln(progress, p)
		report.add(p)
	}
	report.Took = time.Since(began)
	if len(report.Violations) == 0 && !kept {
		return report, os.RemoveAll(cfg.Dir)
	}
	return report, nil
}

// choose returns the deployments to break, and replaces "any" with what was drawn.
func (c *Config) choose() ([]shape, error) {
	drawn := shapes()
	all := append(drawn, redisKinds()...)
	var chosen []shape
	for i, name := range c.Deploy {
		if name == "any" {
			c.Deploy[i] = drawn[c.Seed%uint64(len(drawn))].name
		}
		n := slices.IndexFunc(all, func(d shape) bool { return d.name == c.Deploy[i] })
		if n < 0 {
			return nil, fmt.Errorf("there is no deployment %q", name)
		}
		chosen = append(chosen, all[n])
	}
	return chosen, nil
}

// replay is the command that draws the same faults again.
func (c Config) replay() string {
	return fmt.Sprintf("make chaos SEED=%d TIME=%v DEPLOY=%s", c.Seed, c.Time, strings.Join(c.Deploy, ","))
}

// campaign is one phase of a campaign.
type campaign struct {
	Config
	shape shape
	seed  uint64
	lasts time.Duration
	model *modelServer
}

// phase deploys, injects faults, waits until all runs rest, and checks.
func (c campaign) phase(ctx context.Context, bin string) (*Phase, error) {
	drain := c.shape.drain()
	ctx, cancel := context.WithTimeout(ctx, c.lasts+rest+drain+overhead)
	s, err := deploy(ctx, c.shape, bin, filepath.Join(c.Dir, c.shape.name), c.Workers, c.model.url)
	defer s.wait() //nolint:errcheck // what could be said is said
	defer cancel()
	if err != nil {
		return nil, err
	}
	p := &Phase{Name: c.shape.name, Settings: s.describe(), began: time.Now()}
	u := &users{deployment: s, r: rand.New(rand.NewPCG(c.seed, 1)), watches: map[*watch]bool{}} //nolint:gosec // not a secret
	storm := &storm{deployment: s, r: rand.New(rand.NewPCG(c.seed, 2)), struck: u.struck}       //nolint:gosec // not a secret
	disturbed, calm := context.WithTimeout(ctx, c.lasts)
	defer calm()
	resting, over := context.WithTimeout(ctx, c.lasts+rest)
	defer over()
	settled, end := context.WithTimeout(ctx, c.lasts+rest+drain)
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.run(resting, disturbed, c.Users)
	}()
	storm.run(disturbed, c.Every)
	<-done
	p.rested = time.Now()
	fired, err := u.stopFiring(settled)
	if err != nil {
		return nil, err
	}
	u.answerAll(settled)
	if err := errors.Join(storm.errs...); err != nil {
		return nil, err
	}
	e, err := c.look(ctx, s, u)
	if err != nil {
		return nil, err
	}
	e.Firings = fired
	e.Faults, e.Rollbacks = storm.faults, storm.rollbacks
	e.Recoveries, e.Lease = u.recoveries, s.lease()
	p.sum(e)
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return p, os.WriteFile(filepath.Join(s.dir, "evidence.json"), data, 0o600)
}

// look gathers the evidence after the end.
func (c campaign) look(ctx context.Context, s *deployment, u *users) (Evidence, error) {
	e := Evidence{Refused: u.refused, Left: left(ctx, s, s.drain()), Answers: c.model.answers()}
	if c.lasts >= keptFor { // a shorter phase judges only runs whose retention has expired
		u.awaitDeletions(ctx)
	}
	err := u.recountAll(ctx)
	if err != nil {
		return e, err
	}
	if e.Runs, err = gather(ctx, s, u.runs); err != nil {
		return e, err
	}
	if e.Remaining, e.Letters, err = remaining(ctx, s, u.runs); err != nil {
		return e, err
	}
	// A gateway that could not complete a deletion, which had already left the marker, tries again after a minute.
	for until := time.Now().Add(2 * time.Minute); ; {
		if e.Remnants, err = remnants(ctx, s, e.Runs); err != nil {
			return e, err
		}
		if len(e.Remnants) == 0 || time.Now().After(until) || !rig.Pause(ctx, 5*time.Second) {
			break
		}
	}
	if e.Notes, err = notesOf(ctx, s); err != nil {
		return e, err
	}
	for _, id := range u.batches {
		b, err := s.doors[0].client.Batch(ctx, id)
		if err != nil && !notFound(err) {
			return e, fmt.Errorf("read batch %s: %w", id, err)
		}
		b.ID = id
		e.Batches = append(e.Batches, b)
	}
	if e.Effects, err = ReadLedger(s.ledger()); err != nil {
		return e, err
	}
	if e.Cries, err = cries(s); err != nil {
		return e, err
	}
	if e.Published, err = published(ctx, s); err != nil {
		return e, err
	}
	e.PublishedAt = time.Now()
	e.Deliveries = awaitEvents(ctx, s, e.Runs) // last: short-lived runs may expire during this wait
	return e, nil
}
