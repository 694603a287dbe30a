package upkeep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// ParentEnded is the reason of aborts of child runs that no run waits for any more.
const ParentEnded = "the run that waited for it has ended"

type finalizerStore interface {
	Create(ctx context.Context, run state.NewRun) (state.Created, error)
	Load(ctx context.Context, id state.RunID) (state.State, error)
	LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error)
	Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error)
	Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error)
	Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error)
	DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error)
	Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error)
	MarkFinalized(ctx context.Context, id state.RunID, seq int64) error
	PutTimer(ctx context.Context, id state.TimerID, due time.Time) error
}

type finalizerBus interface {
	Reply(ctx context.Context, tenant, subject string, data []byte) error
	DeadLetter(ctx context.Context, d bus.DeadLetter) error
	PurgeRun(ctx context.Context, tenant string, run state.RunID, letters bool) error
	NotifyAppended(tenant string, run state.RunID, from, to int64)
}

// agents returns the compiled agents of runs. *definition.Agents implements it.
type agents interface {
	Get(ctx context.Context, tenant, name string, version int) (*agent.Agent, error)
	Of(ctx context.Context, s *state.State) (*agent.Agent, error)
}

// FinalizerConfig has the dependencies and settings of a Finalizer. Feed and Tracer may be nil; all other
// fields are required.
type FinalizerConfig struct {
	Dispatch *dispatch.Dispatcher
	Agents   agents
	Clock    *clock.Clock
	Feed     *Feed
	Tracer   trace.Tracer

	RedeliveryDelay time.Duration
	ToolOutput      int // maximum bytes of a child's answer that its parent gets
	Log             *slog.Logger
}

// Finalizer does the work that follows when a run waits or ends. Each step may be repeated, here or
// at another worker. The run stays in the schedule until all steps are done, so a sweeper finishes
// work that a crash interrupted. A Finalizer is safe for concurrent use.
type Finalizer struct {
	cfg      FinalizerConfig
	store    finalizerStore
	bus      finalizerBus
	children children
}

// NewFinalizer returns a finalizer of the runs in store.
func NewFinalizer(store finalizerStore, b finalizerBus, cfg FinalizerConfig) *Finalizer {
	f := &Finalizer{cfg: cfg, store: store, bus: b}
	f.children = children{f: f, creating: make(chan struct{}, maxCreating), finding: make(chan struct{}, maxFinding)}
	return f
}

// FinalizeRun finalizes a run that waits or has ended. done is the number of entries of its log
// that are known to be finalized. It does nothing if the run neither waits nor has ended, or was
// deleted.
func (f *Finalizer) FinalizeRun(ctx context.Context, id state.RunID, done int64) error {
	// The log first: entries that the run adds between the two reads are not finalized.
	length, err := f.length(ctx, id, done)
	if errors.Is(err, state.ErrDeleted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	s, err := f.store.Load(ctx, id)
	if errors.Is(err, state.ErrDeleted) {
		return nil // since its log was read
	}
	if err != nil {
		return fmt.Errorf("load run: %w", err)
	}
	if s.Status != state.Waiting && !s.Status.Terminal() {
		return nil // it was woken meanwhile
	}
	var started []state.OpenCall
	if s.Status == state.Waiting && done > 0 && length == done {
		started = s.Open // this rest was finalized before, so all its children were created
		if err := f.children.find(ctx, s); err != nil {
			return fmt.Errorf("find child runs: %w", err)
		}
	}
	return f.Finalize(ctx, s, done, length, started)
}

const (
	// pageEntries and pageBytes bound one read of a log, which holds at most that and one entry.
	pageEntries = 256
	pageBytes   = 2 << 20
)

// length returns the length of the log of a run, which has at least done entries.
func (f *Finalizer) length(ctx context.Context, id state.RunID, done int64) (int64, error) {
	for {
		page, err := f.store.LogPage(ctx, id, done, pageEntries, pageBytes)
		if done += int64(len(page.Entries)); err != nil || !page.More {
			return done, err
		}
	}
}

// Finalize does the work that follows when a run waits or ends. If the run waits, it starts the child runs. If the run
// has ended, it stores a dead letter if the run is lost or a replay can continue it, and then sends the outcome to
// the run's parent and to the subject that the submitter named for it. In both cases it then queues the events for the
// run's webhook, starts the next run of the batch if that may start, publishes the rest of the events to the event
// feed, and calls MarkFinalized. entries is the length of the log, and its first done entries are known to be
// finalized. started are the calls whose child runs were started before. After an error the run stays due.
func (f *Finalizer) Finalize(ctx context.Context, s state.State, done, entries int64, started []state.OpenCall) error {
	if s.Status == state.Waiting {
		if err := f.children.start(ctx, s, started); err != nil {
			return fmt.Errorf("start child runs: %w", err)
		}
	}
	if s.Status.Terminal() {
		if err := f.bury(ctx, s, entries); err != nil {
			return fmt.Errorf("store dead letter: %w", err)
		}
		if err := f.answerParent(ctx, s); err != nil {
			return fmt.Errorf("answer parent run: %w", err)
		}
		if err := f.reply(ctx, s); err != nil {
			return fmt.Errorf("send the finished run to its reply subject (Turnpike-Reply): %w", err)
		}
	}
	if err := f.announce(ctx, s, done, entries); err != nil {
		return fmt.Errorf("queue event for webhook: %w", err)
	}
	if err := f.startNext(ctx, s); err != nil {
		return fmt.Errorf("start next of batch: %w", err)
	}
	if f.cfg.Feed != nil { // the last step, so that no run waits for the feed
		if err := f.cfg.Feed.Flush(ctx, s.Tenant, s.ID, entries); err != nil {
			return fmt.Errorf("publish to the event feed: %w", err)
		}
	}
	if err := f.store.MarkFinalized(ctx, s.ID, entries); err != nil && !errors.Is(err, state.ErrDeleted) {
		return fmt.Errorf("record in the store that the run is finalized: %w", err)
	}
	return nil
}

// AbortChildren requests the abort of the child runs that answer calls, and ignores other calls and runs that have
// ended. It returns the calls whose runs do not exist. After an error some of the aborts may be requested; the call may
// be repeated.
func (f *Finalizer) AbortChildren(ctx context.Context, tenant string, calls []state.OpenCall) ([]state.OpenCall, error) {
	return f.children.abortAll(ctx, tenant, calls)
}

// announce stores a timer for each event that the webhook of a run receives, after the first done entries of its log.
// Once a timer is stored, no crash loses its event. It considers all entries since done, because the run may have
// continued before an earlier event had a timer; if the run can have had no earlier event, it considers the last
// entry only.
func (f *Finalizer) announce(ctx context.Context, s state.State, done, entries int64) error {
	if s.Webhook == nil || entries == 0 {
		return nil
	}
	if !webhook.HasEarlier(s) {
		done = entries - 1
	}
	for done < entries {
		page, err := f.store.LogPage(ctx, s.ID, done, pageEntries, pageBytes)
		if errors.Is(err, state.ErrDeleted) || err == nil && len(page.Entries) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range page.Entries {
			if e := &page.Entries[i]; e.Seq <= entries && webhook.Wanted(s.Webhook, e) {
				if err := f.store.PutTimer(ctx, webhook.Timer(s, e.Seq), f.cfg.Clock.Now().Time); err != nil {
					return err
				}
			}
		}
		done += int64(len(page.Entries))
	}
	return nil
}

// reply sends the finished run to the subject that its submitter named.
func (f *Finalizer) reply(ctx context.Context, s state.State) error {
	if s.ReplyTo == "" || !s.Status.Terminal() {
		return nil
	}
	data, err := json.Marshal(api.RunOf(s, f.cfg.Clock.Now().Time))
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	return f.bus.Reply(ctx, s.Tenant, s.ReplyTo, data)
}

// bury stores a dead letter, with the cause, about a run that the store has lost or that a replay can continue.
func (f *Finalizer) bury(ctx context.Context, s state.State, events int64) error {
	letter := bus.DeadLetter{
		Kind: bus.DeadPoisoned, Tenant: s.Tenant, Lane: s.Priority, Run: s.ID, Version: s.Version, Events: events,
		Cause: string(s.Transition.Reason) + ": " + s.Transition.Detail, At: s.UpdatedAt,
		Data: fmt.Sprintf(`{"run_id":%q,"version":%d}`, s.ID, s.Version-1),
	}
	switch s.Transition.Reason {
	case state.EndLost:
		letter.Kind = bus.DeadLost
	case state.EndInputHookFailed:
		letter.Kind = bus.DeadInputHook
	case state.EndStopHookFailed:
		letter.Kind = bus.DeadStopHook
	default:
	}
	if s.Poison != nil {
		letter.Attempts = s.Poison.Attempts
	} else if letter.Kind != bus.DeadLost {
		return nil
	}
	if err := f.bus.DeadLetter(ctx, letter); err != nil {
		return err
	}
	if _, err := f.store.Load(ctx, s.ID); errors.Is(err, state.ErrDeleted) {
		return f.bus.PurgeRun(ctx, s.Tenant, s.ID, true) // the deletion has removed dead letters before
	}
	return nil
}

// answerParent gives the outcome of a child run to the run that waits for it.
func (f *Finalizer) answerParent(ctx context.Context, s state.State) error {
	if s.Parent == nil {
		return nil
	}
	result := loop.ChildResult(s)
	asked, err := f.askers(ctx, s.ID)
	if err != nil {
		return err
	}
	result.Requesters = asked
	result.Content = tool.Truncate(result.Content, f.cfg.ToolOutput)
	return f.signalParent(ctx, s.Parent.RunID, state.Signal{ID: "child:" + string(s.ID), Child: &result})
}

// askers returns the principals who have requested something in a run. The parent needs them, because they may
// not approve in it what their requests led to.
func (f *Finalizer) askers(ctx context.Context, id state.RunID) (all []string, err error) {
	for after := int64(0); ; {
		page, err := f.store.LogPage(ctx, id, after, pageEntries, pageBytes)
		if err != nil {
			return nil, fmt.Errorf("read the requesters of the run: %w", err)
		}
		if all = state.Askers(all, page.Entries); !page.More {
			return all, nil
		}
		after += int64(len(page.Entries))
	}
}

func (f *Finalizer) signalParent(ctx context.Context, parent state.RunID, sig state.Signal) error {
	sig.At = f.cfg.Clock.Now()
	wake, err := f.store.Signal(ctx, parent, sig, f.cfg.RedeliveryDelay)
	if _, closed := errors.AsType[*state.NotWaitingError](err); closed || errors.Is(err, state.ErrNotFound) {
		return nil // it ended, or was answered by an earlier end of this child
	}
	if err != nil {
		return err
	}
	return f.cfg.Dispatch.Wake(ctx, parent, wake, span.Parent(ctx))
}

// answerFor gives the outcome of a child that has ended to the run that waits for it. The record of a lost run
// may lack its parent.
func (f *Finalizer) answerFor(ctx context.Context, s state.State, o state.OpenCall, child state.State) error {
	if child.Parent == nil {
		return f.signalParent(ctx, s.ID, lostChild(o))
	}
	return f.answerParent(ctx, child)
}
