package bus

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ErrClosed reports that the bus, or the subscription, is closed.
var ErrClosed = errors.New("bus closed")

// Bus carries turns, events, aborts, submissions and dead letters. Its methods
// may be called from any goroutine.
type Bus interface {
	Turns
	Events
	Feed
	Control
	Intake
	Membership

	// Unpulled returns, by queue, how many messages wait although no process asks for them or
	// holds another one.
	Unpulled(ctx context.Context) (map[string]int64, error)

	// Ready returns nil if turns can be published now, whatever their run.
	Ready(ctx context.Context) error

	// Close drops every subscription and the connection.
	Close() error
}

// Queues that Unpulled reports.
const (
	UnpulledTurns       = "turns"
	UnpulledSubmissions = "submissions"
	UnpulledAborts      = "aborts"
)

// Turns is a durable work queue of turns: each message is delivered until it is
// acknowledged. Each priority is a lane. A lane has two queues, one of them for tenants
// with many runs.
type Turns interface {
	// PublishTurn stores a turn message. While the server remembers id, a second
	// message with it is dropped without an error. Only internal/dispatch calls it: it owns
	// the ids.
	PublishTurn(ctx context.Context, t Turn, id string) error

	// Turns returns one queue of a lane. All pullers of a queue share its messages, none
	// is preferred.
	Turns(ctx context.Context, key QueueKey) (TurnQueue, error)

	// Lag returns the number of turn messages that wait for a worker or are held
	// by one.
	Lag(ctx context.Context) (int64, error)

	// LagByLane returns the messages that Lag counts, by lane.
	LagByLane(ctx context.Context) (map[state.Priority]LaneLag, error)

	// Backlog returns since when the oldest message of each lane waits that no worker has
	// fetched.
	Backlog(ctx context.Context) (state.Backlog, error)
}

// LaneLag counts the turn messages of a lane. They can be more than its turns: a message that a
// dead worker fetched stays until its ack wait is over, and its turn was published again.
type LaneLag struct {
	Waiting int64 // no worker has fetched them
	Fetched int64 // workers have fetched them and have not acknowledged them
}

// QueueKey names a queue of turns: a lane, and whether its tenants are noisy. Whoever comes
// late waits in a queue for all who were there before, so tenants with many runs in flight
// wait for each other, and the others do not wait for them.
type QueueKey struct {
	Lane  state.Priority
	Noisy bool
}

// QueueKeys returns the keys of all queues.
func QueueKeys() []QueueKey {
	var keys []QueueKey
	for _, p := range state.Priorities() {
		keys = append(keys, QueueKey{p, false}, QueueKey{p, true})
	}
	return keys
}

// String returns the word of the queue in subjects and consumer names: normal,
// normal-crowd. These names are older than the word noisy.
func (k QueueKey) String() string {
	if k.Noisy {
		return string(k.Lane) + "-crowd"
	}
	return string(k.Lane)
}

// Turn is the hint "look at run Run, the turn that follows Version".
type Turn struct {
	Run      state.RunID    `json:"run_id"`
	Version  int64          `json:"version"`
	Priority state.Priority `json:"-"` // of the queue
	Noisy    bool           `json:"-"` // of the queue

	// TakenFrom is the worker that had the turn and was found dead, and may come back. Empty if there was none.
	TakenFrom string `json:"taken_from,omitempty"`

	// Tenant is the owner of the run, so that a dead letter reaches it even if the store has
	// lost the run.
	Tenant string `json:"-"`

	// TraceParent carries the W3C trace context.
	TraceParent string `json:"-"`
}

// Queue is where the turn waits.
func (t Turn) Queue() QueueKey { return QueueKey{t.Priority, t.Noisy} }

// TurnQueue hands out turns one at a time.
type TurnQueue interface {
	// Next waits for a message until ctx ends. A delivery that is neither
	// acknowledged nor kept with InProgress within the bus's ack wait (30 s by
	// default) is delivered again.
	Next(ctx context.Context) (TurnDelivery, error)

	// SetPrefetch lets the queue fetch up to n messages before Next asks for them, and
	// returns any surplus to the bus at once. The initial value is 0. A worker without free
	// slots must call SetPrefetch(0), so that others get the messages.
	SetPrefetch(n int)

	Close() error
}

// TurnDelivery is a turn message in the hands of one worker. Each method
// concerns this message only; none of them proves that the caller still holds
// the run.
type TurnDelivery interface {
	Turn() Turn

	// Delivered counts the deliveries of this message, from 1.
	Delivered() int

	// PublishedAt is when the bus took the message, by its own clock.
	PublishedAt() time.Time

	// Ack removes the message for good. Malformed messages are acknowledged by
	// the bus itself, after a dead letter.
	Ack() error

	// Nak asks for another delivery after delay.
	Nak(delay time.Duration) error

	// InProgress starts the ack wait anew.
	InProgress() error
}

// Events wakes whoever watches a run. The truth of committed events is the log in the
// store; what is sent here is a hint or a live event, and nobody stores it.
type Events interface {
	// NotifyAppended notifies the run's watchers that its log grew from `from` to `to`
	// entries. The notice may be lost.
	NotifyAppended(tenant string, run state.RunID, from, to int64)

	// PublishLive sends an encoded live event to the run's current watchers. The event may
	// be lost.
	PublishLive(run state.RunID, data []byte)

	// Watch delivers the notices of a run from now on to fn, one at a time and in the
	// order of arrival, until the returned stop is called. After stop returns fn is not
	// called again. fn must not block, nor call stop.
	Watch(ctx context.Context, run state.RunID, fn func(Notice)) (stop func(), err error)

	// WatchAll calls fn for each run whose log has grown, of all tenants, from now on, until
	// the returned stop is called. Like Watch it may miss some, and the rules for fn are the
	// same.
	WatchAll(ctx context.Context, fn func(tenant string, run state.RunID)) (stop func(), err error)

	// WatchDeleted calls fn for each run that is said to be deleted, of all tenants, from now
	// on, until the returned stop is called. It may miss some, and the rules for fn are those
	// of Watch.
	WatchDeleted(ctx context.Context, fn func(tenant string, run state.RunID)) (stop func(), err error)

	// Watchers keeps account of the runs that somebody watches, here or in another
	// process, until Stop is called: a live event that nobody hears need not be made.
	Watchers(ctx context.Context) (Watchers, error)
}

// Notice is what a watcher hears: that the log of the run has grown, or a live event.
type Notice struct {
	From, To int64  // the log had, and has, so many entries; both are 0 for a live event
	Live     []byte // an encoded live event
}

// Watchers tells which runs are watched.
type Watchers interface {
	// Watched reports whether somebody watches a run. It may lag behind by a moment, and
	// by two seconds in a process that has just begun to listen.
	Watched(run state.RunID) bool

	Stop()
}

// Feed stores the committed events of runs as messages, for services that read the bus
// and not the API. A deployment has it if it asks for it.
type Feed interface {
	// PublishEvents stores events of a run in order, and returns when all are stored. An
	// event that the feed has already is dropped while the server remembers its id. One
	// that is larger than the bus can carry is left out.
	PublishEvents(ctx context.Context, tenant string, run state.RunID, events []Event) error

	// LastEvent returns the number of the last event of a run that the feed has, or 0.
	LastEvent(ctx context.Context, tenant string, run state.RunID) (int64, error)
}

// Event is one encoded event of the feed.
type Event struct {
	Seq  int64
	Data []byte
}

// HeaderApplied marks an abort whose durable flag was set before it was published:
// setting it again, late, could end a run that was continued since.
const HeaderApplied = "Turnpike-Applied"

// Abort is a request to end a run.
type Abort struct {
	Run    state.RunID `json:"-"` // it stands in the subject, like the next
	Tenant string      `json:"-"` // of the run; empty to a sender is the default tenant
	Reason string      `json:"reason"`

	// Version is the version that the run had when its durable flag was set. The abort does
	// not apply to turns of later versions, because the run may have continued since. It is
	// 0 if the sender gave no version; the abort then applies to every version.
	Version int64 `json:"version,omitempty"`
}

// HeaderStatus is that of messages which a NATS server sends by itself.
const HeaderStatus = "Status"

// ParseAbort reads the body of an abort: nothing, a text, or an object with a reason. One that
// cannot be read aborts nevertheless, without a reason. It returns false for the answer of a
// server: JetStream sends those to any subject that an asker names for the reply, whatever the
// asker may publish to, so with a submission one tenant could abort the runs of another.
func ParseAbort(body []byte, status string) (Abort, bool) {
	var a Abort
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) == nil && len(members) > 0 {
		_, reason := members["reason"]
		_, version := members["version"]
		if !reason && !version {
			return Abort{}, false
		}
	}
	_ = json.Unmarshal(body, &a) // an abort without a readable reason is an abort
	return a, status == ""
}

// AppliesTo reports whether a applies to a turn that was claimed at the given version of its
// run.
func (a Abort) AppliesTo(version int64) bool { return a.Version == 0 || version <= a.Version }

// Control carries aborts.
type Control interface {
	// PublishAbort tells every worker that a run shall end, whose durable flag the
	// caller has set. It is stored before it returns, with HeaderApplied.
	PublishAbort(ctx context.Context, a Abort) error

	// Aborts calls fn for every abort published from now on, as soon as it is
	// heard. fn must not block.
	Aborts(ctx context.Context, fn func(Abort)) (stop func(), err error)
}

// Intake is the durable way in for services that speak only to the bus.
type Intake interface {
	// OpenTenant lets clients of a tenant publish submissions and aborts. Before, the bus refuses
	// them. The default tenant is always open.
	OpenTenant(ctx context.Context, tenant string) error

	// CloseTenant refuses what clients of a tenant publish from then on. The queues still hand
	// out what the bus has.
	CloseTenant(ctx context.Context, tenant string) error

	// KeepTenants opens all tenants of a deployment, and removes what is left of those that
	// are closed and not among them, once it is empty.
	KeepTenants(ctx context.Context, tenants []string) error

	// IntakeReady returns nil if clients of each tenant can publish submissions and aborts now, as
	// far as is known. A bus with many tenants may look at some of them at each call.
	IntakeReady(ctx context.Context) error

	// Submissions and AbortRequests hand out messages, each to one of all callers
	// until it is acknowledged.
	Submissions(ctx context.Context) (Queue, error)
	AbortRequests(ctx context.Context) (Queue, error)

	// Reply sends data to a subject that a submitter of a tenant named. Nobody stores it, and
	// it is dropped where the subject is not one that may get replies of that tenant.
	Reply(ctx context.Context, tenant, subject string, data []byte) error

	// CheckReply returns why a subject may get no replies of a tenant, an [ErrReplySubject].
	CheckReply(tenant, subject string) error

	// DeadLetter stores what was given up on, with the cause. The poisoned end of a
	// run may be stored again and is one letter, as far as the bus remembers.
	DeadLetter(ctx context.Context, d DeadLetter) error

	// PurgeRun deletes the stored events of a deleted run, and its dead letters if letters
	// is true.
	PurgeRun(ctx context.Context, tenant string, run state.RunID, letters bool) error

	// Deleted tells whoever watches deletions that a run is gone from the store. It may be lost.
	Deleted(tenant string, run state.RunID)

	// DeadLetters returns up to limit dead letters of a tenant, the oldest first, after
	// number `after`.
	DeadLetters(ctx context.Context, tenant string, after uint64, limit int) ([]DeadLetter, error)
}

// Queue hands out messages one at a time.
type Queue interface {
	Next(ctx context.Context) (Message, error)
	Close() error
}

// Message is one message of the intake.
type Message interface {
	// Key is the last token of the subject: the agent of a submission, the run id
	// of an abort request.
	Key() string

	// Tenant is the one of the subject.
	Tenant() string

	Data() []byte
	Header(name string) string

	// ID names the message among all that the queue ever had. It is the same at
	// each delivery, and empty if the bus cannot tell.
	ID() string
	Delivered() int
	Ack() error
	Nak(delay time.Duration) error
}

// DeadKind is what a dead letter was before it was given up on.
type DeadKind string

// Replays reports whether a letter is about a run that has ended and that a replay continues.
func (k DeadKind) Replays() bool { return k == DeadPoisoned || k == DeadStopHook }

// The kinds of dead letters.
const (
	DeadStopHook   DeadKind = "stop_hook_failed" // a stop hook could not answer; the run has failed
	DeadPoisoned   DeadKind = "poisoned"         // a turn that was claimed too often; its run has ended
	DeadLost       DeadKind = "lost"             // a turn of a run that the store does not have
	DeadTurn       DeadKind = "turn"             // on the queue of turns, and no turn message
	DeadSubmission DeadKind = "submission"       // refused
	DeadAbort      DeadKind = "abort"            // refused
)

// DeadLetter is a message that was given up on.
type DeadLetter struct {
	Seq  uint64   `json:"seq"` // set by the bus
	Kind DeadKind `json:"kind"`

	// Tenant that it is of; empty is the default tenant.
	Tenant string `json:"tenant,omitempty"`

	Lane  state.Priority `json:"lane"`
	Run   state.RunID    `json:"run_id,omitempty"`
	Cause string         `json:"cause"`
	At    state.Time     `json:"at"`

	// Data is the message as it came; Cut says that it was too long to be kept whole.
	Data string `json:"data"`
	Cut  bool   `json:"cut,omitempty"`

	// Version and Events are the run's version and log length at its poisoned end,
	// Attempts how many workers had taken the turn.
	Version  int64 `json:"version,omitempty"`
	Events   int64 `json:"events,omitempty"`
	Attempts int   `json:"attempts,omitempty"`

	// By is who sent a submission, as far as is known.
	By *state.By `json:"by,omitempty"`

	// Agent, Key and ReplyTo of a submission, as its subject and headers had them, and the id
	// of its message.
	Agent   string `json:"agent,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
}

// Membership lets workers notice that one of them is dead, and all processes what the
// others can read.
type Membership interface {
	// SendHeartbeat tells the others that a process is alive, or that it leaves.
	SendHeartbeat(h Heartbeat)

	// Heartbeats calls fn for every heartbeat that is heard, the caller's own included.
	Heartbeats(ctx context.Context, fn func(Heartbeat)) (stop func(), err error)
}

// Heartbeat is a sign of life of a worker or a gateway.
type Heartbeat struct {
	Worker  string `json:"worker"`
	Leaving bool   `json:"leaving,omitempty"` // the process stops

	// Format is the newest format of runs that the process can read. Gateway says that it is
	// a gateway: it takes no turns.
	Format  int  `json:"format"`
	Gateway bool `json:"gateway,omitempty"`

	// Slots is how many turns the worker may have in flight.
	Slots int `json:"slots,omitempty"`

	// Turns is how many turns the worker has in flight, by the lane of their messages.
	Turns map[state.Priority]int `json:"turns,omitempty"`

	// Version is the build of the process, as it says itself.
	Version string `json:"version,omitempty"`
}
