package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// Fault is a fault that was injected.
type Fault struct {
	Kind string
	Name string // of the affected part
	From time.Time
	To   time.Time
}

// fault is a kind of fault. do returns when it is over.
type fault struct {
	kind   string
	weight int
	wide   bool // it affects all processes: no two of these at a time
	fits   func(*deployment) bool
	do     blow
}

// between draws a duration.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

func one[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func always(*deployment) bool      { return true }
func withRedis(s *deployment) bool { return len(s.redis) > 0 }
func hidden(s *deployment) bool    { return len(s.redis) > 0 && s.kind == nil }
func alone(s *deployment) bool     { return len(s.nats) == 1 }
func clustered(s *deployment) bool { return len(s.nats) > 1 }

// faults returns all kinds.
func faults() []fault {
	return []fault{
		{"worker killed", 30, false, always, kill(func(s *deployment) []*node { return s.workers })},
		{"worker paused", 10, false, always, stop(func(s *deployment) []*node { return s.workers })},
		{"gateway killed", 5, false, always, kill(gateways)},
		{"gateway paused", 3, false, always, stop(gateways)},
		{"worker cut off from NATS", 4, false, always, hold(func(n *node) *rig.Proxy { return n.toNATS })},
		{"worker cut off from Redis", 4, false, hidden, hold(func(n *node) *rig.Proxy { return n.toRedis })},
		{"connections slowed", 4, false, always, func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			n := one(r, s.nodes())
			hit(n.Name)
			one(r, n.proxies()).Slow(between(r, 5*time.Millisecond, 100*time.Millisecond))
			rig.Pause(ctx, between(r, time.Second, 4*time.Second))
			heal(n)
			return nil
		}},
		{"connections cut", 8, false, always, func(_ context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			n := one(r, s.nodes())
			hit(n.Name)
			one(r, n.proxies()).Cut()
			return nil
		}},
		{"replies lost", 8, false, always, func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			n := one(r, s.nodes())
			hit(n.Name)
			one(r, n.proxies()).LoseReplies(true)
			rig.Pause(ctx, between(r, 10*time.Millisecond, 500*time.Millisecond))
			heal(n)
			return nil
		}},
		{"NATS killed", 4, true, always, func(_ context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			n := one(r, s.nats)
			hit(n.Name)
			n.Kill(between(r, 0, 2*time.Second))
			return nil
		}},
		{"NATS paused", 2, true, always, func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			n := one(r, s.nats)
			hit(n.Name)
			n.Signal(syscall.SIGSTOP)
			rig.Pause(ctx, between(r, 500*time.Millisecond, 3*time.Second))
			n.Signal(syscall.SIGCONT)
			return nil
		}},
		{"NATS stream leader killed", 6, true, clustered, killLeader},
		{"NATS storage full", 2, true, alone, func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			hit(s.nats[0].Name)
			free, err := rig.FillStream(ctx, s.js)
			return fullFor(ctx, free, err, between(r, time.Second, 3*time.Second))
		}},
		{"Redis killed", 5, true, withRedis, func(_ context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			server := s.target(r)
			hit(server.Name)
			server.Kill(between(r, 0, 2*time.Second))
			return nil
		}},
		{"Redis paused", 2, true, withRedis, func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			server := s.target(r)
			hit(server.Name)
			server.Signal(syscall.SIGSTOP)
			rig.Pause(ctx, between(r, 500*time.Millisecond, 4*time.Second))
			server.Signal(syscall.SIGCONT)
			return nil
		}},
		{"Redis disk full", 2, true, withRedis, func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			server := s.target(r)
			hit(server.Name)
			free, err := server.FillDisk()
			if err != nil {
				return err
			}
			return fullFor(ctx, free, nil, between(r, time.Second, 3*time.Second))
		}},
		{"Redis memory full", 2, true, withRedis, func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
			server := s.target(r)
			hit(server.Name)
			free, err := server.FillMemory(ctx)
			return fullFor(ctx, free, err, between(r, time.Second, 3*time.Second))
		}},
	}
}

// target returns the Redis server that a fault is for: the primary, or any server of a kind.
func (s *deployment) target(r *rand.Rand) *rig.RedisServer {
	if s.kind != nil {
		return one(r, s.redis)
	}
	return s.redis[0]
}

func gateways(s *deployment) []*node {
	var all []*node
	for _, d := range s.doors {
		all = append(all, d.node)
	}
	return all
}

// blow strikes one part of a deployment that r chooses, and calls hit with its name.
type blow = func(ctx context.Context, s *deployment, r *rand.Rand, hit func(name string)) error

// kill ends one of the nodes with SIGKILL.
func kill(of func(*deployment) []*node) blow {
	return func(_ context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
		n := one(r, of(s))
		hit(n.Name)
		n.Kill(between(r, 0, time.Second))
		return nil
	}
}

// stop pauses one of the nodes for a while, often for longer than a lease.
func stop(of func(*deployment) []*node) blow {
	return func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
		n := one(r, of(s))
		hit(n.Name)
		n.Signal(syscall.SIGSTOP)
		rig.Pause(ctx, between(r, lease/4, lease*5/2))
		n.Signal(syscall.SIGCONT)
		return nil
	}
}

// hold blocks traffic between one worker and a server for a while.
func hold(link func(*node) *rig.Proxy) blow {
	return func(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
		w := one(r, s.workers)
		hit(w.Name)
		link(w).Hold()
		rig.Pause(ctx, between(r, time.Second, 6*time.Second))
		heal(w)
		return nil
	}
}

// fullFor keeps something full for a while, unless another fault has ended it.
func fullFor(ctx context.Context, free func() error, err error, d time.Duration) error {
	if err == nil {
		rig.Pause(ctx, d)
	}
	return free()
}

func heal(n *node) {
	for _, p := range n.proxies() {
		p.Heal()
	}
}

func killLeader(ctx context.Context, s *deployment, r *rand.Rand, hit func(string)) error {
	name := one(r, []string{streamTurns, streamEvents})
	if len(s.redis) == 0 {
		name = "KV_chaos_runs"
	}
	callCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := s.js.Stream(callCtx, name)
	if err != nil {
		return nil //nolint:nilerr // there is currently no leader
	}
	if c := stream.CachedInfo().Cluster; c != nil {
		for _, n := range s.nats {
			if n.Name == c.Leader {
				hit(n.Name)
				n.Kill(between(r, 0, 2*time.Second))
			}
		}
	}
	return nil
}

// storm injects faults into a deployment until ctx ends, and heals it.
type storm struct {
	deployment *deployment
	r          *rand.Rand

	// struck receives each fault when it begins.
	struck func(Fault)

	mu        sync.Mutex
	faults    []Fault
	rollbacks []Rollback
	errs      []error
}

// failoverEvery is the interval between failovers.
const failoverEvery = 20 * time.Second

func (s *storm) run(ctx context.Context, every time.Duration) {
	var kinds []fault
	total := 0
	for _, f := range faults() {
		if f.fits(s.deployment) {
			kinds = append(kinds, f)
			total += f.weight
		}
	}
	var under sync.WaitGroup
	wide := make(chan struct{}, 1)
	over := time.Now().Add(failoverEvery / 2)
	for rig.Pause(ctx, between(s.r, every/4, every*7/4)) {
		r := rand.New(rand.NewPCG(s.r.Uint64(), 0)) //nolint:gosec // not a secret
		if s.deployment.fails() && time.Now().After(over) {
			wide <- struct{}{}
			s.failover(ctx, r)
			<-wide
			over = time.Now().Add(failoverEvery)
			continue
		}
		n := s.r.IntN(total)
		var f fault
		for _, f = range kinds {
			if n -= f.weight; n < 0 {
				break
			}
		}
		if f.wide {
			select {
			case wide <- struct{}{}:
			default:
				continue
			}
		}
		under.Go(func() {
			s.strike(ctx, f, r)
			if f.wide {
				<-wide
			}
		})
	}
	under.Wait()
	for _, n := range s.deployment.nodes() {
		heal(n)
		n.Signal(syscall.SIGCONT)
	}
}

func (s *storm) strike(ctx context.Context, f fault, r *rand.Rand) {
	var hits []Fault
	err := f.do(ctx, s.deployment, r, func(name string) {
		now := Fault{Kind: f.kind, Name: name, From: time.Now()}
		hits = append(hits, now)
		s.struck(now)
	})
	s.note(f.kind, err, hits)
}

func (s *storm) note(kind string, err error, hits []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hits {
		h.To = time.Now()
		s.faults = append(s.faults, h)
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", kind, err))
	}
}

// failover is a fault that records the interval that may be lost.
func (s *storm) failover(ctx context.Context, r *rand.Rand) {
	f := Fault{Kind: "Redis failover to an older copy", Name: s.deployment.redis[0].Name, From: time.Now()}
	s.struck(f)
	roll, err := s.deployment.failover(ctx, between(r, 200*time.Millisecond, 1500*time.Millisecond))
	if err == nil {
		s.mu.Lock()
		s.rollbacks = append(s.rollbacks, roll)
		s.mu.Unlock()
	}
	s.note(f.Kind, err, []Fault{f})
}
