package explore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/internal/verify/invariant"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// outside records effects that no crash undoes, and observations on the way. deployment.mu guards it. It has
// many fields because each kind of effect has one.
type outside struct {
	asked       int // model calls
	effects     []effect
	refused     map[string]bool       // keys of calls, by a probe
	started     map[string]int        // calls whose tool has a probe
	taken       map[state.RunID]taken // turns that a second worker has resumed
	late        []effect              // effects that the second worker must learn of
	paused      map[string]bool       // tokens of workers that must report that they were only paused
	warned      map[turnOf]bool       // whether the last write to the journal met an abort in the store
	returned    map[string]returned   // calls whose tools have returned, until their worker writes the result
	putOff      map[release]int       // deferred turns whose messages have no answer yet
	guarded     map[string]bool       // calls about which a hook was called
	replies     int                   // to a service
	abortSent   bool                  // over the bus
	abortTried  bool                  // in the store
	letters     []bus.DeadLetter
	accepted    []state.RunID       // acknowledged submissions
	forks       map[state.RunID]int // acknowledged forks, with their turns
	said        bool                // a message was accepted
	gone        bool                // a deletion was acknowledged: the run is deleted
	deleted     map[state.RunID]bool
	after       map[state.RunID]int // transitions since the run had to end
	spoken      map[state.RunID]bool
	rolledBack  bool
	faults      map[outcome]int
	interrupted bool // an event has occurred after which a turn may have another attempt
	switches    int  // departures from the default order
	violations  []string
}

// effect is one effect of a tool.
type effect struct {
	run                   state.RunID
	call, name, arguments string
	key                   string
}

// taken is a turn that was resumed after its first worker was lost.
type taken struct {
	by      *process
	version int64
	at      time.Time
}

// turnOf is a run at a process.
type turnOf struct {
	by  int
	run state.RunID
}

// returned is a call whose tool has returned to a process.
type returned struct {
	to  *process
	run state.RunID
}

// release is the end of a lease whose holder has deferred the turn.
type release struct {
	by      int // process
	run     state.RunID
	version int64
}

func newOutside() outside {
	return outside{forks: map[state.RunID]int{}, deleted: map[state.RunID]bool{}, warned: map[turnOf]bool{}, returned: map[string]returned{}, putOff: map[release]int{}, taken: map[state.RunID]taken{}, paused: map[string]bool{}, guarded: map[string]bool{}, refused: map[string]bool{}, started: map[string]int{}, after: map[state.RunID]int{}, spoken: map[state.RunID]bool{}, faults: map[outcome]int{}}
}

// key identifies the state outside, as far as the checks use it.
func (o *outside) key(h *maphash.Hash) {
	sum := uint64(0)
	for _, e := range o.effects {
		sum += maphash.String(seed, fmt.Sprint(e))
	}
	_ = binary.Write(h, binary.LittleEndian, sum)
	for _, id := range slices.Sorted(maps.Keys(o.taken)) {
		fmt.Fprint(h, id, o.taken[id].by.index, o.taken[id].version, o.taken[id].at)
	}
	for _, t := range slices.SortedFunc(maps.Keys(o.warned), func(a, b turnOf) int { return cmp.Or(a.by-b.by, strings.Compare(string(a.run), string(b.run))) }) {
		fmt.Fprint(h, t, o.warned[t])
	}
	fmt.Fprint(h, slices.Sorted(maps.Keys(o.returned)), o.late, o.paused, o.putOff, o.guarded, o.refused, o.started, o.replies, o.abortSent, o.abortTried, o.asked, len(o.letters), o.accepted, len(o.forks), o.said, o.gone, o.deleted, o.after, o.spoken, o.rolledBack, len(o.faults) > 0, o.interrupted, o.switches > 0)
}

// violate records a violation.
func (s *deployment) violate(format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// begins checks the start of a model or tool call against I7.
func (s *deployment) begins(ctx context.Context, p *process, run state.RunID, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.awake() && p.aborted[run] && !s.spoken[run] && ctx.Err() == nil {
		s.violate("I7: %s for %s by %s, which knows of its abort", what, s.short(run), p.name)
	}
}

// journals records whether a write to the journal met an abort according to the store, whatever answer the
// worker got.
func (s *deployment) journals(p *process, l state.Lease, err error) {
	if r, ok := s.record(l.Run); ok && err == nil {
		s.warned[turnOf{p.index, l.Run}] = r.Abort != nil
	}
}

// follows checks the start of a tool, or of a hook before it, against I7: the response was
// journaled before the abort of the run.
func (s *deployment) follows(ctx context.Context, p *process, run state.RunID, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.awake() && ctx.Err() == nil && s.warned[turnOf{p.index, run}] && !s.rolledBack {
		s.violate("I7: %s for %s by %s, and the store had its abort when the response was journaled", what, s.short(run), p.name)
	}
}

// returns records that a tool has returned.
func (s *deployment) returns(p *process, c tool.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned[c.ID] = returned{p, c.Run}
}

// writes records that a process is about to store the results of calls.
func (s *deployment) writes(p *process, results []state.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range results {
		if s.returned[e.CallID].to == p {
			delete(s.returned, e.CallID)
		}
	}
}

// checkReturned checks I3 for idle workers: a worker sends a tool's result to the store before it
// waits for anything else.
func (s *deployment) checkReturned() {
	for call, r := range s.returned {
		if r.to.dead {
			delete(s.returned, call)
		} else if r.to.awake() {
			s.violate("I3: %s waits with what %s of %s has returned, and does not write that down", r.to.name, call, s.short(r.run))
		}
	}
}

// takes records that a turn was claimed.
func (s *deployment) takes(p *process, c *state.Claim) {
	// From the first time on, its turn is deferred, and resumed once.
	if t, ok := s.taken[c.Lease.Run]; c.Attempt == 2 && (!ok || t.version != c.Lease.Version) {
		s.taken[c.Lease.Run] = taken{p, c.Lease.Version, time.Now()}
	}
}

// fences records the lease whose results came too late, while its turn is still open.
func (s *deployment) fences(l state.Lease, err error) {
	s.changed()
	if r, _ := s.record(l.Run); errors.Is(err, state.ErrFenced) && r.Version == l.Version && slices.Contains(r.Evicted, l.Token) {
		s.paused[l.Token] = true
	}
}

// acts records an effect.
func (s *deployment) acts(p *process, c tool.Call) {
	if s.deleted[c.Run] {
		s.violate("I7: %s acts for %s, which is deleted", c.ID, s.short(c.Run))
	}
	e := effect{c.Run, c.ID, c.Name, string(c.Arguments), c.IdempotencyKey}
	s.effects = append(s.effects, e)
	r, _ := s.record(c.Run)
	if t, ok := s.taken[c.Run]; ok && t.by != p && t.version == r.Version && !c.Idempotent && time.Since(t.at) < late {
		s.late = append(s.late, e)
	}
	if s.sc.Hooks && !s.guarded[c.ID] && !s.rolledBack {
		s.violate("I3: %s acts, and no hook was asked", c.ID)
	}
	again := 0
	for _, e := range s.effects {
		again += count(e.key == c.IdempotencyKey || e.run == c.Run && e.call == c.ID)
	}
	if again > 1 && !c.Idempotent && !s.rolledBack {
		s.violate("I4: %s of %s acts %d times", c.ID, s.short(c.Run), again)
	}
}

// starts records that a call begins.
func (s *deployment) starts(c tool.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sc.Probe {
		return
	}
	if s.started[c.ID]++; s.started[c.ID] > 2 && !s.rolledBack {
		s.violate("I4: %s of %s is started %d times", c.ID, s.short(c.Run), s.started[c.ID])
	}
}

// aborts records that a run must end.
func (s *deployment) aborts(id state.RunID) {
	if _, known := s.after[id]; !known {
		s.after[id] = 0
	}
}

// speaks records that a user continues a run, even after an abort.
func (s *deployment) speaks(id state.RunID) {
	s.spoken[id] = true
	delete(s.after, id)
}

// creates checks a run that is about to be created against its parent.
func (s *deployment) creates(run state.NewRun) {
	p := run.State.Parent
	if _, exists := s.record(run.State.ID); exists || p == nil || s.rolledBack || s.deleted[p.RunID] { // checkDeleted looks for what the store accepts of deleted runs
		return
	}
	r, ok := s.record(p.RunID)
	if !ok {
		s.violate("I3: %s is a child of no run", s.short(run.State.ID))
		return
	}
	waits := slices.ContainsFunc(r.Header.Open, func(o state.OpenCall) bool { return o.Child == run.State.ID })
	if (s.sc.Interrupt || s.sc.Withdraw) && s.spoken[p.RunID] && !waits { // the answer to the user may be pending
		s.aborts(run.State.ID)
		return
	}
	if r.Status == state.Running && !waits {
		s.violate("I3: %s is started before its parent's turn is committed", s.short(run.State.ID))
	}
	if r.Status.Terminal() {
		s.aborts(run.State.ID)
	}
}

// finishes checks a commit against the inbox: a run consumes its inbox before it ends, and does not
// wait while the inbox has signals.
func (s *deployment) finishes(before record.Record, c state.Commit, err error) {
	if err == nil && before.CommitID != c.ID && c.State.Status.Terminal() && before.Abort == nil && c.State.Status != state.Cancelled && len(before.Inbox) > c.Consumed {
		s.violate("I1: run.finished of %s is written while the inbox has what its turn has not used", s.short(c.State.ID))
	}
	if r, ok := s.record(c.State.ID); ok && err == nil && (r.Status == state.Waiting || r.Status.Terminal()) && (r.Abort != nil || len(r.Inbox) > 0) {
		s.violate("I2: %s is %s, and its inbox is not read", s.short(c.State.ID), r.Status)
	}
}

// commits records that a commit was made for a run at version before.
func (s *deployment) commits(id state.RunID, before int64) {
	r, ok := s.record(id)
	if !ok || r.Version == before {
		return
	}
	if _, aborted := s.after[id]; aborted {
		s.after[id]++
	}
	if r.Status != state.Cancelled && r.Header.Transition.Reason != state.Interrupted {
		return
	}
	// The run no longer waits for its children.
	for _, child := range s.store.Snapshot().Runs() {
		if c, ok := s.record(child); ok && c.Header.Parent != nil && c.Header.Parent.RunID == id && !c.Status.Terminal() {
			s.aborts(child)
		}
	}
}

// checkGrown compares a hint with the store: the entries that it announces must exist.
func (s *deployment) checkGrown(run state.RunID, to int64) {
	if r, _ := s.record(run); to > r.LogLen && !s.rolledBack && !s.deleted[run] {
		s.violate("I9: readers of %s are notified of %d entries, the store has %d", s.short(run), to, r.LogLen)
	}
}

// checkPublished compares a turn message with the store: it must only be a hint.
func (s *deployment) checkPublished(t bus.Turn) {
	r, ok := s.record(t.Run)
	if s.rolledBack || s.deleted[t.Run] {
		return
	}
	if !ok || r.Version < t.Version {
		s.violate("I1: the turn after %s at %d is published, the store has %d", s.short(t.Run), t.Version, r.Version)
	}
}

// releases records that a worker has deferred a turn and knows of it: the sweeper must bring it
// back.
func (s *deployment) releases(p *process, l state.Lease, delay time.Duration, err error) {
	delete(s.paused, l.Token)
	if r, ok := s.record(l.Run); ok && err == nil && delay > 0 && s.outcome == done {
		if r.Status != state.Queued || r.Version != l.Version || (time.Until(r.Due.Time)-delay).Abs() > time.Millisecond {
			s.violate("I2: %s puts off %s at %d for %s, and the schedule does not say so", p.name, s.short(l.Run), l.Version, delay)
		}
		s.putOff[release{p.index, l.Run, l.Version}]++
	}
}

// checkAcknowledged compares an acknowledgement with the store: the turn of the message must be done, or just deferred
// by the acknowledging process, or published in its lane if the message is from the own queue of a worker. One release
// allows one acknowledgement.
func (s *deployment) checkAcknowledged(p *process, t bus.Turn) {
	r, ok := s.record(t.Run)
	if !ok || s.rolledBack {
		return
	}
	if s.answers(p, t) || t.Sticky != "" && s.inLane(t) {
		return
	}
	if r.Version == t.Version && (r.Status == state.Queued || r.Status == state.Running) {
		s.violate("I2: %s acknowledges the message for %s at %d, whose turn is not committed", p.name, s.short(t.Run), t.Version)
	}
}

// answers records that a worker answers a message, and reports whether it has deferred its turn.
func (s *deployment) answers(p *process, t bus.Turn) bool {
	off := release{p.index, t.Run, t.Version}
	n := s.putOff[off]
	if s.putOff[off]--; n <= 1 {
		delete(s.putOff, off)
	}
	return n > 0
}

// check examines the final state.
func (s *deployment) check() error {
	if len(s.violations) > 0 {
		return errors.New(s.violations[0])
	}
	snap := s.store.Snapshot()
	roots := 0
	for _, id := range snap.Runs() {
		var r record.Record
		if err := snap.Record(id, &r); err != nil {
			return err
		}
		log, err := snap.Log(id)
		if err != nil {
			return err
		}
		roots += count(r.Header.Parent == nil)
		if err := s.checkRun(id, r, log); err != nil {
			return fmt.Errorf("%s: %w", s.short(id), err)
		}
	}
	if err := s.checkDeleted(); err != nil {
		return err
	}
	if !s.rolledBack && (roots != s.sc.runs()-count(s.gone)+len(s.forks) || len(s.accepted) != s.sc.runs()) {
		return fmt.Errorf("I1: %d runs were submitted, %d accepted, and %d exist", s.sc.runs(), len(s.accepted), roots)
	}
	return nil
}

// deletes checks a deletion against the run: it has ended, and has consumed all accepted signals.
func (s *deployment) deletes(before record.Record, id state.RunID) {
	s.changed()
	if _, there := s.record(id); there || before.Header.ID != id {
		return
	}
	s.deleted[id] = true
	if !before.Status.Terminal() || len(before.Inbox) > 0 || before.Abort != nil {
		s.violate("I1: %s is deleted while it is %s, with %d signals in its inbox", s.short(id), before.Status, len(before.Inbox))
	}
}

// checkDeleted checks that deleted runs left only a marker.
func (s *deployment) checkDeleted() error {
	for id := range s.deleted {
		if _, err := s.store.Load(context.Background(), id); !errors.Is(err, state.ErrDeleted) {
			return fmt.Errorf("I1: %s was deleted, and the store says %w", s.short(id), err)
		}
		if slices.ContainsFunc(s.letters, func(l bus.DeadLetter) bool { return l.Run == id }) {
			return fmt.Errorf("I2: %s was deleted and has a dead letter", s.short(id))
		}
	}
	if n := len(s.store.Snapshot().Runs()) - s.sc.runs() + 1; s.gone && n > 0 {
		return fmt.Errorf("I1: the deletion was acknowledged, and %d runs of the tree are left", n)
	}
	return nil
}

func (s *deployment) checkRun(id state.RunID, r record.Record, log []state.Entry) error {
	if err := invariant.Log(log, r.Version); err != nil {
		return err
	}
	if !r.Status.Terminal() {
		return fmt.Errorf("I2: it is %s", r.Status)
	}
	if err := invariant.Paired(state.View(log)); err != nil {
		return err
	}
	if n, to := s.after[id]; to && n > 1 && r.Status != state.Cancelled && !s.rolledBack {
		return fmt.Errorf("I7: it had to end, made %d more transitions and is %s", n, r.Status)
	}
	if _, to := s.after[id]; !to && !s.abortSent && r.Status != state.Completed && !s.rolledBack {
		return fmt.Errorf("I2: it is %s (%s), without a request", r.Status, r.Header.Transition.Reason)
	}
	if took := log[len(log)-1].At.Sub(log[0].At.Time); len(s.faults) == 0 && s.switches == 0 && took > time.Second {
		return fmt.Errorf("I2: it took %s, and nothing was in its way", took)
	}
	if err := s.checkSaid(id, log); err != nil {
		return err
	}
	if err := s.checkSpent(id, r); err != nil {
		return err
	}
	if !s.interrupted {
		for _, e := range log {
			if e.Attempt > 1 {
				return fmt.Errorf("I2: a turn had %d attempts, although no worker died or lost more than an answer of the store", e.Attempt)
			}
		}
	}
	if err := s.checkLate(id, log); err != nil {
		return err
	}
	if err := s.checkProbed(id, log); err != nil {
		return err
	}
	if s.sc.Bus && !s.rolledBack {
		if err := s.checkService(); err != nil {
			return err
		}
	}
	if err := checkCheckpoints(r, log); err != nil {
		return err
	}
	if err := s.checkFork(id, log); err != nil {
		return err
	}
	return s.checkEffects(id, log)
}

// checkLate checks the results of calls whose worker was only paused, and came back while the worker that had
// resumed its turn waited.
func (s *deployment) checkLate(id state.RunID, log []state.Entry) error {
	if _, to := s.after[id]; to || s.abortSent || len(s.faults) != 1 || s.faults[asleep] != 1 {
		return nil
	}
	if len(s.paused) > 0 {
		return errors.New("I2: a worker that was only paused did not report it: its attempt counts")
	}
	for _, e := range s.late {
		if e.run == id && !slices.ContainsFunc(state.View(log), func(m state.Message) bool {
			return slices.ContainsFunc(m.Parts, func(p state.Part) bool { return p.CallID == e.call && p.Content == result(e.name, e.arguments) })
		}) {
			return fmt.Errorf("I4: the outcome of %s is unknown, although its worker was only paused", e.call)
		}
	}
	return nil
}

// checkProbed compares the results of calls that the model has read with the probe's knowledge.
func (s *deployment) checkProbed(id state.RunID, log []state.Entry) error {
	if !s.sc.Probe || s.rolledBack {
		return nil
	}
	faults := 0
	for _, n := range s.faults {
		faults += n
	}
	for _, m := range state.View(log) {
		for _, p := range m.Parts {
			acted := slices.ContainsFunc(s.effects, func(e effect) bool { return e.run == id && e.call == p.CallID })
			switch told := p.Content; {
			case p.Type != state.PartToolResult:
			case strings.Contains(told, "is unknown") && faults == 1:
				return fmt.Errorf("I4: the model reads that the outcome of %s is unknown, although the probe knows it", p.CallID)
			case told == keyRefused && (acted || faults == 1):
				return fmt.Errorf("I4: the model reads that the key of %s is refused; it was made: %t", p.CallID, acted)
			}
		}
	}
	return nil
}

// result returns the result of a call.
func result(name, arguments string) string { return fmt.Sprintf("%s %s", name, arguments) }

// checkSaid checks that acknowledged messages are in the log.
func (s *deployment) checkSaid(id state.RunID, log []state.Entry) error {
	if !s.said || s.rolledBack || len(s.accepted) == 0 || s.accepted[0] != id {
		return nil
	}
	n := 0
	for _, m := range state.View(log) {
		n += count(m.Role == state.RoleUser && m.Parts[0].Text == remark)
	}
	if n != 1 {
		return fmt.Errorf("I1: the message appears %d times", n)
	}
	return nil
}

// checkSpent checks that usage includes every model call. A call under an eager claim leaves no
// trace if its worker dies at once.
func (s *deployment) checkSpent(id state.RunID, r record.Record) error {
	if !s.sc.Plain || s.rolledBack || len(s.accepted) == 0 || s.accepted[0] != id || len(s.store.Snapshot().Runs()) > 1 {
		return nil
	}
	if n := r.Header.Usage.ModelCalls; n < int64(s.asked) {
		return fmt.Errorf("I10: the model was called %d times, and %d calls are counted", s.asked, n)
	}
	return nil
}

// checkEffects compares the effects of tools with the log of the run (I3).
func (s *deployment) checkEffects(id state.RunID, log []state.Entry) error {
	if s.rolledBack {
		return nil
	}
	asked, withdrawn := map[string]string{}, map[string]bool{}
	for i, e := range log {
		if e.Message == nil {
			continue
		}
		back := slices.ContainsFunc(log[i:], func(later state.Entry) bool { return slices.Contains(later.MessageIDs, e.Message.ID) })
		for _, c := range e.Message.Calls() {
			asked[c.ID], withdrawn[c.ID] = c.Arguments, back
		}
	}
	for _, e := range s.effects {
		if withdrawn[e.call] {
			return fmt.Errorf("I3: %s of a response that a rollback has withdrawn acts", e.call)
		}
		if arguments, ok := asked[e.call]; e.run == id && (!ok || arguments != e.arguments) {
			return fmt.Errorf("I3: %s acts with %s, which no response says", e.call, e.arguments)
		}
	}
	return nil
}
