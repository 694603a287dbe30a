package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

var (
	errDead = errors.New("simulation: the process is dead")
	errCut  = errors.New("simulation: i/o timeout")
)

// dice are random draws from a seed and a name, independent of other draws.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed uint64, name string) *dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return &dice{rng: rand.New(rand.NewPCG(seed, h.Sum64()))} //nolint:gosec // a simulation
}

// chance is true with probability p.
func (d *dice) chance(p float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < p
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// between draws a duration, shorter ones more often.
func (d *dice) between(from, to time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.rng.Float64()
	return from + time.Duration(x*x*float64(to-from))
}

// link is a connection of a process.
type link int

const (
	toStore link = iota
	toBus
)

// process is one life of a gateway or a worker. After its death, its goroutines have no more effect.
type process struct {
	deployment *Deployment
	name       string // of this life
	dice       *dice
	ctx        context.Context //nolint:containedctx // its life
	end        context.CancelFunc

	mu     sync.Mutex
	dead   bool
	asleep time.Time          // the time until which it is stopped
	cut    map[link]time.Time // the time until which a link is down
	after  func()             // called after its death
	upset  time.Time          // the time until which it is or was last stopped or cut off
}

func (s *Deployment) newProcess(name string, after func()) *process {
	s.mu.Lock()
	s.lives++
	name = fmt.Sprintf("%s/%d", name, s.lives)
	s.mu.Unlock()
	ctx, end := context.WithCancel(context.Background())
	return &process{deployment: s, name: name, dice: newDice(s.cfg.Seed, name), ctx: ctx, end: end, cut: map[link]time.Time{}, after: after}
}

// crash ends the process.
func (p *process) crash(where string) {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	p.mu.Unlock()
	p.deployment.note(crashed, "%s: crash %s", p.name, where)
	p.end()
	p.after()
}

func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead
}

// pause stops the process for a while, whatever it is doing.
func (p *process) pause(d time.Duration) {
	p.deployment.note(paused, "%s: pause for %s", p.name, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = time.Now().Add(d)
	p.upsetUntil(p.asleep)
}

// sever cuts a link for a while.
func (p *process) sever(l link, d time.Duration) {
	p.deployment.note(severed, "%s: link %d down for %s", p.name, l, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut[l] = time.Now().Add(d)
	p.upsetUntil(p.cut[l])
}

// upsetUntil records a disturbance. The caller holds mu.
func (p *process) upsetUntil(t time.Time) {
	if t.After(p.upset) {
		p.upset = t
	}
}

// disturbedSince reports whether the process was stopped or cut off since a time.
func (p *process) disturbedSince(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upset.After(t)
}

// rest sleeps as long as the process is stopped.
func (p *process) rest() {
	for {
		p.mu.Lock()
		left := time.Until(p.asleep)
		p.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// pass carries a message over a link, in one direction.
func (p *process) pass(l link, what string) error {
	if !p.alive() {
		return errDead
	}
	time.Sleep(p.deployment.latency(p.dice))
	p.rest()
	if f := p.deployment.faults(); f != nil && p.dice.chance(f.Crash) {
		p.crash(what)
	}
	p.mu.Lock()
	down := time.Until(p.cut[l])
	dead := p.dead
	p.mu.Unlock()
	switch {
	case dead:
		return errDead
	case down > 0:
		time.Sleep(min(down, 5*time.Second))
		return fmt.Errorf("%w: %s", errCut, what)
	default:
		return nil
	}
}

// reaches reports whether a message without an answer passes a link. Its sender may hold a lock, so it takes no
// time.
func (p *process) reaches(l link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead && time.Until(p.asleep) <= 0 && time.Until(p.cut[l]) <= 0
}

// do makes a request: to the server, the work, and back. Either direction may fail.
func do[T any](ctx context.Context, p *process, l link, what string, work func() (T, error)) (T, error) {
	var none T
	if err := p.pass(l, "before "+what); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	out, err := work()
	if lost := p.pass(l, "after "+what); lost != nil {
		return none, lost
	}
	if f := p.deployment.faults(); f != nil && p.dice.chance(f.LostReply) {
		p.deployment.note(unanswered, "%s: reply lost after %s", p.name, what)
		return none, fmt.Errorf("%w: %s", errCut, what)
	}
	return out, err
}

func do0(ctx context.Context, p *process, l link, what string, work func() error) error {
	_, err := do(ctx, p, l, what, func() (struct{}, error) { return struct{}{}, work() })
	return err
}
