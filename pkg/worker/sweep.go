package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// sweepBatch is how many due runs one pass takes at most.
const sweepBatch = 512

// sweep is the sweeper, a part of the protocol: it publishes the turns whose
// message or worker was lost, wakes runs whose time has come, announces what nobody
// announced, and sees that runs which wait for others have somebody to wait for. Any
// number of workers sweep, without agreeing on who does.
func (w *Worker) sweep(ctx context.Context) {
	for pause(ctx, w.cfg.SweepEvery) {
		for {
			due, err := w.store.Sweep(ctx, sweepBatch, w.cfg.Grace)
			if err != nil {
				if ctx.Err() == nil {
					w.log.Warn().Err(err).Msg("sweep")
				}
				break
			}
			w.drive(ctx, due, "s")
			if len(due) < sweepBatch {
				break
			}
		}
		if err := w.quotas.refresh(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Msg("rate limits")
		}
		if lag, err := w.bus.Lag(ctx); err == nil {
			w.metrics.lag.Set(float64(lag))
		}
	}
}

// drive does for each due run what its entry says. What fails now is due again.
func (w *Worker) drive(ctx context.Context, due []state.Due, kind string) {
	for _, d := range due {
		if err := w.driveOne(ctx, d, kind); err != nil {
			w.log.Warn().Err(err).Str("run_id", string(d.Run)).Msg("sweep")
		}
	}
}

func (w *Worker) driveOne(ctx context.Context, d state.Due, kind string) error {
	if d.Finalize {
		if err := w.settleRun(ctx, d.Run, d.Finalized); err != nil {
			return err
		}
	}
	if !d.Turn {
		return nil
	}
	w.metrics.swept.Inc()
	t := bus.Turn{Run: d.Run, Version: d.Version, Priority: d.Priority, Crowd: d.Crowded || w.tenants.crowd(d.Tenant)}
	// An id of its own: under the turn's the server would drop the message as a
	// double of the one that was lost.
	return w.bus.PublishTurn(ctx, t, fmt.Sprintf("%s:%s%d:%d", turnID(d.Run, d.Version), kind, d.Sweeps, time.Now().UnixNano()))
}

// presence notices workers that are gone, long before their leases run out. A
// worker that was only paused is evicted too, and fenced by its token.
type presence struct {
	w    *Worker
	stop func()

	mu   sync.Mutex
	seen map[string]heard
}

// heard is the last beat of a worker.
type heard struct {
	at        time.Time
	takesKept bool
}

// silence is how many beats a worker may miss.
const silence = 4

func (w *Worker) watchPresence(ctx context.Context) (*presence, error) {
	p := &presence{w: w, seen: map[string]heard{}}
	stop, err := w.bus.Beats(ctx, p.hear)
	p.stop = stop
	return p, err
}

func (p *presence) hear(b bus.Beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.Gone {
		delete(p.seen, b.Worker)
		return
	}
	p.seen[b.Worker] = heard{time.Now(), b.TakesKept}
	if !b.TakesKept {
		p.w.keeping.Store(false)
	}
}

// mayKeep lets the worker keep turns if it knows all others, and each takes over what
// it keeps.
func (p *presence) mayKeep(known bool) {
	p.mu.Lock() // against hear: its no is the last word
	defer p.mu.Unlock()
	for _, h := range p.seen {
		known = known && h.takesKept
	}
	p.w.keeping.Store(known)
}

// run beats and looks around until ctx ends.
func (p *presence) run(ctx context.Context) {
	every := p.w.cfg.BeatEvery
	last := time.Now()
	ready, settled := last.Add(silence*every), false
	for {
		p.w.bus.Beat(bus.Beat{Worker: p.w.cfg.ID, TakesKept: true})
		if !pause(ctx, every) {
			return
		}
		// Who was asleep, or does not hear itself, cannot tell silence from its own
		// deafness: it judges nobody until it has listened for a while again.
		if time.Since(last) > 2*every || p.deaf(2*every) {
			ready, settled = time.Now().Add(silence*every), false
		}
		last = time.Now()
		p.mayKeep(!last.Before(ready))
		if last.Before(ready) {
			continue
		}
		if !settled {
			// Whoever holds a lease and was not heard all the while died before this
			// worker listened.
			settled = p.evictUnheard(ctx)
		}
		p.evict(ctx, p.silent(silence*every))
	}
}

func (p *presence) deaf(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.seen[p.w.cfg.ID].at) > d
}

// silent forgets and returns the workers that were not heard for d.
func (p *presence) silent(d time.Duration) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []string
	for id, h := range p.seen {
		if id != p.w.cfg.ID && time.Since(h.at) > d {
			gone = append(gone, id)
			delete(p.seen, id)
		}
	}
	slices.Sort(gone)
	return gone
}

// remember keeps a worker that could not be evicted among those that are silent,
// unless it was heard meanwhile.
func (p *presence) remember(worker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.seen[worker]; !ok {
		p.seen[worker] = heard{takesKept: true} // if it does anything at all
	}
}

// evictUnheard evicts the owners of leases that were never heard, and reports
// whether it could look.
func (p *presence) evictUnheard(ctx context.Context) bool {
	owners, err := p.w.store.Owners(ctx)
	if err != nil {
		p.w.log.Warn().Err(err).Msg("read owners of leases")
		return false
	}
	p.mu.Lock()
	unheard := slices.DeleteFunc(owners, func(id string) bool { _, heard := p.seen[id]; return heard })
	p.mu.Unlock()
	p.evict(ctx, unheard)
	return true
}

// evictFormerSelf takes up what a process of this worker's id had in hand when it died:
// the others hear the id again and see nobody missing.
func (w *Worker) evictFormerSelf(ctx context.Context) {
	due, err := w.store.Evict(ctx, w.cfg.ID, w.cfg.Grace)
	if err != nil {
		w.log.Warn().Err(err).Msg("evict: leases from before the restart run out by themselves")
	}
	if len(due) > 0 {
		w.log.Info().Int("runs", len(due)).Msg("taking up what was in hand before the restart")
	}
	w.drive(ctx, due, "e")
}

func (p *presence) evict(ctx context.Context, workers []string) {
	for _, id := range workers {
		due, err := p.w.store.Evict(ctx, id, p.w.cfg.Grace)
		if err != nil {
			p.w.log.Warn().Err(err).Str("gone", id).Msg("evict")
			p.remember(id)
			continue
		}
		p.w.log.Warn().Str("gone", id).Int("runs", len(due)).Msg("worker is gone")
		p.w.drive(ctx, due, "e")
	}
}
