package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Decided is the content of an approval.decided entry: the call as the approver saw it, and the
// decision.
type Decided struct {
	Decision Decision `json:"decision"`

	// Hash identifies the call. Shown are its arguments at the time of the decision.
	Hash  string          `json:"hash"`
	Shown json.RawMessage `json:"shown"`

	// Arguments that replace Shown, if the approver edited them.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Reason    string          `json:"reason,omitempty"`

	// Expired reports that no decision arrived in time, which denies the call. Any other end of the run denies
	// it with the reason of the end as Reason.
	Expired bool `json:"expired,omitempty"`
}

// RawArguments returns Arguments as valid JSON in every case: without white space if they are a JSON object,
// else as a JSON string.
func (o OpenCall) RawArguments() json.RawMessage {
	if c, ok := CompactObject(o.Arguments); ok {
		return json.RawMessage(c)
	}
	quoted, err := json.Marshal(o.Arguments)
	if err != nil {
		return json.RawMessage("null")
	}
	return quoted
}

// ApprovalHash returns 32 hexadecimal digits that identify the tenant, the run, its turn, the call, its tool
// and its arguments, as OpenCall.RawArguments returns them.
func (s *State) ApprovalHash(call, tool string, arguments json.RawMessage) string {
	h := sha256.New()
	for _, part := range []string{s.Tenant, string(s.ID), strconv.Itoa(s.Turn), call, tool, string(arguments)} {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLen]
}

const (
	shownPrefix = "shown:"
	hashLen     = 32
)

// AwaitApprovalHash returns the name of the wait for a decision about exactly the call with this id
// and this hash. This wait is in addition to that of the call itself. For a string that cannot be a
// hash it returns a name that no open wait has.
func AwaitApprovalHash(call, hash string) string {
	if len(hash) != hashLen || strings.Contains(hash, ":") {
		hash = "none"
	}
	return shownPrefix + hash + ":" + call
}

// AwaitsApprovalHash reports whether AwaitApprovalHash returned name.
func AwaitsApprovalHash(name string) bool { return strings.HasPrefix(name, shownPrefix) }

const unhashedPrefix = "unhashed:"

// AwaitUnhashed returns the name of the wait for a decision that gives only the id of a call.
func AwaitUnhashed(call string) string { return unhashedPrefix + call }

// AwaitsUnhashed reports whether AwaitUnhashed returned name.
func AwaitsUnhashed(name string) bool { return strings.HasPrefix(name, unhashedPrefix) }

// Accepts returns the names of the waits that a store opens for s: those of Awaits and, unless s has ended, for
// each call that needs approval one of AwaitApprovalHash. If the run has had no decision yet about
// the id of such a call, the call also has one of AwaitUnhashed. A store accepts a decision only if
// all its Signal.Names are open. Accepts reads the log, so s must carry it from its checkpoint on.
func (s *State) Accepts() []string {
	names := s.Awaits()
	if s.Status.Terminal() {
		return names
	}
	for _, o := range s.Open {
		if o.Needs != NeedApproval {
			continue
		}
		names = append(names, AwaitApprovalHash(o.ID, s.ApprovalHash(o.ID, o.Name, o.RawArguments())))
		if !s.decidedBefore(o.ID) {
			names = append(names, AwaitUnhashed(o.ID))
		}
	}
	return names
}

// decidedBefore reports whether the log has a decision about a call with this id. Providers repeat
// call ids, so the id alone may refer to the earlier call.
func (s *State) decidedBefore(call string) bool {
	if c := CheckpointOf(s.Log); c != nil && slices.Contains(c.Decided, call) {
		return true
	}
	return slices.ContainsFunc(s.Log, func(e Entry) bool { return e.Type == EntryDecided && e.CallID == call })
}
