package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/loop/looptest"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// world records the actions of the store, and their times, independent of what processes know.
type world struct {
	aborted  map[state.RunID]time.Time            // when the store got the abort, unless a message came after it
	recorded map[state.RunID]map[string]time.Time // when the write of the response with a call began, by call
	deleted  map[state.RunID]time.Time            // by the clock of the simulation
	ended    map[state.RunID]state.Time           // FinishedAt of the last commit that ended a run
	defied   map[state.RunID]int                  // number of commits that began after the store had the abort
	tenants  map[state.RunID]string               // of each run
	statuses map[state.RunID]state.Status         // in which runs ended
}

func newWorld() world {
	return world{map[state.RunID]time.Time{}, map[state.RunID]map[string]time.Time{}, map[state.RunID]time.Time{}, map[state.RunID]state.Time{}, map[state.RunID]int{}, map[state.RunID]string{}, map[state.RunID]state.Status{}}
}

// creates records the tenant of a run.
func (s *Deployment) creates(run state.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.tenants[run.ID] = run.Tenant
}

func (s *Deployment) tenantOf(run state.RunID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.tenants[run]
}

// journals records that the write of some entries begins.
func (s *Deployment) journals(run state.RunID, entries []state.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if e.Message == nil {
			continue
		}
		for _, c := range e.Message.Calls() {
			if s.world.recorded[run] == nil {
				s.world.recorded[run] = map[string]time.Time{}
			}
			s.world.recorded[run][c.ID] = time.Now()
		}
	}
}

// starts checks the start of a tool against the store (I7): if the store had an abort at the write
// that recorded the response, that write returns it, and no tool of that response starts.
func (s *Deployment) starts(p *process, c tool.Call) {
	s.mu.Lock()
	aborted, recorded, rolled := s.world.aborted[c.Run], s.world.recorded[c.Run][c.ID], s.rolled
	s.mu.Unlock()
	if !aborted.IsZero() && aborted.Before(recorded) && !rolled {
		s.violate("I7: %s starts %s of %s, whose response was recorded %s after the store had the abort", p.name, c.ID, c.Run, recorded.Sub(aborted))
	}
}

// aborts records that the store has an abort.
func (s *Deployment) aborts(run state.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.world.aborted[run].IsZero() {
		s.world.aborted[run] = time.Now()
	}
}

// commits records a commit that began at a time. All clocks here are the simulation's: entries carry the
// store's, which may differ by half a minute.
func (s *Deployment) commits(run state.RunID, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if aborted := s.world.aborted[run]; !aborted.IsZero() && began.After(aborted) {
		s.world.defied[run]++
	}
}

// continues records that a message may let a run continue after an abort.
func (s *Deployment) continues(run state.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.aborted[run] = time.Now().Add(forever)
}

const forever = 1000 * time.Hour

// ends records the end of a run.
func (s *Deployment) ends(run state.RunID, status state.Status, at state.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.ended[run], s.world.statuses[run] = at, status
}

// deletes records that the store has deleted a run. A run of the agent brief that no user deletes
// must have been kept for its period.
func (s *Deployment) deletes(ctx context.Context, in state.Store, run state.RunID) {
	now, err := in.Now(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.deleted[run] = time.Now()
	if end, ok := s.world.ended[run]; ok && err == nil && !s.unwanted[run] && now.Sub(end.Time) < briefly {
		s.kept = append(s.kept, fmt.Sprintf("retention deleted %s %s after its end, it is kept for %s", run, now.Sub(end.Time), briefly))
	}
}

// briefly is the retention of runs of the agent brief.
const briefly = 3 * time.Minute

// calm is the time without faults that a process needs before a tool starts and after it has returned, so that
// its result must be in the log.
const calm = 5 * time.Second

// returned records the result of a tool that its process has time to store.
func (s *Deployment) returned(p *process, c tool.Call, r tool.Result) {
	s.whenCalm(p, time.Now().Add(-calm), func() { s.outside.results = append(s.outside.results, result{c.Run, c.ID, c.Name, r.Content}) })
}

// whenCalm calls record, with the lock of outside, unless a fault disturbs the process between from and calm after now.
func (s *Deployment) whenCalm(p *process, from time.Time, record func()) {
	s.wg.Go(func() {
		time.Sleep(calm)
		if !p.alive() || p.disturbedSince(from) || s.disturbedSince(from) {
			return
		}
		s.outside.mu.Lock()
		defer s.outside.mu.Unlock()
		record()
	})
}

// disturbedSince reports whether everything was slow, or the store fell back, since a time.
func (s *Deployment) disturbedSince(from time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slow.After(from) || s.rolled
}

// checkWorld compares the observations from outside with the final store and bus.
func (s *Deployment) checkWorld(b Backend, all []state.State, logs map[state.RunID][]state.Entry) []error {
	if s.rolled {
		return nil
	}
	return slices.Concat(s.checkHooks(logs), s.checkAnswers(all, logs), s.checkHeard(logs), checkInput(all, logs), checkHandoffs(all, logs), s.checkWithdrawn(logs), s.checkResults(logs), s.checkDeleted(b, all, logs), s.checkLetters(b, all))
}

// checkHooks returns the requests of hooks about something that no log says: a hook
// receives responses that are recorded, and no others.
func (s *Deployment) checkHooks(logs map[state.RunID][]state.Entry) (errs []error) {
	for _, r := range s.outside.asked {
		log, ok := logs[r.Run]
		if !ok {
			continue // deleted
		}
		if r.Point == hook.Input {
			said := func(m state.Message) bool { return m.Text() == r.Input }
			if !slices.ContainsFunc(log, func(e state.Entry) bool { return slices.ContainsFunc(e.Messages, said) }) {
				errs = append(errs, fmt.Errorf("the hook of %s of %s received %q, which is in no message of the log", r.Point, r.Run, r.Input))
			}
			continue
		}
		if r.Point == hook.StopFailure {
			if r.Error == nil {
				errs = append(errs, fmt.Errorf("hook of %s of %s: no error is named", r.Point, r.Run))
			}
			continue
		}
		calls := r.Calls
		if r.Call != nil {
			calls = []hook.Call{*r.Call}
		}
		if !slices.ContainsFunc(log, func(e state.Entry) bool { return e.Message != nil && says(*e.Message, r.Output, calls) }) {
			errs = append(errs, fmt.Errorf("I3: the hook of %s of %s received %q with %d calls, which is in no response of the log", r.Point, r.Run, r.Output, len(calls)))
		}
	}
	return errs
}

// checkInput returns the runs in which the model answered a user message that no input hook had seen.
func checkInput(all []state.State, logs map[state.RunID][]state.Entry) (errs []error) {
	for _, r := range all {
		if r.Agent != "watched" {
			continue
		}
		if m := looptest.AnsweredUnchecked(logs[r.ID]); m != "" {
			errs = append(errs, fmt.Errorf("the model answered message %s of %s before an input hook had seen it", m, r.ID))
		}
	}
	return errs
}

// checkHandoffs returns the runs whose handoffs do not follow from one another, or whose agent is not the
// one that received the last.
func checkHandoffs(all []state.State, logs map[state.RunID][]state.Entry) (errs []error) {
	for _, r := range all {
		at := state.AgentRef{Name: r.Agent, Version: r.AgentVersion}
		for _, e := range logs[r.ID] {
			if e.Handoff == nil {
				continue
			}
			if e.Handoff.From != at {
				errs = append(errs, fmt.Errorf("a handoff of %s is from %+v, but %+v was responsible", r.ID, e.Handoff.From, at))
			}
			at = e.Handoff.To
		}
		if r.Definition() != at {
			errs = append(errs, fmt.Errorf("%s names %+v as responsible, its log %+v", r.ID, r.Definition(), at))
		}
	}
	return errs
}

// checkWithdrawn returns the calls with an effect whose response a rollback has withdrawn.
func (s *Deployment) checkWithdrawn(logs map[state.RunID][]state.Entry) (errs []error) {
	acted := map[string]bool{}
	for _, e := range s.outside.effects {
		acted[e.Call] = true
	}
	for run, log := range logs {
		gone := map[string]bool{}
		for _, e := range slices.Backward(log) {
			if e.Type == state.EntryTombstoned {
				for _, id := range e.MessageIDs {
					gone[id] = true
				}
			}
			if e.Type != state.EntryModel || !gone[e.Message.ID] {
				continue
			}
			for _, c := range e.Message.Calls() {
				if acted[c.ID] {
					errs = append(errs, fmt.Errorf("I3: %s of %s acted, and a rollback has withdrawn its response", c.ID, run))
				}
			}
		}
	}
	return errs
}

// says reports whether a message is a response with this text, if any, and with these calls.
func says(m state.Message, text string, calls []hook.Call) bool {
	if m.Role != state.RoleAssistant || text != "" && m.Text() != text {
		return false
	}
	for _, c := range calls {
		if !slices.ContainsFunc(m.Calls(), func(p state.Part) bool {
			return p.ID == c.ID && p.Name == c.Tool && string(tool.Canonical([]byte(p.Arguments))) == string(tool.Canonical(c.Arguments))
		}) {
			return false
		}
	}
	return true
}

// checkResults returns the results of tools that are missing in their runs, although nothing disturbed the
// worker.
func (s *Deployment) checkResults(logs map[state.RunID][]state.Entry) (errs []error) {
	for _, r := range s.outside.results {
		log, ok := logs[r.Run]
		if !ok || r.Tool == "render" {
			continue
		}
		known := slices.ContainsFunc(log, func(e state.Entry) bool {
			return e.Message != nil && e.Message.Role == state.RoleTool && e.Message.Parts[0].CallID == r.Call && !e.Message.Synthetic
		})
		if !known {
			errs = append(errs, fmt.Errorf("I3: %s of %s returned %q to an undisturbed worker, and the log does not contain it", r.Call, r.Run, r.Content))
		}
	}
	return errs
}

// checkDeleted reports remains of deleted runs, runs whose parent is gone, and effects of runs
// after their deletion.
func (s *Deployment) checkDeleted(b Backend, all []state.State, logs map[state.RunID][]state.Entry) (errs []error) {
	ctx := context.Background()
	there := map[state.RunID]state.State{}
	for _, run := range all {
		there[run.ID] = run
	}
	for _, run := range all {
		if _, deleted := s.world.deleted[run.ID]; deleted {
			errs = append(errs, fmt.Errorf("%s was deleted, and a list contains it", run.ID))
		}
		if run.Parent != nil {
			if _, ok := there[run.Parent.RunID]; !ok {
				errs = append(errs, fmt.Errorf("%s (%s) exists, and its parent %s does not", run.ID, run.Status, run.Parent.RunID))
			}
		}
		if n, err := b.Bus.LastEvent(ctx, run.Tenant, run.ID); err != nil || n != int64(len(logs[run.ID])) {
			errs = append(errs, fmt.Errorf("I9: the log of %s has %d entries, the feed is at %d: %w", run.ID, len(logs[run.ID]), n, errOr(err)))
		}
	}
	for id := range s.world.deleted {
		if _, err := b.Store.Load(ctx, id); !errors.Is(err, state.ErrNotFound) {
			errs = append(errs, fmt.Errorf("%s was deleted, and can be read: %w", id, errOr(err)))
		}
		if log, err := b.Store.Log(ctx, id, 0, 0); !errors.Is(err, state.ErrNotFound) {
			errs = append(errs, fmt.Errorf("%s was deleted, and has a log of %d entries: %w", id, len(log), errOr(err)))
		}
		for _, tenant := range tenants {
			if n, err := b.Bus.LastEvent(ctx, tenant, id); err != nil || n != 0 {
				errs = append(errs, fmt.Errorf("%s was deleted, and the feed has event %d of it: %w", id, n, errOr(err)))
			}
		}
	}
	for _, e := range s.outside.effects {
		// A call that a paused worker started before the deletion may act after it, if
		// another worker has ended the run in between.
		if at, deleted := s.world.deleted[e.Run]; deleted && e.Began.After(at) {
			errs = append(errs, fmt.Errorf("%s of %s started %s after the run was deleted", e.Tool, e.Run, e.Began.Sub(at)))
		}
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		errs = append(errs, err)
	}
	for _, run := range all {
		if age := now.Sub(run.FinishedAt.Time); run.Agent == "brief" && run.Status.Terminal() && age > briefly+3*time.Minute {
			errs = append(errs, fmt.Errorf("%s exists %s after its end, with a retention of %s", run.ID, age, briefly))
		}
	}
	for _, e := range s.kept {
		errs = append(errs, errors.New(e))
	}
	return errs
}

var errNone = errors.New("no error")

func errOr(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// checkLetters returns the dead letters of a tenant other than their run's, and those of deleted runs.
func (s *Deployment) checkLetters(b Backend, all []state.State) (errs []error) {
	of := map[state.RunID]string{}
	for _, run := range all {
		of[run.ID] = run.Tenant
	}
	for _, tenant := range tenants {
		letters, err := b.Bus.DeadLetters(context.Background(), tenant, 0, 1000)
		if err != nil {
			return []error{err}
		}
		for _, l := range letters {
			if want, ok := of[l.Run]; ok && want != tenant {
				errs = append(errs, fmt.Errorf("the dead letter %d of %s is in the tenant %s, the run in %s", l.Seq, l.Run, tenant, want))
			}
			if _, deleted := s.world.deleted[l.Run]; deleted {
				errs = append(errs, fmt.Errorf("%s was deleted, and has the dead letter %d (%s): %s", l.Run, l.Seq, l.Kind, l.Cause))
			}
		}
	}
	return errs
}

var _ bus.Bus = wire{}
