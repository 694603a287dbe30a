package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A turn that must be given up without touching anything (I8), and one that is
// handed back.
var (
	errDrop    = errors.New("turn dropped")
	errRelease = errors.New("turn handed back")
)

// turn is one claimed turn on its way through the protocol.
type turn struct {
	w       *Worker
	lease   *lease
	claim   claimed
	started time.Time

	s         state.State // as the loop last decided
	recorded  int64       // entries of s.Log that the store has
	announced int64       // entries that the bus has
	telling   *telling    // entries that are on their way there

	failure *model.Error    // of the model, if it answered last with one
	notes   <-chan []string // what hooks say about the response
}

// claimed is what a claim says beside the state. A turn that waits for its model holds
// no second copy of that.
type claimed struct {
	Attempt int
	Version int64
	Base    int64 // entries of the log that were committed
	Journal state.Journal
	Signals []state.Signal
	Abort   *state.Abort

	Open  []state.OpenCall // of the state
	Usage state.Usage      // of the state
}

// log returns the logger of the turn. It is made anew each time: a turn logs little and
// lasts long.
func (t *turn) log() *zerolog.Logger { return t.w.runLog(t.s.ID) }

func (w *Worker) runLog(run state.RunID) *zerolog.Logger {
	log := w.log.With().Str("run_id", string(run)).Logger()
	return &log
}

// agent returns the definition of the run.
func (t *turn) agent(ctx context.Context) (*agent.Agent, error) {
	a, err := t.w.agents.get(ctx, t.s.Agent, t.s.AgentVersion)
	if err != nil {
		return nil, notLoaded(ctx, err)
	}
	return a, nil
}

// notLoaded says what it means that the agent could not be had. A turn that was aborted
// meanwhile is handed back, since only the agent's loop can end it: its next claim tells
// of the abort, and nothing interrupts it then.
func notLoaded(ctx context.Context, err error) error {
	end := errDrop
	if _, e := interrupted(ctx, loop.Aborted{}); e == nil || errors.Is(e, errRelease) {
		end = errRelease
	}
	return fmt.Errorf("%w: load agent: %w", end, err)
}

// take carries one delivery through the protocol: begin, run and end are the whole of
// a turn, in the order of durability.
func (w *Worker) take(ctx context.Context, d bus.TurnDelivery) {
	defer func() {
		if p := recover(); p != nil {
			// The lease runs out and the attempt counts: a turn that panics every
			// time ends poisoned.
			w.runLog(d.Turn().Run).Error().Interface("panic", p).Bytes("stack", debug.Stack()).Msg("turn panicked")
		}
	}()
	var t *turn
	var turnCtx context.Context
	var done func()
	w.stacks.run(func() { t, turnCtx, done = w.begin(ctx, d) })
	if t == nil {
		return
	}
	defer done()
	err := t.run(turnCtx)
	w.stacks.run(func() { t.end(turnCtx, err) })
}

// end answers the message of a turn that was run.
func (t *turn) end(ctx context.Context, err error) {
	w, d := t.w, t.lease.delivery
	t.endTurn(trace.SpanFromContext(ctx), err)
	switch {
	case err == nil:
		w.check(d.Ack(), "ack")
	case errors.Is(err, errRelease), errors.Is(err, state.ErrFormat):
		if err := w.store.Release(context.WithoutCancel(ctx), t.lease.Lease); err != nil {
			t.log().Warn().Err(err).Msg("release")
			return
		}
		delay := time.Duration(0)
		if errors.Is(err, state.ErrFormat) {
			delay = w.cfg.SweepEvery // else it would come back here as fast as it can
		}
		w.check(d.Nak(delay), "nak")
		t.log().Info().Err(err).Msg("turn handed back")
	default:
		t.log().Warn().Err(err).Msg("turn dropped")
	}
}

// run decides, acts, commits, announces and publishes.
func (t *turn) run(ctx context.Context) error {
	if err := t.decide(ctx); err != nil {
		return err
	}
	if t.notes != nil {
		t.takeNotes(ctx)
	}
	t.mourn(ctx)
	var err error
	t.w.stacks.run(func() { err = t.finish(ctx) })
	return err
}

// finish writes down what the turn has come to, and hands the run on.
func (t *turn) finish(ctx context.Context) error {
	// What follows must not be cut short by an abort or a shutdown: the work is
	// done and only has to be written down.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.w.cfg.Lease)
	defer cancel()
	// Before the end is written down: whoever takes the turn up after a crash here
	// does it again, and nobody would afterwards.
	if err := t.abortChildren(ctx); err != nil {
		return err
	}
	done, err := t.commit(ctx)
	if err != nil {
		return err
	}
	// With nothing else to do here, the run would only wait with the worker: its next
	// turn is published with the events then, and proves nothing.
	ahead := t.w.stacks.busy.Load() == 1 && done.Status == state.Queued
	if ahead {
		err = t.tell(ctx)
	} else {
		err = t.announce(ctx)
	}
	if err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	if done.Status != state.Queued {
		return t.settle(ctx)
	}
	next := bus.Turn{
		Run: t.s.ID, Version: done.Version, Priority: t.s.Priority, Crowd: done.Crowded || t.w.tenants.crowd(t.s.Tenant),
		Announced: !ahead, TraceParent: traceParent(ctx, t.s),
	}
	if err := t.w.bus.PublishTurn(ctx, next, turnID(next.Run, next.Version)); err != nil {
		return fmt.Errorf("publish next turn: %w", err)
	}
	if !ahead {
		return nil
	}
	if err := t.told(ctx); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	t.w.vouched.note(next.Run, done.Version, t.announced)
	return nil
}

// turnID is the canonical id of a turn message: whoever publishes it on behalf of
// the worker uses the same, and the server keeps one.
func turnID(run state.RunID, version int64) string {
	return string(run) + ":" + strconv.FormatInt(version, 10)
}

// decide asks the loop and performs its effects until it has made a transition.
func (t *turn) decide(ctx context.Context) error {
	var l loop.Loop
	var effect loop.Effect
	var err error
	// Here: servers may have to be asked what the agent's tools are.
	_, err = t.w.agents.get(ctx, t.s.Agent, t.s.AgentVersion)
	t.w.stacks.run(func() { l, effect, err = t.open(ctx, err) })
	if err != nil {
		return err
	}
	if !t.s.Limits.DeadlineAt.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, t.s.Limits.DeadlineAt.Time, errDeadline)
		defer cancel()
	}
	for effect != nil {
		ev, err := t.perform(ctx, effect)
		if err != nil {
			return err
		}
		t.w.stacks.run(func() { effect = t.step(l, ev) })
	}
	return nil
}

// open asks the loop of the run how the turn begins, if the agent could be had. Without
// an effect it has ended.
func (t *turn) open(ctx context.Context, err error) (l loop.Loop, first loop.Effect, _ error) {
	began := t.began()
	if t.s.Status == state.Queued || t.s.Status == state.Waiting {
		t.live(liveStarted(t))
	}
	if err == nil {
		l, err = t.w.agents.loop(ctx, t.s)
	}
	if err != nil {
		var gone *invalidAgentError
		if !errors.As(err, &gone) {
			return nil, nil, notLoaded(ctx, err)
		}
		t.s = loop.Fail(t.s, now(), state.EndInvalidAgent, gone.Error()).Next
		return nil, nil, nil
	}
	return l, t.step(l, began), nil
}

// step asks the loop what follows an event; nil is the end of the turn.
func (t *turn) step(l loop.Loop, ev loop.Event) loop.Effect {
	d := l.Step(t.s, ev)
	t.s = d.Next
	return d.Effect
}

// perform performs an effect and returns what came of it.
func (t *turn) perform(ctx context.Context, effect loop.Effect) (ev loop.Event, err error) {
	if ctx.Err() != nil {
		// Nothing starts after the abort was seen (I7).
		return interrupted(ctx, loop.Aborted{})
	}
	switch effect := effect.(type) {
	case loop.CallModel:
		if ev, err = t.callModel(ctx, &effect); err == nil {
			err = t.observeModel(ctx, ev)
		}
		return ev, err
	case loop.RunTools:
		return t.runTools(ctx, effect)
	case loop.RunHooks:
		return t.runHooks(ctx, effect)
	default:
		return nil, fmt.Errorf("%w: unknown effect %T", errDrop, effect)
	}
}

func (t *turn) began() loop.TurnBegan {
	began := loop.TurnBegan{
		At: now(), Worker: t.w.cfg.ID, Attempt: t.claim.Attempt, Signals: t.claim.Signals, Abort: t.claim.Abort,
		Poisoned: t.claim.Attempt > t.w.cfg.MaxAttempts,
	}
	for _, id := range slices.Sorted(maps.Keys(t.claim.Journal.Results)) {
		e := t.claim.Journal.Results[id]
		began.Results = append(began.Results, loop.ToolResult{
			CallID: id, Name: e.Name, Content: contentOf(e), Images: e.Message.Parts[0].Images, IsError: e.IsError, Reused: e.Type == state.EntryReused,
			Duration: time.Duration(e.DurationMS) * time.Millisecond, At: e.At,
		})
	}
	for _, id := range slices.Sorted(maps.Keys(t.claim.Journal.Started)) {
		if _, done := t.claim.Journal.Results[id]; !done {
			began.Started = append(began.Started, id)
		}
	}
	return began
}

func contentOf(e state.Entry) string {
	if e.Message == nil || len(e.Message.Parts) == 0 {
		return ""
	}
	return e.Message.Parts[0].Content
}

// interrupted says what an effect that was cut short means: an event for the loop
// (an abort, the deadline), or that the turn is given up.
func interrupted(ctx context.Context, ev loop.Aborted) (loop.Event, error) {
	cause := context.Cause(ctx)
	var abort *abortError
	switch {
	case errors.As(cause, &abort):
		ev.Cause, ev.Reason = loop.ByUser, abort.reason
	case errors.Is(cause, errDeadline):
		ev.Cause, ev.Reason = loop.ByDeadline, "limit deadline"
	case errors.Is(cause, errShutdown):
		return nil, errRelease
	default:
		return nil, fmt.Errorf("%w: %w", errDrop, cause)
	}
	ev.At = now()
	return ev, nil
}

// storePause is the time between attempts at a store that does not answer.
const storePause = 100 * time.Millisecond

// final reports whether the store will say the same again.
func final(err error) bool {
	_, full := errors.AsType[*state.TooLargeError](err)
	return full || errors.Is(err, state.ErrFenced)
}

// record journals the entries that the loop has appended, and r. An unknown outcome
// is asked again, since journaling twice is journaling once: a turn that is dropped
// waits for the end of its lease.
func (t *turn) record(ctx context.Context, r state.Record) (err error) {
	t.w.stacks.run(func() { err = t.write(ctx, r) })
	return err
}

// recordAndTell does that and sends what was recorded to the bus.
func (t *turn) recordAndTell(ctx context.Context, r state.Record) (err error) {
	t.w.stacks.run(func() {
		if err = t.write(ctx, r); err == nil {
			err = t.tell(ctx)
		}
	})
	return err
}

func (t *turn) write(ctx context.Context, r state.Record) error {
	// A result that is here must be kept even when the turn was aborted meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.w.cfg.Lease/2)
	defer cancel()
	t.stamp()
	r.From, r.Entries = t.recorded, t.s.Log[t.recorded:]
	for {
		err := t.w.store.Record(ctx, t.lease.Lease, r)
		if err == nil {
			t.recorded = t.s.LogLen()
			return nil
		}
		if final(err) || !pause(ctx, storePause) {
			return fmt.Errorf("%w: record: %w", errDrop, err)
		}
	}
}

// commit ends the turn in the store. An unknown outcome is asked again with the
// same id until the lease is surely over.
func (t *turn) commit(ctx context.Context) (state.Committed, error) {
	t.stamp()
	last := &t.s.Log[len(t.s.Log)-1]
	last.Worker, last.Attempt, last.DurationMS = t.w.cfg.ID, t.claim.Attempt, time.Since(t.started).Milliseconds()
	c := state.Commit{
		ID: t.lease.Token, State: t.s, From: t.recorded, Consumed: len(t.claim.Signals),
		Grace: t.w.cfg.Grace,
	}
	began := time.Now()
	if t.s.Status == state.Queued && t.w.keeps() {
		c.Keep = t.w.random.token()
		defer t.w.held.expect(t.s.ID)()
	}
	for {
		done, err := t.w.store.Commit(ctx, t.lease.Lease, c)
		if err == nil {
			t.observe(done)
			if done.Kept {
				t.w.held.keep(state.Lease{Run: t.s.ID, Token: c.Keep, Version: done.Version, Worker: t.w.cfg.ID}, began)
			}
			return done, nil
		}
		if final(err) || t.w.held.age(t.lease) > t.w.cfg.Lease || !pause(ctx, storePause) {
			return state.Committed{}, fmt.Errorf("%w: commit: %w", errDrop, err)
		}
	}
}

// stamp writes into what the loop has appended which attempt it was: like the
// worker and the duration, which commit adds, a fact that no loop may see.
func (t *turn) stamp() {
	added := t.s.Log[t.recorded:]
	for i := range added {
		if added[i].Attempt == 0 {
			added[i].Attempt = t.claim.Attempt
		}
	}
}

// telling is what was sent to the bus and may not be stored there yet.
type telling struct {
	upTo   int64
	stored func(context.Context) error
}

// tell sends what the log has gained to the bus and does not wait: the tools may
// start. announce waits, before it sends what comes after.
func (t *turn) tell(ctx context.Context) error {
	if err := t.told(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // the turn was interrupted, and announce comes all the same
		}
		return fmt.Errorf("%w: announce: %w", errDrop, err)
	}
	t.announced = max(t.announced, t.w.vouched.take(t.s.ID, t.claim.Version))
	events, err := eventsOf(t.s.ID, t.s.Log[t.announced:])
	if err != nil {
		return fmt.Errorf("%w: %w", errDrop, err)
	}
	t.telling = &telling{t.s.LogLen(), t.w.bus.Tell(ctx, t.s.ID, events)}
	return nil
}

// told waits until the bus has what was told.
func (t *turn) told(ctx context.Context) error {
	if t.telling == nil {
		return nil
	}
	if err := t.telling.stored(ctx); err != nil {
		return err
	}
	t.announced, t.telling = t.telling.upTo, nil
	return nil
}

// announce puts what the log has gained on the bus.
func (t *turn) announce(ctx context.Context) error {
	if err := t.told(ctx); err != nil {
		return err
	}
	t.announced = max(t.announced, t.w.vouched.take(t.s.ID, t.claim.Version))
	if err := t.w.announce(ctx, t.s.ID, t.s.Log[t.announced:]); err != nil {
		return err
	}
	t.announced = t.s.LogLen()
	return nil
}

// settle does what is left when nothing follows.
func (t *turn) settle(ctx context.Context) error {
	// Again: a worker that was only paused may have started a child meanwhile.
	if err := t.abortChildren(ctx); err != nil {
		return err
	}
	return t.w.settle(ctx, t.s, t.announced)
}

// decline answers a message whose turn this worker may not take.
func (w *Worker) decline(ctx context.Context, d bus.TurnDelivery, c state.Claim) {
	msg := d.Turn()
	log := w.runLog(msg.Run).With().Str("outcome", string(c.Outcome)).Int64("message_version", msg.Version).Int64("version", c.Version).Logger()
	switch c.Outcome {
	case state.ClaimBusy:
		w.check(d.Nak(min(c.Busy+w.cfg.SweepEvery, w.cfg.Lease)), "nak")
		log.Debug().Msg("turn declined")
		return
	case state.ClaimNewer:
		// Nothing was claimed, so no attempt is counted. It is asked again ever more
		// slowly: there may be no newer worker for a while.
		w.check(d.Nak(min(time.Duration(d.Delivered())*w.cfg.SweepEvery, w.cfg.Lease)), "nak")
		log.Warn().Int("knows_format", state.Format).Msg("run was written by a newer build and is left to its workers")
		return
	case state.ClaimAhead, state.ClaimMissing:
		// The store is older than the message: a replica that was just promoted,
		// or a loss. It gets some time to catch up; then the store's word counts,
		// and the sweeper drives the run from where the store has it.
		if d.Delivered() <= 3 {
			w.check(d.Nak(time.Duration(d.Delivered())*w.cfg.SweepEvery), "nak")
			return
		}
		if c.Outcome == state.ClaimMissing {
			if err := w.bus.DeadLetter(ctx, bus.DeadLetter{
				Kind: bus.DeadLost, Lane: msg.Priority, Run: msg.Run, Cause: string(state.EndLost), At: now(),
				Data: fmt.Sprintf(`{"run_id":%q,"version":%d}`, msg.Run, msg.Version),
			}); err != nil {
				log.Warn().Err(err).Msg("dead letter")
				return
			}
		}
		log.Warn().Msg("store is older than the message")
	case state.ClaimStale, state.ClaimTerminal, state.ClaimWaiting:
		// Whoever took the turn may have died before it published what follows.
		if err := w.help(ctx, c, msg); err != nil {
			log.Warn().Err(err).Msg("help")
			return
		}
		log.Debug().Msg("turn declined")
	default:
		log.Error().Msg("unknown outcome")
		return
	}
	w.check(d.Ack(), "ack")
}

// help does for a run what a worker does after its commit.
func (w *Worker) help(ctx context.Context, c state.Claim, msg bus.Turn) error {
	run := msg.Run
	if c.Status != state.Queued && c.Status != state.Running {
		if c.Finalized == c.LogLen {
			return nil
		}
		return w.settleRun(ctx, run, c.Finalized)
	}
	if err := w.catchUp(ctx, run, c.Finalized); err != nil {
		return err
	}
	if c.Status != state.Queued {
		return nil
	}
	next := bus.Turn{Run: run, Version: c.Version, Priority: c.Priority, Crowd: msg.Crowd}
	return w.bus.PublishTurn(ctx, next, turnID(run, c.Version))
}
