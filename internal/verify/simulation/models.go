package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// frail is the model that has outages. It fails for no other reason.
	frail = "frail"

	// spare is the model that an agent with the model frail falls back to. It never fails.
	spare = "spare"

	// wordy is the model whose responses are so long that two runs with several of them do not fit into
	// viewMemory.
	wordy = "wordy"

	// viewMemory is a worker's memory for the histories of such runs.
	viewMemory = 2 << 20

	// lease is at least the duration of a worker's lease.
	lease = 30 * time.Second

	// outageSpan is the time for which a model either works or fails.
	outageSpan = time.Minute

	// opensAfter and rests are what docs/reference/models.md says of a breaker.
	opensAfter = 5
	rests      = 15 * time.Second
)

// healthy is the tenant for which the model frail has no outage.
var healthy = tenants[1]

// manyWords makes a history large with the first response.
var manyWords = strings.Repeat("word ", 60<<10)

// failing reports whether the model frail fails for a tenant now.
func (o *outside) failing(s *Deployment, tenant string) bool {
	span := time.Since(s.began) / outageSpan
	return tenant != healthy && newDice(s.cfg.Seed, fmt.Sprint("outage ", tenant, span)).chance(0.5)
}

// answered records the response that the model gave to a run.
func (o *outside) answered(run state.RunID, r model.Response) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers[nonce(r.Parts)] = run
}

// hears records a response to a call that began at a time, if its process has time to store it, unless the call was cut
// short. A fault up to a lease before the call may have cost the process its lease, and with it the response; so may a
// turn message that was delivered twice, after which another process calls the model, too.
func (s *Deployment) hears(ctx context.Context, p *process, run state.RunID, began time.Time, r model.Response) {
	if ctx.Err() != nil || s.outside.called(run, p, began.Add(-lease)) {
		return
	}
	s.whenCalm(p, began.Add(-lease), func() { s.outside.heard = append(s.outside.heard, heard{run, nonce(r.Parts)}) })
}

// called reports whether another process has called the model for a run since a time.
func (o *outside) called(run state.RunID, p *process, since time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.callers[run], func(c caller) bool { return c.process != p && c.at.After(since) })
}

// calls records that a process calls the model.
func (o *outside) calls(run state.RunID, p *process) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.callers[run] = append(o.callers[run], caller{p, time.Now()})
}

// nonce identifies a response of the model: each has other calls or another text.
func nonce(parts []state.Part) string {
	for _, p := range parts {
		if p.Type == state.PartToolCall {
			return p.ID
		}
	}
	return strings.TrimPrefix(state.Message{Parts: parts}.Text(), manyWords)
}

// try is one call of the model frail, which the breaker of a worker and a tenant has permitted.
type try struct {
	began, ended time.Time // ended is zero until the call has an outcome
	failed       bool      // it counts as a failure; else the outcome may have closed the breaker
}

// tries records a call of the model frail by a process. The caller must call end with the outcome. A call whose context
// ends first, or whose process a fault disturbs or ends, has an outcome that only the worker knows.
func (o *outside) tries(ctx context.Context, p *process, tenant string) (end func(err error)) {
	if !p.alive() {
		return func(error) {} // a dead process has no more effect
	}
	t := &try{began: time.Now()}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := p.name + " " + tenant
	o.tried[key] = append(o.tried[key], t)
	outcome := func(failed bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if t.ended.IsZero() {
			t.ended, t.failed = time.Now(), failed
		}
	}
	stop := context.AfterFunc(ctx, func() { outcome(false) })
	return func(err error) {
		outcome(stop() && err != nil && p.alive() && !p.disturbedSince(t.began))
	}
}

// checkBreakers returns the calls of a model that a worker made although the breaker of that model was open for the
// tenant (A17): after five consecutive failures it makes no call for 15 seconds, and then one until that one has an
// outcome. Calls at the same instant have no defined order.
func (o *outside) checkBreakers() (errs []error) {
	for key, tried := range o.tried {
		for _, t := range tried {
			failures, last := failuresBefore(tried, t.began)
			open := last.Add(rests)
			switch {
			case failures < opensAfter:
			case t.began.Before(open):
				errs = append(errs, fmt.Errorf("A17: %s called the model %s after the last of %d failures", key, t.began.Sub(last), failures))
			case slices.ContainsFunc(tried, func(other *try) bool {
				return !other.began.Before(open) && other.began.Before(t.began) && (other.ended.IsZero() || other.ended.After(t.began))
			}):
				errs = append(errs, fmt.Errorf("A17: %s called the model %s after the last of %d failures, while another call tested whether it answers", key, t.began.Sub(last), failures))
			}
		}
	}
	return errs
}

// failuresBefore returns the number of consecutive failures before a moment, and the time of the last one.
func failuresBefore(tried []*try, at time.Time) (n int, last time.Time) {
	var closed time.Time
	for _, t := range tried {
		if !t.ended.IsZero() && !t.failed && !t.ended.After(at) && t.ended.After(closed) {
			closed = t.ended
		}
	}
	for _, t := range tried {
		if t.failed && t.ended.After(closed) && t.ended.Before(at) {
			n++
			if t.ended.After(last) {
				last = t.ended
			}
		}
	}
	return n, last
}

// checkHeard returns the responses that are missing in their runs, although nothing disturbed the worker, and neither
// an abort nor a message of a person could end its turn (I3).
func (s *Deployment) checkHeard(logs map[state.RunID][]state.Entry) (errs []error) {
	for _, h := range s.outside.heard {
		log, ok := logs[h.Run]
		if !ok || s.outside.spoken[h.Run] || !s.world.aborted[h.Run].IsZero() {
			continue
		}
		if !slices.ContainsFunc(log, func(e state.Entry) bool {
			return e.Type == state.EntryModel && e.Message != nil && nonce(e.Message.Parts) == h.Nonce
		}) {
			errs = append(errs, fmt.Errorf("I3: the model returned %q for %s to an undisturbed worker, and the log does not contain it", h.Nonce, h.Run))
		}
	}
	return errs
}

// checkAnswers returns the responses in logs that the model did not give to the run, or that a log has twice (I3), and
// the runs that returned from a fallback model to the one before.
func (s *Deployment) checkAnswers(all []state.State, logs map[state.RunID][]state.Entry) (errs []error) {
	for _, run := range all {
		log := logs[run.ID]
		if len(log) > 0 && log[0].ForkedFrom != nil {
			continue // it has the responses of the run that it continues
		}
		seen := map[string]bool{}
		fell := false
		for _, e := range log {
			if e.Reason == state.ModelFallback {
				fell = true
				if run.Tenant == healthy && strings.HasPrefix(e.Detail, string(model.Overloaded)) {
					errs = append(errs, fmt.Errorf("A17: %s of the tenant %s, whose calls did not fail, fell back: %s", run.ID, run.Tenant, e.Detail))
				}
			}
			if e.Type != state.EntryModel || e.Message == nil || len(e.Message.Parts) == 0 || nonce(e.Message.Parts) == partial {
				continue
			}
			id := nonce(e.Message.Parts)
			if from := s.outside.answers[id]; from != run.ID {
				errs = append(errs, fmt.Errorf("I3: entry %d of %s has the response %q, which the model gave to %q", e.Seq, run.ID, id, from))
			}
			if seen[id] {
				errs = append(errs, fmt.Errorf("I3: %s has the response %q twice", run.ID, id))
			}
			seen[id] = true
			if fell && e.Message.Model == frail {
				errs = append(errs, fmt.Errorf("entry %d of %s is a response of %s, after a fallback from it", e.Seq, run.ID, frail))
			}
		}
	}
	return errs
}
