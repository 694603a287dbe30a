package bus

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ErrClosed reports that the bus, the queue or the connection is closed.
var ErrClosed = errors.New("the bus is closed, since this process is shutting down: retry when it runs again")

// Bus carries turns, events, aborts, submissions, dead letters and heartbeats, and stores objects. Its methods, and
// those of its queues and Watchers, may be called from any goroutine. A queue or a subscription outlives the ctx with
// which it was opened, until its own Close or stop, or Close of the bus ends it. If a method that publishes returns an
// error, the message may or may not have been stored, unless a comment says otherwise.
type Bus interface {
	Turns
	Events
	Feed
	Control
	Intake
	Membership
	Objects

	// Unpulled returns the messages that wait while no process requests messages of their queue, by queue
	// (UnpulledTurns and so on). A queue that has none is missing, or has zeros. All queues of turns count as one. For
	// submissions and aborts each tenant has its own queue, which counts only once its oldest message has waited for
	// some seconds, and not while a message of it is unacknowledged; the numbers of all tenants are added up. A bus
	// within one process may return none.
	Unpulled(ctx context.Context) (map[string]Unpulled, error)

	// Ready returns nil if the bus can store turns of any run now. The answer may be some hundred
	// milliseconds old.
	Ready(ctx context.Context) error

	// Close ends every queue and subscription, except that a bus within one process may leave subscriptions to their
	// stop. It tries to return fetched messages that Next has not returned; otherwise they are redelivered after the
	// ack wait. It may wait for a call of a subscription's fn, so fn must not call it. A connection that the bus was
	// opened with stays open.
	Close() error
}

// Unpulled are messages of a queue that no process requests.
type Unpulled struct {
	// Waiting is the number of messages that were not delivered yet.
	Waiting int64

	// Unacknowledged is the number of messages that were delivered: a process works on them and may therefore
	// request no more, or it has died. The bus cannot distinguish the two.
	Unacknowledged int64
}

// Queues that Unpulled reports.
const (
	UnpulledTurns       = "turns"
	UnpulledSubmissions = "submissions"
	UnpulledAborts      = "aborts"
)

// Turns has the work queues of turns. Each priority is a lane, and a lane has two queues, one of them for tenants with
// many runs. In addition each worker may have a queue of its own, for runs that are sticky to it. The bus delivers a
// message again and again until it is acknowledged.
type Turns interface {
	// PublishTurn stores a turn message in the queue t.Queue(), or in that of the worker t.Sticky if it is not empty
	// and the bus has such queues. While the bus remembers id (two minutes on NATS), it drops a second message with
	// the same id without an error, but not always: on NATS it may accept one when the number of streams has changed,
	// or if only one of the two is sticky. An empty id is never a duplicate. Only internal/dispatch may call
	// PublishTurn: it owns the ids.
	PublishTurn(ctx context.Context, t Turn, id string) error

	// Turns returns one queue of a lane, or an error if key is not one of QueueKeys. All pullers of a
	// queue, in all processes, share its messages; none has precedence.
	Turns(ctx context.Context, key QueueKey) (TurnQueue, error)

	// StickyTurns returns the queue of the turns that are sticky to a worker; only that worker may call it. The bus
	// creates the queue. Messages of a worker that died may stay in its queue, unread, for a day: their turns are
	// published again in the lanes when the worker is evicted.
	StickyTurns(ctx context.Context, worker string) (TurnQueue, error)

	// Lag returns the number of turn messages that are unfetched or fetched and unacknowledged. Those in the queues of
	// workers count as fetched.
	Lag(ctx context.Context) (int64, error)

	// LagByLane returns the messages that Lag counts, by lane.
	LagByLane(ctx context.Context) (map[state.Priority]LaneLag, error)

	// Backlog returns, for each lane, the time at which its oldest unfetched message was queued. Messages in the queues
	// of workers do not count: no process reads that of a dead worker, and its turns must not seem to wait.
	Backlog(ctx context.Context) (state.Backlog, error)
}

// LaneLag counts the turn messages of a lane. There can be more messages than turns:
// a message that a dead worker fetched counts until its ack wait ends and another
// worker acknowledges it, and a worker may have published the same turn again before.
type LaneLag struct {
	Waiting int64 // no worker has fetched them
	Fetched int64 // workers have fetched them and not acknowledged them; some may have been returned or deferred since
}

// QueueKey identifies a queue of turns: a lane, and whether the queue is for noisy
// tenants, which have many runs in flight. A queue delivers in the order of arrival,
// so noisy tenants wait for each other, and other tenants do not wait for them.
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

// String returns the queue's token in subjects and consumer names: normal, normal-crowd. These
// names are older than the word noisy.
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

	// Sticky is the worker that has claimed the turn eagerly, if the message is in that worker's own queue. Priority and
	// Noisy are then those of the queue that would have had it otherwise.
	Sticky string `json:"-"`

	// TakenFrom is a worker that seemed dead: another worker evicted it, which ended its lease of the run, and then
	// published this message. The evicted worker may only have been paused, and return. TakenFrom is empty in every
	// other message, also in one that a sweep published because a lease expired.
	TakenFrom string `json:"taken_from,omitempty"`

	// Tenant is the owner of the run, so that a dead letter reaches it even if the store has
	// lost the run.
	Tenant string `json:"-"`

	// TraceParent carries the W3C trace context.
	TraceParent string `json:"-"`
}

// Queue returns the key of the queue that carries the turn unless it is sticky.
func (t Turn) Queue() QueueKey { return QueueKey{t.Priority, t.Noisy} }

// TurnQueue hands out turns one at a time.
type TurnQueue interface {
	// Next waits for a message. It returns the error of ctx when that ends, and ErrClosed after the queue, the
	// bus or the connection was closed. The bus redelivers a message whose ack wait (30 s by default) ends
	// without Ack or InProgress.
	Next(ctx context.Context) (TurnDelivery, error)

	// SetPrefetch lets the queue keep up to n messages for later calls of Next, and returns any surplus to the bus at
	// once. The initial value is 0. A worker without free slots must call SetPrefetch(0), so that others get the
	// messages.
	SetPrefetch(n int)

	// Close ends all calls of Next, and returns prefetched messages to the bus. Messages that Next
	// has returned stay with their callers.
	Close() error
}

// TurnDelivery is a delivery of a turn message to one worker. After its ack wait another worker may get the message
// too. No method proves that the caller still holds the message or the run's lease.
type TurnDelivery interface {
	Turn() Turn

	// Delivered counts the deliveries of this message, from 1.
	Delivered() int

	// PublishedAt returns the time, by the bus's clock, at which the bus stored the message.
	PublishedAt() time.Time

	// Ack requests the deletion of the message. Nil means that the request was sent: if it is lost, the
	// bus delivers the message again. The same holds for Nak and InProgress. The bus itself acknowledges
	// malformed messages, after it has stored a dead letter.
	Ack() error

	// Nak requests redelivery after delay; 0 means at once.
	Nak(delay time.Duration) error

	// InProgress restarts the ack wait.
	InProgress() error
}

// Events notifies watchers of runs. The store's log is the authority on committed events; Events
// carries hints and live events, and stores nothing.
type Events interface {
	// NotifyAppended notifies the run's watchers that its log grew from `from` to `to`
	// entries. The notice may be lost, and notices of one run may be combined.
	NotifyAppended(tenant string, run state.RunID, from, to int64)

	// PublishLive sends an encoded live event to the run's current watchers. The event may
	// be lost.
	PublishLive(run state.RunID, data []byte)

	// Watch calls fn for the notices of a run that arrive from now on, perhaps before Watch returns, one at a time and
	// in the order of arrival, until the caller calls stop. Notices may be lost. After stop returns, fn is not called
	// again. stop may be called several times. fn must not block, or more notices are lost, and must not call stop.
	Watch(ctx context.Context, run state.RunID, fn func(Notice)) (stop func(), err error)

	// WatchAll calls fn for the notices that logs of runs have grown, of all tenants. The rules are those of Watch.
	WatchAll(ctx context.Context, fn func(tenant string, run state.RunID)) (stop func(), err error)

	// WatchDeleted calls fn for the notices of Intake.Deleted, of all tenants. The rules are those of Watch.
	WatchDeleted(ctx context.Context, fn func(tenant string, run state.RunID)) (stop func(), err error)

	// Watchers tracks the runs that any process watches with Watch, until Watchers.Stop is called. A worker
	// need not produce live events of a run that no process watches.
	Watchers(ctx context.Context) (Watchers, error)
}

// Notice is a message to a watcher: the log of the run has grown, or a live event.
type Notice struct {
	From, To int64  // log lengths before and after; both are 0 for a live event
	Live     []byte // an encoded live event
}

// Watchers reports which runs have watchers.
type Watchers interface {
	// Watched reports whether any process watches a run. Processes repeat every two seconds which runs they watch,
	// so Watched may report a new watch late if a message is lost. It may report an ended watch for five seconds,
	// and in the first three seconds of the tracking any run, because it does not know the earlier watches yet.
	Watched(run state.RunID) bool

	// Stop ends the tracking. Watched must not be called after Stop.
	Stop()
}

// Feed stores the committed events of runs as messages, for services that read the bus instead of
// the API. It is optional: a deployment must enable it.
type Feed interface {
	// PublishEvents sends events of a run in order, and returns when all are stored, except those that are too large
	// for a message, which it leaves out. An event that it had to send again may be stored after later ones: readers
	// order by Seq. After an error some events may be stored, and the caller may repeat the call: while the server
	// remembers an event's id (its run and Seq), it drops a second copy. PublishEvents and LastEvent return an error
	// if the bus was opened without a feed.
	PublishEvents(ctx context.Context, tenant string, run state.RunID, events []Event) error

	// LastEvent returns the Seq of the run's latest stored event in the feed, or 0 if the feed has none of
	// the run, or no longer has one.
	LastEvent(ctx context.Context, tenant string, run state.RunID) (int64, error)
}

// Event is one encoded event of the feed.
type Event struct {
	Seq  int64
	Type state.EntryType
	At   state.Time
	Data []byte
}

// CloudEventType returns the type of an event in CloudEvents, such as dev.turnpike.run.finished.
func CloudEventType(t state.EntryType) string { return "dev.turnpike." + string(t) }

// CloudEventSource returns the source of the events of a tenant in CloudEvents.
func CloudEventSource(tenant string) string { return "/turnpike/" + tenant }

// HeaderApplied marks an abort whose durable flag was set before it was published. Setting the flag
// again later could end a run that has continued since.
const HeaderApplied = "Turnpike-Applied"

// Abort is a request to end a run.
type Abort struct {
	Run    state.RunID `json:"-"` // in the subject, like Tenant
	Tenant string      `json:"-"` // of the run; a sender may leave it empty for the default tenant
	Reason string      `json:"reason"`

	// Version is the version that the run had when the store recorded the abort. The abort does not apply to turns
	// of later versions, because the run may have continued since. At 0 the abort applies to every version. Aborts
	// sets it to 0 in a message that is not a trusted applied abort (see HeaderApplied), whatever its sender wrote.
	Version int64 `json:"version,omitempty"`

	// Interrupt means that a message with a mode that interrupts (state.Mode) has arrived for the run, and that this
	// Abort must not end the run. The worker then asks the store whether the turn in flight must end. Aborts clears
	// Interrupt whenever it clears Version: the request is then an ordinary abort.
	Interrupt bool `json:"interrupt,omitempty"`
}

// HeaderStatus is a header that NATS servers set on messages of their own.
const HeaderStatus = "Status"

// ParseAbort reads the body of an abort: a JSON object with a reason or a version, or an empty one, or anything that is
// no JSON object, such as text or nothing. Without a readable reason the abort has none. Run and Tenant of the result are empty, and Version and Interrupt are those of the
// sender: the caller must reset these two unless it trusts the message's HeaderApplied. status is the message's
// HeaderStatus.
//
// ParseAbort returns false for a server's response: if status is not empty, or if the body is a JSON object with other
// members but no reason and no version. JetStream sends its responses to any reply subject that a requester names,
// whatever the requester may publish to, so a tenant could otherwise abort another tenant's runs with a submission.
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
	_ = json.Unmarshal(body, &a) // an unreadable reason does not invalidate the abort
	return a, status == ""
}

// AppliesTo reports whether a applies to a turn that was claimed at the given version of its
// run: always if a.Version is 0.
func (a Abort) AppliesTo(version int64) bool { return a.Version == 0 || version <= a.Version }

// Control carries aborts.
type Control interface {
	// PublishAbort notifies all workers of an abort whose durable flag the caller has set in the store.
	// The bus has stored it, with HeaderApplied, when PublishAbort returns nil.
	PublishAbort(ctx context.Context, a Abort) error

	// Aborts calls fn for each abort that is published from now on, by PublishAbort or by a client on the
	// bus, as soon as it arrives. It may miss aborts, and skips messages that ParseAbort refuses;
	// Intake.AbortRequests delivers all. The rules for fn and stop are those of Events.Watch.
	Aborts(ctx context.Context, fn func(Abort)) (stop func(), err error)
}

// Intake is the durable entry point for services that use only the bus.
type Intake interface {
	// OpenTenant lets clients of a tenant publish submissions and aborts. Until then the bus
	// refuses them. The default tenant is always open.
	OpenTenant(ctx context.Context, tenant string) error

	// CloseTenant makes the bus refuse new messages from clients of a tenant. The queues still
	// deliver those that the bus has stored.
	CloseTenant(ctx context.Context, tenant string) error

	// KeepTenants opens tenants, which must be all tenants of the deployment; it may skip one that this process has
	// opened before, although another process has closed it since. Of closed tenants that are not among them it
	// deletes the queues that calls of this process have found empty for some seconds, so the caller must repeat it.
	KeepTenants(ctx context.Context, tenants []string) error

	// IntakeReady returns nil if clients of each tenant can publish submissions and aborts now, as
	// far as the process knows. A bus with many tenants may check only some of them at each call, and
	// the answer may be some seconds old.
	IntakeReady(ctx context.Context) error

	// Submissions and AbortRequests return queues with the messages of all tenants; those of a new tenant may arrive
	// some seconds late. A queue delivers a message to one of all callers in all processes, and again after the ack
	// wait until it is acknowledged. AbortRequests also has the aborts of PublishAbort, which have the header
	// HeaderApplied.
	Submissions(ctx context.Context) (Queue, error)
	AbortRequests(ctx context.Context) (Queue, error)

	// Reply sends data to the reply subject that a submitter of a tenant named. The reply may be lost. The
	// bus drops it, and returns nil, if CheckReply refuses the subject or if the data is too large.
	Reply(ctx context.Context, tenant, subject string, data []byte) error

	// CheckReply returns an error that wraps [ErrReplySubject] if subject may not receive replies of a tenant.
	CheckReply(tenant, subject string) error

	// DeadLetter stores a message that could not be processed, with the cause, as the last letter of
	// its tenant. It may cut d.Data and d.Cause. While the bus remembers a letter whose Kind is Unique,
	// it drops another one with the same Kind, Run and Version without an error; and while it remembers
	// one with a Message, another one with the same Kind and Message, and of a trigger the same Key.
	DeadLetter(ctx context.Context, d DeadLetter) error

	// PurgeRun deletes the stored events of a deleted run, and its dead letters if letters
	// is true.
	PurgeRun(ctx context.Context, tenant string, run state.RunID, letters bool) error

	// Deleted notifies watchers that a run is deleted from the store. The notice may be lost.
	Deleted(tenant string, run state.RunID)

	// DeadLetters returns up to limit dead letters of a tenant whose Seq is above after, oldest first.
	DeadLetters(ctx context.Context, tenant string, after uint64, limit int) ([]DeadLetter, error)
}

// Queue delivers messages one at a time. Its methods follow the rules of TurnQueue.
type Queue interface {
	Next(ctx context.Context) (Message, error)
	Close() error
}

// Message is one message of the intake.
type Message interface {
	// Key returns the last token of the subject: the agent of a submission, the run id of an abort
	// request.
	Key() string

	// Tenant returns the tenant in the subject.
	Tenant() string

	Data() []byte

	// Header returns the value of a header, or "". HeaderApplied is "" unless the bus trusts its sender.
	Header(name string) string

	// ID identifies the message in the queue. It is the same at each delivery and unique over the
	// queue's lifetime; empty if the bus cannot provide it.
	ID() string

	// Delivered, Ack and Nak are as in TurnDelivery.
	Delivered() int
	Ack() error
	Nak(delay time.Duration) error
}

// DeadKind is the kind of message that a dead letter holds.
type DeadKind string

// Replays reports whether the letter concerns an ended run that a replay continues.
func (k DeadKind) Replays() bool { return k == DeadPoisoned || k == DeadInputHook || k == DeadStopHook }

// Unique reports whether a bus drops a second letter of this kind for the same version of a run while it remembers
// the first one (Intake.DeadLetter): a worker sends the letter again after a failure.
func (k DeadKind) Unique() bool { return k.Replays() || k == DeadLost }

// The kinds of dead letters.
const (
	DeadInputHook  DeadKind = "input_hook_failed" // an input hook could not answer; the run has failed
	DeadStopHook   DeadKind = "stop_hook_failed"  // a stop hook could not answer; the run has failed
	DeadPoisoned   DeadKind = "poisoned"          // a turn that was claimed too often; its run has ended
	DeadLost       DeadKind = "lost"              // the store has lost the run
	DeadTurn       DeadKind = "turn"              // a malformed message in the queue of turns
	DeadSubmission DeadKind = "submission"        // refused
	DeadAbort      DeadKind = "abort"             // refused
	DeadWebhook    DeadKind = "webhook"           // an event that its webhook did not take in time
	DeadTrigger    DeadKind = "trigger"           // a message that a trigger could not make a run or a signal of
)

// DeadLetter is a message that could not be processed.
type DeadLetter struct {
	Seq  uint64   `json:"seq"` // set by the bus
	Kind DeadKind `json:"kind"`

	// Tenant of the message; empty is the default tenant.
	Tenant string `json:"tenant,omitempty"`

	Lane  state.Priority `json:"lane"`
	Run   state.RunID    `json:"run_id,omitempty"`
	Cause string         `json:"cause"`
	At    state.Time     `json:"at"`

	// Data is the original message; Cut reports whether it was truncated.
	Data string `json:"data"`
	Cut  bool   `json:"cut,omitempty"`

	// Version and Events are the run's version and log length when it ended, for the kinds of DeadKind.Unique.
	// Events of DeadWebhook is the number of the event. Attempts is the number of claims of the run's last turn without a
	// commit, for DeadPoisoned.
	Version  int64 `json:"version,omitempty"`
	Events   int64 `json:"events,omitempty"`
	Attempts int   `json:"attempts,omitempty"`

	// By is the principal that sent a submission, if known.
	By *state.By `json:"by,omitempty"`

	// Agent, Key and ReplyTo are from the subject and headers of a submission; for a trigger, Key is the trigger's
	// name, and Agent the agent of the run that it would have submitted, if any. Message, if not empty, is the id of
	// the message of a submission or trigger, or the name of a webhook event. By it the bus recognizes a letter that
	// is sent again after a failure, and drops it (on NATS, within two minutes).
	Agent   string `json:"agent,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
}

// Membership lets workers detect a dead worker, and every process the formats that the others can
// read.
type Membership interface {
	// SendHeartbeat publishes that a process is alive, or that it leaves. The message may be lost.
	SendHeartbeat(h Heartbeat)

	// Heartbeats calls fn for every heartbeat received, the caller's own included, except those that fail
	// the bus's check of signatures, if it makes one. The rules for fn and stop are those of Events.Watch.
	Heartbeats(ctx context.Context, fn func(Heartbeat)) (stop func(), err error)
}

// Heartbeat is a periodic message from a worker or a gateway.
type Heartbeat struct {
	Worker  string `json:"worker"`
	Leaving bool   `json:"leaving,omitempty"` // the process has stopped, or a worker has evicted it

	// Stopping means that the worker takes no further turns. Interval is the longest time until its next heartbeat; 0
	// stands for the usual one of a busy worker.
	Stopping bool          `json:"stopping,omitempty"`
	Interval time.Duration `json:"interval,omitempty"`

	// Format is the newest format of runs that the process can read. Gateway marks a gateway, which
	// takes no turns.
	Format  int  `json:"format"`
	Gateway bool `json:"gateway,omitempty"`

	// Slots is the maximum number of turns in flight.
	Slots int `json:"slots,omitempty"`

	// Turns is the number of the worker's turns in flight, by the lane of their messages.
	Turns map[state.Priority]int `json:"turns,omitempty"`

	// Quarantined is the number of turns that the worker has deferred because earlier workers died in them.
	Quarantined int `json:"quarantined,omitempty"`

	// Version is the build that the process reports.
	Version string `json:"version,omitempty"`

	// Store names the kind of store that has the runs of the process, and StoreID identifies the store among those of
	// its kind; each is empty if unknown. The deployment fills them in.
	Store   string `json:"store,omitempty"`
	StoreID string `json:"store_id,omitempty"`

	// Settings are the values of settings that must be the same in every process, by the name of their variable. None
	// of them is a secret. The deployment fills them in.
	Settings map[string]string `json:"settings,omitempty"`
}
