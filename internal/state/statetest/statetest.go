package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Times of the suite: short enough to wait for, long enough not to pass unintentionally.
const (
	long  = time.Hour
	short = 40 * time.Millisecond
	soon  = 2 * time.Minute // timeout for expected events
)

// Exercise runs the suite of all parts. open returns a store that shares nothing with those of other calls, and
// so do the open functions of the parts.
func Exercise(t *testing.T, open func(t *testing.T) state.Store) {
	t.Helper()
	Runs(t, open)
	Admin(t, open)
	Quotas(t, open)
	Timers(t, open)
	exercise(t, open, []topic[state.Store]{{"Guard", testGuard}})
}

// Runs tests runs and turns.
func Runs[S state.RunStore](t *testing.T, open func(t *testing.T) S) {
	t.Helper()
	newSuite := func(t *testing.T) *suite {
		t.Helper()
		s := open(t)
		s.SetFormat(state.Format)
		return &suite{RunStore: s}
	}
	exercise(t, newSuite, []topic[*suite]{
		{"Ready", testReady},
		{"Now", testNow},
		{"Create", testCreate},
		{"CreateIdempotent", testCreateIdempotent},
		{"LoadByKey", testLoadByKey},
		{"ForeignGuard", testForeignGuard},
		{"ClaimOutcomes", testClaimOutcomes},
		{"ClaimRace", testClaimRace},
		{"LeaseExpiry", testLeaseExpiry},
		{"Renew", testRenew},
		{"NewerFormat", testNewerFormat},
		{"Formats", testFormats},
		{"LoopState", testLoopState},
		{"Record", testRecord},
		{"Commit", testCommit},
		{"Checkpoint", testCheckpoint},
		{"LogOmitted", testLogOmitted},
		{"CommitFenced", testCommitFenced},
		{"CommitRace", testCommitRace},
		{"Release", testRelease},
		{"Eager", testEager},
		{"EagerTaken", testEagerTaken},
		{"EagerNot", testEagerNot},
		{"EagerAbort", testEagerAbort},
		{"EagerAbortOnRecord", testEagerAbortOnRecord},
		{"EagerRepeated", testEagerRepeated},
		{"EagerLost", testEagerLost},
		{"EagerReleased", testEagerReleased},
		{"SignalWakes", testSignalWakes},
		{"SignalRefused", testSignalRefused},
		{"SignalShown", testSignalShown},
		{"SignalRace", testSignalRace},
		{"SignalDuringTurn", testSignalDuringTurn},
		{"SignalToOpenedWait", testSignalToOpenedWait},
		{"SignalPartlyReopened", testSignalPartlyReopened},
		{"SignalFingerprint", testSignalFingerprint},
		{"SignalKeys", testSignalKeys},
		{"MessageContinues", testMessageContinues},
		{"InterruptDuringTurn", testInterruptDuringTurn},
		{"InterruptEager", testInterruptEager},
		{"InterruptClosesWaits", testInterruptClosesWaits},
		{"InterruptBeforeAwaits", testInterruptBeforeAwaits},
		{"InterruptKeepsStart", testInterruptKeepsStart},
		{"Reject", testReject},
		{"Basis", testBasis},
		{"RequireInboxConsumed", testRequireInboxConsumed},
		{"Lost", testLost},
		{"BatchStart", testBatchStart},
		{"Replay", testReplay},
		{"Abort", testAbort},
		{"AbortDuringTurn", testAbortDuringTurn},
		{"AbortAndMessages", testAbortAndMessages},
		{"InboxLimit", testInboxLimit},
		{"InboxAfterTurn", testInboxAfterTurn},
		{"SweepLostMessage", testSweepLostMessage},
		{"SweepBacklog", testSweepBacklog},
		{"BacklogCoversEachMessage", testBacklogCoversEachMessage},
		{"SweepRace", testSweepRace},
		{"SweepLimit", testSweepLimit},
		{"SweepSchedule", testSweepSchedule},
		{"SweepScheduleBeforeFinalized", testSweepScheduleBeforeFinalized},
		{"SweepFinalize", testSweepFinalize},
		{"SweepDependent", testSweepDependent},
		{"Evict", testEvict},
		{"EvictParts", testEvictParts},
		{"Paused", testPaused},
		{"Starts", testStarts},
		{"ClaimRefuses", testClaimRefuses},
		{"Admit", testAdmit},
		{"Delete", testDelete},
		{"DeleteMarker", testDeleteMarker},
		{"DeleteKey", testDeleteKey},
		{"DeleteBatch", testDeleteBatch},
		{"Seal", testSeal},
		{"SealRace", testSealRace},
		{"List", testList},
		{"ListBatch", testListBatch},
		{"ListParents", testListParents},
		{"Indexed", testIndexed},
		{"IndexedLater", testIndexedLater},
		{"IndexedTenants", testIndexedTenants},
		{"IndexedDelete", testIndexedDelete},
		{"Log", testLog},
		{"LogPage", testLogPage},
		{"Counts", testCounts},
		{"Noisy", testNoisy},
		{"NoisyCountsOnce", testNoisyCountsOnce},
		{"LongRun", testLongRun},
		{"Figures", testFigures},
		{"FiguresLimit", testFiguresLimit},
		{"FiguresRace", testFiguresRace},
	})
}

// Admin tests agents, documents and audits.
func Admin[S state.AdminStore](t *testing.T, open func(t *testing.T) S) {
	t.Helper()
	exercise(t, func(t *testing.T) state.AdminStore { t.Helper(); return open(t) }, []topic[state.AdminStore]{
		{"Agents", testAgents},
		{"Documents", testDocuments},
		{"ReplaceDocument", testReplaceDocument},
		{"ListDocuments", testListDocuments},
		{"Audit", testAudit},
	})
}

// Quotas tests rate limits.
func Quotas[S state.Quotas](t *testing.T, open func(t *testing.T) S) {
	t.Helper()
	exercise(t, func(t *testing.T) state.Quotas { t.Helper(); return open(t) }, []topic[state.Quotas]{
		{"QuotaRace", testQuotaRace},
		{"QuotaReservation", testQuotaReservation},
		{"QuotaCorrect", testQuotaCorrect},
		{"QuotaPause", testQuotaPause},
	})
}

// Timers tests timers.
func Timers[S state.Timers](t *testing.T, open func(t *testing.T) S) {
	t.Helper()
	exercise(t, func(t *testing.T) state.Timers { t.Helper(); return open(t) }, []topic[state.Timers]{
		{"Timer", testTimer},
		{"TimerRemove", testTimerRemove},
		{"TimerFenced", testTimerFenced},
		{"TimerLease", testTimerLease},
		{"TimerNames", testTimerNames},
		{"TimerList", testTimerList},
		{"TimerNote", testTimerNote},
		{"TimerRace", testTimerRace},
	})
}

// topic is a test of one guarantee.
type topic[S any] struct {
	name string
	test func(t *testing.T, s S)
}

func exercise[S any](t *testing.T, open func(t *testing.T) S, topics []topic[S]) {
	t.Helper()
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			topic.test(t, open(t))
		})
	}
}

type suite struct {
	state.RunStore

	tokens atomic.Int64
}

var created = state.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

// newRun returns a submitted run that is not stored yet.
func newRun(t *testing.T) state.State {
	t.Helper()
	s := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default",
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20},
	}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	return move(t, s, state.Submitted, state.Entry{Messages: []state.Message{input}})
}

func move(t *testing.T, s state.State, r state.Reason, e state.Entry) state.State {
	t.Helper()
	e.At = created
	next, err := s.Move(r, e)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// create stores a new run.
func (s *suite) create(t *testing.T) state.State {
	t.Helper()
	run := newRun(t)
	s.store(t, run)
	return run
}

func (s *suite) store(t *testing.T, run state.State) {
	t.Helper()
	if made, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: long}); err != nil || made.Existing {
		t.Fatalf("Create = existing %v, %v", made.Existing, err)
	}
}

func (s *suite) request(id state.RunID, version int64, worker string) state.ClaimRequest {
	return state.ClaimRequest{
		Run: id, Version: version, Token: fmt.Sprintf("token-%d", s.tokens.Add(1)), Worker: worker, Lease: long, RedeliveryDelay: long,
	}
}

func (s *suite) claim(t *testing.T, id state.RunID, version int64) *state.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), s.request(id, version, "w1"))
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	return c
}

func (s *suite) mustClaim(t *testing.T, id state.RunID, version int64) *state.Claim {
	t.Helper()
	c := s.claim(t, id, version)
	if c.Outcome != state.Claimed {
		t.Fatalf("Claim = %s, want claimed", c.Outcome)
	}
	return c
}

// commit ends a claimed turn with one transition.
func (s *suite) commit(t *testing.T, c *state.Claim, r state.Reason, e state.Entry) state.Committed {
	t.Helper()
	return s.commitState(t, c, move(t, *c.State, r, e))
}

func (s *suite) commitState(t *testing.T, c *state.Claim, next state.State) state.Committed {
	t.Helper()
	done, err := s.Commit(t.Context(), c.Lease, commitOf(c, next))
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return done
}

func commitOf(c *state.Claim, next state.State) state.Commit {
	return state.Commit{ID: c.Lease.Token, State: &next, From: c.State.LogLen(), Consumed: len(c.Signals), RedeliveryDelay: long}
}

// response is a model.message entry with tool calls.
func response(turn int, calls ...string) state.Entry {
	m := state.Message{ID: fmt.Sprintf("m%d", turn), Role: state.RoleAssistant, Turn: turn, At: created}
	for _, c := range calls {
		m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: c, Name: "t", Arguments: `{"a":1}`})
	}
	return state.Entry{Type: state.EntryModel, Turn: turn, At: created, Message: &m, Usage: &state.Usage{ModelCalls: 1, OutputTokens: 7}}
}

func result(call, text string) state.Entry {
	m := state.ToolResult(call, text, false)
	m.ID, m.At = "r"+call, created
	return state.Entry{Type: state.EntryTool, At: created, Message: &m, CallID: call, Name: "t"}
}

// wait makes a run wait for the result of one call, and returns its version.
func (s *suite) wait(t *testing.T, id state.RunID, version int64, calls ...string) int64 {
	t.Helper()
	c := s.mustClaim(t, id, version)
	next := c.State.Append(response(1, calls...))
	for i := range next.Open {
		next.Open[i].Needs = state.NeedResult
	}
	return s.commitState(t, c, move(t, next, state.WaitingClientTool, state.Entry{
		Waiting: &state.Wait{Reason: state.WaitingClientTool, Since: created, Calls: []state.WaitCall{}},
	})).Version
}

func resultSignal(id string, calls ...string) state.Signal {
	sig := state.Signal{ID: id, At: created}
	for _, c := range calls {
		sig.ToolResults = append(sig.ToolResults, state.SignalResult{CallID: c, Content: "done"})
	}
	return sig
}

func message(id, text string) state.Signal {
	m := state.UserText(text)
	return state.Signal{ID: id, Message: &m, At: created}
}

// sweepFor sweeps until the run is due.
func (s *suite) sweepFor(t *testing.T, id state.RunID, delay time.Duration) state.Due {
	t.Helper()
	deadline := time.Now().Add(soon)
	for time.Now().Before(deadline) {
		due, err := s.Sweep(t.Context(), 1000, delay, nil)
		if err != nil {
			t.Fatalf("Sweep: %v", err)
		}
		for _, d := range due {
			if d.Run == id {
				return d
			}
		}
		breathe(t)
	}
	t.Fatalf("run %s was never due in a sweep", id)
	return state.Due{}
}

// notDue checks that a sweep does not return the run now.
func (s *suite) notDue(t *testing.T, id state.RunID) {
	t.Helper()
	due, err := s.Sweep(t.Context(), 1000, long, nil)
	if err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	for _, d := range due {
		if d.Run == id {
			t.Fatalf("Sweep returns %+v, want nothing yet", d)
		}
	}
}

// breathe lets a little time pass on the store's clock, which may be a server's.
func breathe(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

func wantErr[E error](t *testing.T, err error) E {
	t.Helper()
	var want E
	if !errors.As(err, &want) {
		t.Fatalf("error = %v, want a %T", err, want)
	}
	return want
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
