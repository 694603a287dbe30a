package state

import (
	"iter"
	"slices"
	"strings"
)

// SessionEvent is one step of a conversation, in the words of its participants (K6).
type SessionEvent struct {
	Type    string `json:"type"` // user_message, tool_call, tool_result, delegation_request, delegation_response, agent_response
	Turn    int    `json:"turn"`
	At      Time   `json:"at"`
	Name    string `json:"name,omitempty"`
	CallID  string `json:"call_id,omitempty"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
}

// Session returns the events of a log in the terms of a session, in their order.
func Session(log []Entry) []SessionEvent { return slices.Collect(SessionEvents(slices.Values(log))) }

// SessionEvents is Session for a log that a caller reads piece by piece. It reads the log twice, and keeps no entry in
// memory.
func SessionEvents(log iter.Seq[Entry]) iter.Seq[SessionEvent] {
	return func(yield func(SessionEvent) bool) {
		delegated, partners := map[string]bool{}, map[string]bool{}
		for e := range log {
			if e.Action == "delegate" {
				partners[strings.Clone(e.Target)] = true
			}
			if e.Waiting == nil {
				continue
			}
			for _, c := range e.Waiting.Calls {
				if c.RunID != "" {
					delegated[strings.Clone(c.ID)] = true
				}
			}
		}
		for e := range log {
			for event := range sessionEvents(e) {
				switch {
				case !delegated[event.CallID] && !partners[event.Name]:
				case event.Type == sessionCall:
					event.Type = "delegation_request"
				case event.Type == sessionResult:
					event.Type = "delegation_response"
				}
				if !yield(event) {
					return
				}
			}
		}
	}
}

const (
	sessionCall   = "tool_call"
	sessionResult = "tool_result"
)

// sessionEvents returns the events of one entry, as if no call were a delegation.
func sessionEvents(e Entry) iter.Seq[SessionEvent] {
	return func(yield func(SessionEvent) bool) {
		for _, m := range e.Messages {
			if m.Role == RoleUser && !m.Synthetic && !e.replaces() && !yield(SessionEvent{Type: "user_message", Turn: m.Turn, At: m.At, Content: m.Text()}) {
				return
			}
		}
		switch e.Type {
		case EntryModel:
			for _, c := range e.Message.Calls() {
				if !yield(SessionEvent{Type: sessionCall, Turn: e.Turn, At: e.At, Name: c.Name, CallID: c.ID, Content: c.Arguments}) {
					return
				}
			}
		case EntryTool, EntryReused:
			yield(SessionEvent{
				Type: sessionResult, Turn: e.Turn, At: e.At, Name: e.Name, CallID: e.CallID, Content: e.Message.Parts[0].Content, IsError: e.IsError,
			})
		case EntryFinished:
			if e.Output != nil {
				yield(SessionEvent{Type: "agent_response", Turn: e.Turn, At: e.At, Content: *e.Output})
			}
		default:
		}
	}
}
