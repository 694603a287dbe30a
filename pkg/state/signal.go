package state

import (
	"cmp"
	"strings"
)

// Signal is a message to a run from outside. It stays in the run's inbox until a turn consumes it.
type Signal struct {
	// ID makes repeated signals count once. Stores keep the keys (see Key) of a run's last 1,000
	// signals.
	ID string `json:"id"`

	// From separates the ids of senders who must not use each other's: "token USER", "hook NAME" or
	// "trigger NAME". It is empty for API keys and clients of the bus, who share a tenant's ids.
	From string `json:"-"`

	// Fingerprint identifies the content that was sent under ID. If that of either signal is empty, two
	// signals with the same Key count as the same.
	Fingerprint string `json:"-"`

	// At most one of these is set; none is in a signal with Refused, Start or Replay.
	Approvals   []Approval     `json:"approvals,omitempty"`
	ToolResults []SignalResult `json:"tool_results,omitempty"`
	Answer      *string        `json:"answer,omitempty"`
	Message     *Message       `json:"message,omitempty"`
	Child       *ChildResult   `json:"child,omitempty"`

	// Mode says what the Message does to a run that is busy; empty for other signals.
	Mode Mode `json:"mode,omitempty"`

	// Basis, if not nil, is the state of the run that the sender has read and decided on: a store that
	// finds the run in another state refuses the signal with ErrMoved.
	Basis *Basis `json:"-"`

	// Refused are the results of calls whose child runs were refused.
	Refused []ChildResult `json:"refused,omitempty"`

	// Start lets a run start that is pending in its batch. Only workers send such a signal.
	Start bool `json:"start,omitempty"`

	// Replay resumes a run that failed with a Poison: it is the version of that end.
	Replay int64 `json:"replay,omitempty"`

	// FourEyes reports whether the sender's tenant requires four eyes: a call whose arguments an
	// approval edits waits until another person approves them.
	FourEyes bool `json:"four_eyes,omitempty"`

	// By is the sender.
	By *By `json:"by,omitempty"`

	// Requesters lists, each once, the principals other than By who request what the signal does: the principal that
	// last stored the hook or the trigger that sends it.
	Requesters []string `json:"asked,omitempty"`

	At Time `json:"at"`
}

// Mode says what a message does to a run that is busy.
type Mode string

// The modes.
const (
	// Enqueue leaves the message to the run's next turn.
	Enqueue Mode = ""

	// Interrupt aborts the turn in flight, and answers all open calls: the next turn begins with
	// the message.
	Interrupt Mode = "interrupt"

	// Rollback does what Interrupt does, and withdraws the turn in flight: the model reads neither its
	// response nor the results of its calls. A sender must use it with a Basis, and only if no call
	// of the turn can have started.
	Rollback Mode = "rollback"

	// Reject makes the store refuse the message with a *BusyError while the run is Queued or
	// Running.
	Reject Mode = "reject"
)

// Interrupts reports whether a message of the mode aborts the turn in flight.
func (m Mode) Interrupts() bool { return m == Interrupt || m == Rollback }

// Basis is a state of a run: each journaled entry, each commit, and each change of the status leads to another one. A
// claim that replaces another worker's lease does not: the run stays Running. A Basis can recur: a run whose lease
// ended without a journaled entry is Queued, and after the next claim Running, with the same Version and LogLen.
type Basis struct {
	Status  Status
	Version int64
	LogLen  int64 // journaled entries included
}

// InterruptClosesWait reports whether a message that interrupts the run closes the wait with this
// name, because the message answers all open calls. It is false only for AwaitStart and AwaitReplay.
func InterruptClosesWait(name string) bool {
	return name != AwaitStart && !strings.HasPrefix(name, replayPrefix)
}

// Decision on a tool call.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Deny    Decision = "deny"
)

// Approval decides about one call that waits for it.
type Approval struct {
	CallID   string   `json:"call_id"`
	Decision Decision `json:"decision"`

	// Arguments, if not empty, replace those of the call: a JSON object.
	Arguments string `json:"arguments,omitempty"`
	Reason    string `json:"reason,omitempty"`

	// Hash identifies the call that the approver saw (State.ApprovalHash): the store refuses the
	// signal if another call waits under the same id. Without a hash the store refuses the signal if
	// the run has already had a decision about that id.
	Hash string `json:"hash,omitempty"`
}

// SignalResult is the result of a call that an external process made.
type SignalResult struct {
	CallID  string `json:"call_id"`
	Content string `json:"content"`
	IsError bool   `json:"is_error"`

	Images []Image `json:"images,omitempty"`
	Files  []Part  `json:"files,omitempty"`
}

// ChildResult is the result of a child run.
type ChildResult struct {
	CallID  string `json:"call_id"`
	RunID   RunID  `json:"run_id"`
	Content string `json:"content"`
	IsError bool   `json:"is_error"`
	Usage   Usage  `json:"usage"`

	// Requesters lists, each once, the principals who requested something in the child run or one
	// of its descendants.
	Requesters []string `json:"asked,omitempty"`
}

// Key returns the name that a store records for s. Each id belongs to a namespace: one for the signals
// that only Turnpike sends (results of children, starts and replays), one for each From, and one that all senders
// without From share. So no sender can take an id of Turnpike's, or of a sender with another From.
func (s Signal) Key() string {
	if s.Child != nil || len(s.Refused) > 0 || s.Start || s.Replay != 0 {
		return "turnpike " + s.ID
	}
	return cmp.Or(s.From, "user") + " " + s.ID
}

// Names returns the names of the waits that s answers. A store accepts s only if all of them are open. A
// user message answers none, so no wait restricts it.
func (s Signal) Names() []string {
	var names []string
	for _, a := range s.Approvals {
		names = append(names, AwaitCall(NeedApproval, a.CallID))
		if a.Hash != "" {
			names = append(names, AwaitApprovalHash(a.CallID, a.Hash))
		} else {
			names = append(names, AwaitUnhashed(a.CallID))
		}
	}
	for _, r := range s.ToolResults {
		names = append(names, AwaitCall(NeedResult, r.CallID))
	}
	if s.Child != nil {
		names = append(names, AwaitCall(NeedChild, s.Child.CallID))
	}
	for _, r := range s.Refused {
		names = append(names, AwaitCall(NeedChild, r.CallID))
	}
	if s.Answer != nil {
		names = append(names, AwaitAnswer)
	}
	if s.Start {
		names = append(names, AwaitStart)
	}
	if s.Replay != 0 {
		names = append(names, AwaitReplay(s.Replay))
	}
	return names
}
