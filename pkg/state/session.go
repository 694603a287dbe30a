package state

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
func Session(log []Entry) []SessionEvent {
	var events []SessionEvent
	delegated, partners := map[string]bool{}, map[string]bool{}
	for _, e := range log {
		if e.Action == "delegate" {
			partners[e.Target] = true
		}
		if e.Waiting != nil {
			for _, c := range e.Waiting.Calls {
				delegated[c.ID] = delegated[c.ID] || c.RunID != ""
			}
		}
	}
	for _, e := range log {
		for _, m := range e.Messages {
			if m.Role == RoleUser && !m.Synthetic && !e.replaces() {
				events = append(events, SessionEvent{Type: "user_message", Turn: m.Turn, At: m.At, Content: m.Text()})
			}
		}
		switch e.Type {
		case EntryModel:
			for _, c := range e.Message.Calls() {
				call := SessionEvent{Type: "tool_call", Turn: e.Turn, At: e.At, Name: c.Name, CallID: c.ID, Content: c.Arguments}
				if delegated[c.ID] || partners[c.Name] {
					call.Type = "delegation_request"
				}
				events = append(events, call)
			}
		case EntryTool, EntryReused:
			result := SessionEvent{
				Type: "tool_result", Turn: e.Turn, At: e.At, Name: e.Name, CallID: e.CallID, Content: e.Message.Parts[0].Content, IsError: e.IsError,
			}
			if delegated[e.CallID] || partners[e.Name] {
				result.Type = "delegation_response"
			}
			events = append(events, result)
		case EntryFinished:
			if e.Output != nil {
				events = append(events, SessionEvent{Type: "agent_response", Turn: e.Turn, At: e.At, Content: *e.Output})
			}
		default:
		}
	}
	return events
}
