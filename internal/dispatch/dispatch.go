package dispatch

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Bus is the part of a bus that a Dispatcher needs.
type Bus interface {
	PublishTurn(ctx context.Context, t bus.Turn, id string) error
	PublishAbort(ctx context.Context, a bus.Abort) error
}

// Turn is a turn to publish.
type Turn struct {
	Run      state.RunID
	Version  int64 // of the state that the turn follows
	Priority state.Priority

	// Tenant is the owner of the run.
	Tenant string

	// Noisy means that the store or the last message of the run put its tenant into the queue for
	// noisy tenants.
	Noisy bool

	// Sticky is the worker that has claimed the turn eagerly, if the turn goes to that worker's own queue.
	Sticky string

	// TraceParent is a W3C trace context, or empty.
	TraceParent string

	takenFrom string // as bus.Turn.TakenFrom
}

// Dispatcher publishes turns. It is safe for concurrent use.
type Dispatcher struct {
	bus   Bus
	noisy func(tenant string) bool
}

// New returns a dispatcher on b. noisy reports tenants that this process knows to be noisy; Publish, Wake, Interrupt
// and Republish put their turns into the queue for noisy tenants, as if the store had said so. It must be safe for
// concurrent use, and may be nil.
func New(b Bus, noisy func(tenant string) bool) *Dispatcher {
	if noisy == nil {
		noisy = func(string) bool { return false }
	}
	return &Dispatcher{b, noisy}
}

// Publish publishes a turn under its canonical id. It may be repeated: the bus drops duplicates for a while.
func (d *Dispatcher) Publish(ctx context.Context, t Turn) error {
	t.Noisy = t.Noisy || d.noisy(t.Tenant)
	return d.publish(ctx, t, id(t.Run, t.Version))
}

// Wake publishes the turn that a signal requires, if w requires one.
func (d *Dispatcher) Wake(ctx context.Context, run state.RunID, w state.Wake, traceParent string) error {
	if !w.Publish {
		return nil
	}
	return d.Publish(ctx, Turn{Run: run, Version: w.Version, Priority: w.Priority, Tenant: w.Tenant, Noisy: w.Noisy, TraceParent: traceParent})
}

// WakeAborted publishes the turn that ends an aborted run, if w requires one, in the high lane and under an id
// of its own: the run's other message may be far back in its queue.
func (d *Dispatcher) WakeAborted(ctx context.Context, run state.RunID, w state.Wake, traceParent string) error {
	if !w.Publish {
		return nil
	}
	return d.publish(ctx, Turn{Run: run, Version: w.Version, Priority: state.High, Tenant: w.Tenant, TraceParent: traceParent}, id(run, w.Version)+":abort")
}

// Abort publishes the turn that ends an aborted run, if w requires one, and a notice of the abort to all workers, for
// the one that executes the run. The caller must have stored the abort; w is the store's answer. After an error the
// call may be repeated.
func (d *Dispatcher) Abort(ctx context.Context, run state.RunID, tenant, reason string, w state.Wake, traceParent string) error {
	if err := d.WakeAborted(ctx, run, w, traceParent); err != nil {
		return err
	}
	return d.bus.PublishAbort(ctx, bus.Abort{Run: run, Tenant: tenant, Reason: reason, Version: w.Version})
}

// Interrupt publishes the turn that an interrupting message requires. If the run is in flight, it
// notifies the worker that executes it instead.
func (d *Dispatcher) Interrupt(ctx context.Context, run state.RunID, w state.Wake, traceParent string) error {
	if w.Publish || w.Version == 0 { // a repetition has no version
		return d.Wake(ctx, run, w, traceParent)
	}
	return d.bus.PublishAbort(ctx, bus.Abort{Run: run, Tenant: w.Tenant, Reason: string(state.Interrupted), Version: w.Version, Interrupt: true})
}

// Cause is the reason why a turn is published again: it was due, because its message or its worker
// was lost, or its worker was found dead.
type Cause struct{ letter, dead string }

// Swept is the cause of the sweeper.
func Swept() Cause { return Cause{letter: "s"} }

// Evicted is the cause of a process that evicts a worker; "" stands for a worker that cannot return.
func Evicted(worker string) Cause { return Cause{"e", worker} }

// Republish publishes the turn of a run that was due. If due.Covered, the message of the turn is probably still in the
// queue: Republish then uses the id of that message, so that the bus drops the duplicate. Otherwise the message is
// lost, and Republish uses a new id, because the bus would drop a message with the same id as a duplicate.
func (d *Dispatcher) Republish(ctx context.Context, due state.Due, cause Cause) error {
	t := Turn{Run: due.Run, Version: due.Version, Priority: due.Priority, Tenant: due.Tenant, Noisy: due.Noisy || d.noisy(due.Tenant), takenFrom: cause.dead}
	if due.Covered {
		return d.publish(ctx, t, id(due.Run, due.Version))
	}
	return d.publish(ctx, t, fmt.Sprintf("%s:%s%d:%d", id(due.Run, due.Version), cause.letter, due.Sweeps, time.Now().UnixNano()))
}

// GiveBack publishes a turn from a worker's own queue in its lane, for any worker.
func (d *Dispatcher) GiveBack(ctx context.Context, msg bus.Turn) error {
	return d.publish(ctx, Turn{Run: msg.Run, Version: msg.Version, Priority: msg.Priority, Tenant: msg.Tenant, Noisy: msg.Noisy, TraceParent: msg.TraceParent}, id(msg.Run, msg.Version))
}

// Follow publishes the next turn of the run of a stale message, on behalf of a worker that may
// have died before publishing it.
func (d *Dispatcher) Follow(ctx context.Context, msg bus.Turn, version int64, p state.Priority) error {
	return d.publish(ctx, Turn{Run: msg.Run, Version: version, Priority: p, Tenant: msg.Tenant, Noisy: msg.Noisy}, id(msg.Run, version))
}

func (d *Dispatcher) publish(ctx context.Context, t Turn, id string) error {
	return d.bus.PublishTurn(ctx, bus.Turn{
		Run: t.Run, Version: t.Version, Priority: t.Priority, Tenant: t.Tenant, Noisy: t.Noisy, Sticky: t.Sticky, TraceParent: t.TraceParent, TakenFrom: t.takenFrom,
	}, id)
}

// id is the canonical id of a turn message.
func id(run state.RunID, version int64) string {
	return string(run) + ":" + strconv.FormatInt(version, 10)
}
