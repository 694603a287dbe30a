package chaos

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Violation is a broken promise. Invariant is its number in docs/reference/invariants.md.
type Violation struct {
	Invariant string `json:"invariant"`
	Phase     string `json:"phase,omitempty"`
	Run       string `json:"run,omitempty"`
	Detail    string `json:"detail"`

	kind string // equal for violations that differ in the particulars only
}

// Check compares the evidence from outside with docs/reference/invariants.md, and returns every
// violation. It sees I8 only through I1, I3 and I9: a fenced worker that changed something. I12 is
// a matter of cost, see `turnpike bench`.
//
// After a failover to an older copy, the writes of the lost interval are gone: runs accepted in it
// may be missing, and its actions may be repeated, under the same idempotency key. Nothing else is
// excused.
func Check(e Evidence) []Violation {
	c := checker{Evidence: e, asked: map[string]string{}, effects: map[string][]Effect{}, hooks: map[string][]Effect{}, unasked: map[string][]Effect{}}
	for _, a := range e.Answers {
		c.asked[a.Nonce] = a.Run
	}
	guarded := map[string]bool{} // calls about which a hook was called
	for _, effect := range e.Effects {
		if effect.Run == "" { // of the MCP server, which does not know it
			effect.Run = c.asked[effect.Nonce]
		}
		call := effect.Run + effect.Nonce + effect.Call
		switch {
		case effect.Hook != "":
			c.hooks[effect.Run] = append(c.hooks[effect.Run], effect)
			guarded[call] = guarded[call] || effect.Hook == string(hook.PreTool)
		case effect.Fault == "":
			c.effects[effect.Run] = append(c.effects[effect.Run], effect)
			if !guarded[call] {
				c.unasked[effect.Run] = append(c.unasked[effect.Run], effect)
			}
		}
	}
	for _, w := range e.Runs {
		if !w.Deleted.IsZero() {
			c.checkDeleted(w)
			continue
		}
		if w.Kind == "kept" && c.checkKept(w) {
			continue
		}
		c.checkAccepted(w)
		if !w.Found {
			continue
		}
		c.checkEnd(w)
		c.checkLog(w)
		c.checkReader(w)
		c.checkPublished(w)
		c.checkPairs(w)
		c.checkSaid(w)
		c.checkFile(w)
		c.checkCalled(w)
		c.checkAfterEnd(w)
		if w.Fork {
			continue // it has the answers of the run that it continues
		}
		c.checkAnswers(w)
		c.checkEffects(w)
		c.checkHooks(w)
		c.checkProbed(w)
		c.checkNotes(w)
		c.checkHanded(w)
		c.checkLimits(w)
	}
	c.checkRecoveries()
	c.checkFirings()
	for _, b := range e.Batches {
		c.checkBatch(b)
	}
	if e.Left > 0 {
		c.broken("I6", "", "%d messages are left although every run rests", e.Left)
	}
	for _, line := range e.Cries {
		c.broken("I2", "", "a process says: %s", line)
	}
	for _, text := range e.Refused {
		c.broken("I2", "", "the gateway refused what it should take: %s", text)
	}
	return c.found
}

// checker compares the observations of users and processes with the invariants. It has many methods because
// each checks one promise.
type checker struct {
	Evidence
	asked   map[string]string   // nonce to run
	effects map[string][]Effect // by run
	hooks   map[string][]Effect // hook requests, by run
	unasked map[string][]Effect // effects without a preceding hook call, by run
	found   []Violation
}

func (c *checker) broken(invariant, run, format string, args ...any) {
	c.found = append(c.found, Violation{Invariant: invariant, Run: run, Detail: fmt.Sprintf(format, args...), kind: format})
}

// slack is the maximum difference between the clocks of two processes on one machine, plus the
// delay between an action and its note.
const slack = 2 * time.Second

// rolledBack reports whether a failover may have lost what happened at an instant.
func (c *checker) rolledBack(at time.Time) bool { return c.fellBack(at, at) }

// undone reports whether a failover may have lost the effect of a request.
func (c *checker) undone(a Ack) bool { return c.fellBack(a.Sent, a.At) }

// fellBack reports the same of something that happened at some moment of an interval.
func (c *checker) fellBack(from, to time.Time) bool {
	return slices.ContainsFunc(c.Rollbacks, func(r Rollback) bool { return to.After(r.From.Add(-slack)) && from.Before(r.To.Add(slack)) })
}

// touched reports whether a failover may have changed what had happened in a run.
func (c *checker) touched(w Witness) bool {
	return slices.ContainsFunc(c.Rollbacks, func(r Rollback) bool {
		return w.Accepted.Sent.Before(r.To.Add(slack)) && (!w.Run.Terminal() || w.Run.FinishedAt.After(r.From.Add(-slack)))
	})
}

// checkAccepted checks that accepted runs exist, once (I1).
func (c *checker) checkAccepted(w Witness) {
	if !w.Found && !c.undone(w.Accepted) {
		c.broken("I1", w.ID, "the run was accepted at %s and is gone", w.Accepted.At.Format(time.TimeOnly))
	}
	for _, again := range w.Again {
		if again != w.ID && !c.undone(w.Accepted) {
			c.broken("I1", w.ID, "the same submission is run %s, too", again)
		}
	}
}

// checkBatch checks that an accepted batch has all its runs and completes them (I1, I2).
func (c *checker) checkBatch(b api.Batch) {
	runs, rolled := 0, false
	for _, w := range c.Runs {
		if w.Batch == b.ID {
			runs++
			rolled = rolled || c.undone(w.Accepted)
		}
	}
	if rolled {
		return
	}
	if b.Total != runs {
		c.broken("I1", "", "batch %s was accepted with %d runs and has %d", b.ID, runs, b.Total)
	}
	if !b.Done {
		c.broken("I2", "", "batch %s is not done: %v", b.ID, b.Counts)
	}
}

// checkEnd checks that a run has ended, or waits for something named (I2).
func (c *checker) checkEnd(w Witness) {
	switch {
	case w.Run.Terminal():
	case w.Unanswered && w.Run.Waiting != nil && len(w.Run.Waiting.Calls) > 0 && w.Run.Waiting.Calls[0].Needs == string(state.NeedApproval):
	default:
		c.broken("I2", w.ID, "a run of %s is %s in version %d (%s) long after the last fault", w.Kind, w.Run.Status, w.Run.Version, w.Run.Transition.Reason)
	}
	if !w.Run.Terminal() {
		return
	}
	reason := w.Run.Transition.Reason
	want := []state.Reason{state.EndCompleted, state.EndPoisoned}
	switch w.Kind {
	case "budget":
		want = append(want, state.EndTokenBudget)
	case "compact":
		want = append(want, state.EndPromptTooLong)
	case "failing":
		want = append(want, state.EndModelError)
	}
	if w.Run.Status == string(state.Cancelled) && (w.Aborting || w.Run.Parent != nil || c.undone(w.Accepted)) {
		return
	}
	if !slices.Contains(want, reason) {
		c.broken("I2", w.ID, "a run of %s ended %s (%s): %s", w.Kind, w.Run.Status, reason, w.Run.Transition.Detail)
	}
	if w.Run.Status == string(state.Completed) && !w.Aborted.IsZero() && !c.undone(w.Aborted) && w.Run.FinishedAt.After(w.Aborted.At.Add(slack)) && !c.slept(w) {
		c.broken("I7", w.ID, "the run completed at %s although an abort was acknowledged at %s", w.Run.FinishedAt.Format(time.TimeOnly), w.Aborted.At.Format(time.TimeOnly))
	}
}

// slept reports whether the worker that ended a run was paused until shortly before: it had the last answer of
// the model before it could receive an abort.
func (c *checker) slept(w Witness) bool {
	if len(w.Log) == 0 {
		return false
	}
	end := w.Log[len(w.Log)-1]
	return slices.ContainsFunc(c.Faults, func(f Fault) bool {
		return f.Kind == "worker paused" && strings.HasPrefix(end.Worker, f.Name+"-") && f.From.Before(w.Aborted.At.Add(slack)) && end.At.After(f.From) && end.At.Before(f.To.Add(slack))
	})
}

// checkLog checks that events and versions are numbered without gaps or duplicates, and that the
// run finishes once, at the end (I1, I9), and once more after each end that a user message
// continued.
func (c *checker) checkLog(w Witness) {
	version := int64(0)
	for i, e := range w.Log {
		if e.Seq != int64(i+1) {
			c.broken("I9", w.ID, "event %d is in place %d", e.Seq, i+1)
		}
		// An entry that marks a retried turn has the version of that turn.
		if e.Version > 0 && e.Reason != state.Recovered {
			if e.Version != version+1 {
				c.broken("I1", w.ID, "version %d follows version %d", e.Version, version)
			}
			version = e.Version
		}
		ends, last := e.Type == state.EntryFinished, i == len(w.Log)-1
		if ends != (last && w.Run.Terminal()) && (last || !ends || w.Said == "") {
			c.broken("I9", w.ID, "event %d of %d is %s, and the run is %s", i+1, len(w.Log), e.Type, w.Run.Status)
		}
	}
	if version != w.Run.Version {
		c.broken("I1", w.ID, "the header has version %d, the log %d", w.Run.Version, version)
	}
}

// checkReader checks that readers of the run, over however many connections, saw each committed
// event once, in order, as the store has it (I9).
func (c *checker) checkReader(w Witness) {
	if w.Key == "" || w.Unanswered || c.touched(w) {
		return
	}
	for i, data := range w.Seen {
		switch {
		case i >= len(w.Events):
			c.broken("I9", w.ID, "a reader saw event %d, the store has %d: %s", i+1, len(w.Events), data)
			return
		case !bytes.Equal(data, w.Events[i]):
			c.broken("I9", w.ID, "event %d was seen as %s, and is %s", i+1, data, w.Events[i])
			return
		}
	}
	if w.Run.Terminal() && len(w.Seen) != len(w.Events) && w.Said == "" {
		c.broken("I9", w.ID, "a reader saw %d of %d events", len(w.Seen), len(w.Events))
	}
}

// restored reports whether a failover may have undone the deletion of a run together with one above
// it. The run is back then, without the events that the deletion had purged from the bus.
func (c *checker) restored(w Witness) bool {
	return slices.ContainsFunc(c.Runs, func(above Witness) bool {
		return slices.Contains(above.Below, w.ID) && !above.Deleted.IsZero() && c.undone(above.Deleted)
	})
}

// purged reports whether the retention of a run that was found may have purged its events since.
func (c *checker) purged(w Witness) bool {
	return w.Kind == "kept" && w.Run.Terminal() && c.PublishedAt.After(w.Run.FinishedAt.Add(keptFor-slack))
}

// checkPublished checks that each committed event was published on the bus (I9).
func (c *checker) checkPublished(w Witness) {
	if c.touched(w) || c.restored(w) || c.purged(w) {
		return
	}
	for i, data := range w.Events {
		switch on := c.Published[w.ID][int64(i+1)]; {
		case on == nil:
			c.broken("I9", w.ID, "event %d of %d was never published: %s", i+1, len(w.Events), data)
		case !bytes.Equal(on, data):
			c.broken("I9", w.ID, "event %d was published as %s, and is %s", i+1, on, data)
		}
	}
}

// checkPairs checks that in an ended run each tool call has one result, in order (I5).
func (c *checker) checkPairs(w Witness) {
	if !w.Run.Terminal() {
		return
	}
	for i := 0; i < len(w.Messages); i++ {
		calls := w.Messages[i].Calls()
		for j, call := range calls {
			if at := i + 1 + j; at >= len(w.Messages) || w.Messages[at].Role != state.RoleTool || w.Messages[at].Parts[0].CallID != call.ID {
				c.broken("I5", w.ID, "call %s has no result in its place", call.ID)
			}
		}
		i += len(calls)
		if i+1 < len(w.Messages) && w.Messages[i+1].Role == state.RoleTool {
			c.broken("I5", w.ID, "a result of call %s answers nothing", w.Messages[i+1].Parts[0].CallID)
			return
		}
	}
}

// checkSaid checks that a user message is in the history once if the gateway acknowledged it, and
// never twice (I5).
func (c *checker) checkSaid(w Witness) {
	if w.Said == "" {
		return
	}
	n := 0
	for _, m := range w.Messages {
		if m.Role == state.RoleUser && m.Text() == w.Said {
			n++
		}
	}
	lost := n == 0 && !w.Heard.IsZero() && !c.undone(w.Heard) && w.Run.Status == string(state.Completed)
	if lost || n > 1 {
		c.broken("I5", w.ID, "what its user said is there %d times", n)
	}
}

// nonceOf returns the nonce of a model's answer.
func nonceOf(m *api.Message) string {
	if m == nil {
		return ""
	}
	nonce, _, _ := strings.Cut(m.Text(), " ")
	return nonce
}

// checkAnswers checks that the model gave each committed response to this run, and that none is committed twice
// (I3).
func (c *checker) checkAnswers(w Witness) {
	seen := map[string]bool{}
	for _, e := range w.Log {
		if e.Type != state.EntryModel {
			continue
		}
		nonce := nonceOf(e.Message)
		if len(nonce) < len(nonceMark) {
			continue // an abort cut it short before its first word
		}
		if c.asked[nonce] != w.ID {
			c.broken("I3", w.ID, "event %d has the response %q, which the model gave to run %q", e.Seq, nonce, c.asked[nonce])
		}
		if seen[nonce] {
			c.broken("I3", w.ID, "the response %q is committed twice", nonce)
		}
		seen[nonce] = true
	}
}

// checkEffects checks that tools ran only for the committed response (I3, I8), that those that may
// run once ran once (I4), and that results are the tools' answers (I3).
func (c *checker) checkEffects(w Witness) {
	responses := map[string]bool{}
	for _, e := range w.Log {
		if e.Type == state.EntryModel {
			responses[nonceOf(e.Message)] = true
		}
	}
	first := map[string]Effect{}
	results := map[string]bool{}
	for _, e := range c.effects[w.ID] {
		results[e.Result] = true
		if !responses[e.Nonce] && !c.rolledBack(e.At) {
			c.broken("I3", w.ID, "tool %s ran for the response %q, which is not the run's", e.Tool, e.Nonce)
		}
		before, again := first[e.Key]
		if !again {
			first[e.Key] = e
			continue
		}
		if startedOnce(e.Tool) && !c.rolledBack(before.At) {
			c.broken("I4", w.ID, "call %s of %s was made by %s at %s, and by %s at %s", e.Call, e.Tool,
				before.Worker, before.At.Format(time.RFC3339Nano), e.Worker, e.At.Format(time.RFC3339Nano))
		}
	}
	for _, e := range w.Log {
		if e.Type != state.EntryTool || e.IsError || e.Message == nil || e.Message.Synthetic {
			continue
		}
		if e.Name != "read" && !startedOnce(e.Name) {
			continue
		}
		if content := e.Message.Parts[0].Content; !results[content] {
			c.broken("I3", w.ID, "event %d says that %s answered %q, which it never did", e.Seq, e.Name, content)
		}
	}
}

// checkAfterEnd checks that no tool starts for a run after its end (I7). A worker that was cut off
// or asleep cannot know of the end. A call whose result is in the log began before the end,
// whatever the clocks say: the time of the end is the store's, as of the claim of its turn.
func (c *checker) checkAfterEnd(w Witness) {
	if !w.Run.Terminal() || c.touched(w) {
		return
	}
	end := w.Run.FinishedAt.Time
	logged := map[string]bool{}
	for _, e := range w.Log {
		if e.Type == state.EntryTool && e.Message != nil && !e.Message.Synthetic {
			logged[e.Message.Parts[0].Content] = true
		}
	}
	for _, e := range c.effects[w.ID] {
		if e.At.After(end.Add(10*time.Millisecond)) && !logged[e.Result] && !c.estranged(e.Worker, e.At) {
			c.broken("I7", w.ID, "%s ran %s at %s, and the run had ended at %s", e.Worker, e.Tool, e.At.Format(time.RFC3339Nano), end.Format(time.RFC3339Nano))
		}
	}
}

// estranged reports whether a worker may have been unaware, at a time, of the actions of the
// others.
func (c *checker) estranged(worker string, at time.Time) bool {
	return slices.ContainsFunc(c.Faults, func(f Fault) bool {
		near := at.After(f.From) && at.Before(f.To.Add(10*time.Second))
		mine := strings.HasPrefix(worker, f.Name+"-") || strings.HasPrefix(f.Kind, "NATS") || strings.HasPrefix(f.Kind, "Redis")
		return near && mine
	})
}

// checkLimits checks that the worker requests no answer beyond a limit, that each committed answer
// and each lost one counts once (I10), and that a run compacts at most once because its prompt was
// too long (I11).
func (c *checker) checkLimits(w Witness) {
	spent := w.Run.Usage.OutputTokens
	answers, compacted := int64(0), 0
	var lost, tried int64 // by all failed answers, and by those of this call
	for _, e := range w.Log {
		switch {
		case e.Type == state.EntryModel:
			if before := answers*answerTokens + lost; w.Kind == "budget" && before >= budgetTokens {
				c.broken("I10", w.ID, "an answer was asked for when %d output tokens were spent, the limit is %d", before, budgetTokens)
			}
			answers++
			lost, tried = lost+tried, 0
		case e.Type == state.EntryTombstoned && e.Usage != nil:
			tried += e.Usage.OutputTokens
		case e.Reason == state.Recovered && e.Usage != nil:
			lost += e.Usage.OutputTokens
		}
		if e.Type == state.EntryTransition {
			lost, tried = lost+tried, 0
		}
		if e.Reason == state.ReactiveCompactRetry {
			compacted++
		}
	}
	lost += tried
	if w.Kind == "budget" && spent > answers*answerTokens+lost {
		c.broken("I10", w.ID, "%d output tokens were spent, its log knows of %d answers and %d tokens that were lost", spent, answers, lost)
	}
	// The usage of descendants counts for their caller; the usage of an interrupted answer is only
	// partly known.
	if w.Run.Status == string(state.Completed) && w.Kind != "tree" && !w.Mode.Interrupts() && spent != answers*answerTokens+lost {
		c.broken("I10", w.ID, "%d output tokens were counted for %d answers and %d tokens that were lost", spent, answers, lost)
	}
	if compacted > 1 {
		c.broken("I11", w.ID, "%d reactive compactions", compacted)
	}
}
