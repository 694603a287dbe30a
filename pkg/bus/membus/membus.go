package membus

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Bus is a bus.Bus in memory. It has many methods because the interface has.
type Bus struct {
	// AckWait is the time that a delivery may stay unacknowledged; New sets 30 s. Set it
	// before the first use of the bus.
	AckWait time.Duration

	mu     sync.Mutex
	closed chan struct{}
	queues map[bus.QueueKey]*queue
	sticky map[string]*queue // by worker
	submit *queue
	aborts *queue
	seen   map[string]bool
	feed   map[state.RunID]int64 // last event of the feed, by run
	feeds  sync.Mutex            // held while events are added to the feed and sent, so that they arrive in order
	dead   []bus.DeadLetter
	subs   map[string]map[int]func(any)
	nextID int

	objects map[string]map[string][]byte // by tenant and name

	// Replies are kept for tests to inspect.
	replies map[string][][]byte
}

var _ bus.Bus = (*Bus)(nil)

// New returns an empty bus.
func New() *Bus {
	b := &Bus{
		AckWait: 30 * time.Second, closed: make(chan struct{}), queues: map[bus.QueueKey]*queue{}, sticky: map[string]*queue{}, seen: map[string]bool{}, feed: map[state.RunID]int64{},
		subs: map[string]map[int]func(any){}, replies: map[string][][]byte{}, objects: map[string]map[string][]byte{},
	}
	for _, key := range bus.QueueKeys() {
		b.queues[key] = newQueue(b)
	}
	b.submit, b.aborts = newQueue(b), newQueue(b)
	return b
}

func (b *Bus) open() error {
	select {
	case <-b.closed:
		return bus.ErrClosed
	default:
		return nil
	}
}

// first reports whether id is new in set.
func (b *Bus) first(set map[string]bool, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if set[id] {
		return false
	}
	set[id] = true
	return true
}

// PublishTurn implements bus.Turns.
func (b *Bus) PublishTurn(_ context.Context, t bus.Turn, id string) error {
	if err := b.open(); err != nil {
		return err
	}
	q := b.queues[t.Queue()]
	if q == nil {
		return fmt.Errorf("publish turn of run %s: its priority is %q: set high, normal or low", t.Run, t.Priority)
	}
	if own := b.stickyQueue(t.Sticky, false); own != nil {
		q = own
	} else {
		t.Sticky = ""
	}
	if id == "" || b.first(b.seen, t.Sticky+" "+id) {
		q.push(&item{turn: t})
	}
	return nil
}

// stickyQueue returns the queue of a worker; nil if it does not exist and create is false.
func (b *Bus) stickyQueue(worker string, create bool) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sticky[worker] == nil && create {
		b.sticky[worker] = newQueue(b)
	}
	return b.sticky[worker]
}

// StickyTurns implements bus.Turns.
func (b *Bus) StickyTurns(_ context.Context, worker string) (bus.TurnQueue, error) {
	h, err := b.handle(b.stickyQueue(worker, true))
	return turns{h}, err
}

// allQueues returns the queues of the lanes and of the workers.
func (b *Bus) allQueues() []*queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(b.queues)), maps.Values(b.sticky))
}

// Turns implements bus.Turns.
func (b *Bus) Turns(_ context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	if b.queues[key] == nil {
		return nil, fmt.Errorf("there is no queue %q of turns", key)
	}
	h, err := b.handle(b.queues[key])
	return turns{h}, err
}

// Lag implements bus.Turns.
func (b *Bus) Lag(context.Context) (int64, error) {
	var n int64
	for _, q := range b.allQueues() {
		q.mu.Lock()
		n += int64(len(q.items))
		q.mu.Unlock()
	}
	return n, nil
}

// LagByLane implements bus.Turns.
func (b *Bus) LagByLane(context.Context) (map[state.Priority]bus.LaneLag, error) {
	lanes := map[state.Priority]bus.LaneLag{}
	for _, lane := range state.Priorities() {
		lanes[lane] = bus.LaneLag{}
	}
	for _, q := range b.allQueues() {
		q.mu.Lock()
		for _, it := range q.items {
			lag := lanes[it.turn.Priority]
			if it.delivered == 0 && it.turn.Sticky == "" {
				lag.Waiting++
			} else {
				lag.Fetched++
			}
			lanes[it.turn.Priority] = lag
		}
		q.mu.Unlock()
	}
	return lanes, nil
}

// Backlog implements bus.Turns.
func (b *Bus) Backlog(context.Context) (state.Backlog, error) {
	oldest := state.Backlog{}
	for key, q := range b.queues {
		q.mu.Lock()
		for _, it := range q.items {
			if at, ok := oldest[key.Lane]; it.delivered == 0 && (!ok || it.published.Before(at)) {
				oldest[key.Lane] = it.published
			}
		}
		q.mu.Unlock()
	}
	return oldest, nil
}

// subscribe registers fn under a subject.
func (b *Bus) subscribe(subject string, fn func(any)) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs[subject] == nil {
		b.subs[subject] = map[int]func(any){}
	}
	b.nextID++
	id := b.nextID
	var mu sync.Mutex
	stopped := false
	b.subs[subject][id] = func(v any) {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			fn(v)
		}
	}
	return func() {
		b.mu.Lock()
		delete(b.subs[subject], id)
		b.mu.Unlock()
		mu.Lock()
		stopped = true
		mu.Unlock()
	}, nil
}

func (b *Bus) send(subject string, v any) {
	b.mu.Lock()
	ids := make([]int, 0, len(b.subs[subject]))
	for id := range b.subs[subject] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	fns := make([]func(any), len(ids))
	for i, id := range ids {
		fns[i] = b.subs[subject][id]
	}
	b.mu.Unlock()
	for _, fn := range fns {
		fn(v)
	}
}

// NotifyAppended implements bus.Events.
func (b *Bus) NotifyAppended(tenant string, run state.RunID, from, to int64) {
	b.send(watchSubject(run), bus.Notice{From: from, To: to})
	b.send(watchAll, ofTenant{tenant, run})
}

// PublishLive implements bus.Events.
func (b *Bus) PublishLive(run state.RunID, data []byte) {
	b.send(watchSubject(run), bus.Notice{Live: data})
}

// Watch implements bus.Events.
func (b *Bus) Watch(_ context.Context, run state.RunID, fn func(bus.Notice)) (func(), error) {
	return b.subscribe(watchSubject(run), func(v any) { fn(v.(bus.Notice)) }) //nolint:forcetypeassert // only NotifyAppended and PublishLive send
}

// WatchAll implements bus.Events.
func (b *Bus) WatchAll(_ context.Context, fn func(string, state.RunID)) (func(), error) {
	return b.subscribe(watchAll, told(fn))
}

// ofTenant is a run and its tenant.
type ofTenant struct {
	tenant string
	run    state.RunID
}

// told adapts fn to messages of type ofTenant.
func told(fn func(string, state.RunID)) func(any) {
	return func(v any) {
		r := v.(ofTenant) //nolint:forcetypeassert // only NotifyAppended and Deleted send
		fn(r.tenant, r.run)
	}
}

// Deleted implements bus.Intake.
func (b *Bus) Deleted(tenant string, run state.RunID) { b.send(watchDeleted, ofTenant{tenant, run}) }

// WatchDeleted implements bus.Events.
func (b *Bus) WatchDeleted(_ context.Context, fn func(string, state.RunID)) (func(), error) {
	return b.subscribe(watchDeleted, told(fn))
}

const (
	watchAll     = "watch"
	watchDeleted = "deleted"
)

func watchSubject(run state.RunID) string { return "watch." + string(run) }

// Watchers implements bus.Events.
func (b *Bus) Watchers(context.Context) (bus.Watchers, error) { return watchers{b}, b.open() }

type watchers struct{ b *Bus }

func (w watchers) Watched(run state.RunID) bool {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return len(w.b.subs[watchSubject(run)]) > 0
}

func (watchers) Stop() {}

// PublishEvents implements bus.Feed.
func (b *Bus) PublishEvents(_ context.Context, _ string, run state.RunID, events []bus.Event) error {
	if err := b.open(); err != nil {
		return err
	}
	b.feeds.Lock()
	defer b.feeds.Unlock()
	for _, e := range events {
		b.mu.Lock()
		fresh := e.Seq > b.feed[run]
		b.feed[run] = max(b.feed[run], e.Seq)
		b.mu.Unlock()
		if fresh {
			b.send("feed", Published{run, e})
		}
	}
	return nil
}

// LastEvent implements bus.Feed.
func (b *Bus) LastEvent(_ context.Context, _ string, run state.RunID) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.feed[run], b.open()
}

// Published is an event of the feed, with its run.
type Published struct {
	Run   state.RunID
	Event bus.Event
}

// ReadFeed calls fn for each event of the feed from now on, as a service would receive it, in the goroutine of
// the publisher and one at a time, until stop. fn must not call stop or PublishEvents.
func (b *Bus) ReadFeed(fn func(Published)) (stop func(), err error) {
	return b.subscribe("feed", func(v any) { fn(v.(Published)) }) //nolint:forcetypeassert // only PublishEvents sends
}

// PublishAbort implements bus.Control.
func (b *Bus) PublishAbort(_ context.Context, a bus.Abort) error {
	if err := b.open(); err != nil {
		return err
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode abort: %w", err)
	}
	a.Tenant = cmp.Or(a.Tenant, state.DefaultTenant)
	b.aborts.push(&item{tenant: a.Tenant, key: string(a.Run), headers: map[string]string{bus.HeaderApplied: "1"}, data: data})
	b.send("aborts", a)
	return nil
}

// Aborts implements bus.Control.
func (b *Bus) Aborts(_ context.Context, fn func(bus.Abort)) (func(), error) {
	return b.subscribe("aborts", func(v any) { fn(v.(bus.Abort)) }) //nolint:forcetypeassert // only PublishAbort sends
}

// Submit adds a submission to the intake, as a service would.
func (b *Bus) Submit(tenant, agent string, data []byte, headers map[string]string) {
	b.submit.push(&item{tenant: tenant, key: agent, data: data, headers: headers})
}

// Unpulled implements bus.Bus. It reports no messages, because only the caller's process can pull them.
func (b *Bus) Unpulled(context.Context) (map[string]bus.Unpulled, error) {
	return map[string]bus.Unpulled{}, nil
}

// OpenTenant implements bus.Intake. All tenants are open.
func (b *Bus) OpenTenant(context.Context, string) error { return nil }

// CloseTenant implements bus.Intake. It closes none.
func (b *Bus) CloseTenant(context.Context, string) error { return nil }

// KeepTenants implements bus.Intake.
func (b *Bus) KeepTenants(context.Context, []string) error { return nil }

// Submissions implements bus.Intake.
func (b *Bus) Submissions(context.Context) (bus.Queue, error) {
	h, err := b.handle(b.submit)
	return messages{h}, err
}

// AbortRequests implements bus.Intake.
func (b *Bus) AbortRequests(context.Context) (bus.Queue, error) {
	h, err := b.handle(b.aborts)
	return messages{h}, err
}

// Reply implements bus.Intake. It keeps the reply for Replies.
func (b *Bus) Reply(_ context.Context, tenant, subject string, data []byte) error {
	if b.CheckReply(tenant, subject) != nil {
		return nil // dropped
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replies[subject] = append(b.replies[subject], data)
	return nil
}

// CheckReply implements bus.Intake, for the prefix turnpike.
func (b *Bus) CheckReply(tenant, subject string) error {
	return bus.CheckReply("turnpike", tenant, subject)
}

// Replies returns the data of all calls of Reply for a subject, in their order.
func (b *Bus) Replies(subject string) [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.replies[subject])
}

// DeadLetter implements bus.Intake.
func (b *Bus) DeadLetter(_ context.Context, d bus.DeadLetter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	tenant := cmp.Or(d.Tenant, state.DefaultTenant)
	if slices.ContainsFunc(b.dead, func(o bus.DeadLetter) bool {
		unique := d.Kind.Unique() && o.Run == d.Run && o.Version == d.Version
		message := d.Message != "" && o.Message == d.Message && (d.Kind != bus.DeadTrigger || o.Key == d.Key)
		return o.Tenant == tenant && o.Kind == d.Kind && (unique || message)
	}) {
		return nil
	}
	d.Seq, d.Tenant = uint64(len(b.dead)+1), tenant
	b.dead = append(b.dead, d)
	return nil
}

// PurgeRun implements bus.Intake.
func (b *Bus) PurgeRun(_ context.Context, _ string, run state.RunID, letters bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.feed, run)
	for i := range b.dead {
		if letters && b.dead[i].Run == run {
			b.dead[i] = bus.DeadLetter{} // the others keep their numbers
		}
	}
	return nil
}

// DeadLetters implements bus.Intake.
func (b *Bus) DeadLetters(_ context.Context, tenant string, after uint64, limit int) ([]bus.DeadLetter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after >= uint64(len(b.dead)) {
		return nil, nil
	}
	rest := slices.DeleteFunc(slices.Clone(b.dead[after:]), func(d bus.DeadLetter) bool { return d.Seq == 0 || d.Tenant != tenant })
	return rest[:min(limit, len(rest))], nil
}

// SendHeartbeat implements bus.Membership.
func (b *Bus) SendHeartbeat(h bus.Heartbeat) { b.send("heartbeats", h) }

// Heartbeats implements bus.Membership.
func (b *Bus) Heartbeats(_ context.Context, fn func(bus.Heartbeat)) (func(), error) {
	return b.subscribe("heartbeats", func(v any) { fn(v.(bus.Heartbeat)) }) //nolint:forcetypeassert // only SendHeartbeat sends
}

// Ready implements bus.Bus.
func (b *Bus) Ready(context.Context) error { return b.open() }

// IntakeReady implements bus.Intake.
func (b *Bus) IntakeReady(context.Context) error { return b.open() }

// Close implements bus.Bus. Subscriptions stay until their stop.
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open() == nil {
		close(b.closed)
	}
	return nil
}
