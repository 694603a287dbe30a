package looptest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// write writes the loop's decision.
func (s *script) write() {
	for _, e := range s.s.Log[min(s.written, len(s.s.Log)):] {
		if line := entry(e); line != "" {
			fmt.Fprintf(&s.out, "  + %s\n", line)
		}
	}
	switch effect := s.effect.(type) {
	case loop.CallModel:
		what := "call model"
		if effect.Purpose != loop.ForTurn {
			what += " for a " + string(effect.Purpose)
		}
		if c := effect.ToolChoice; !c.IsZero() {
			what += " (tools: " + cmp.Or(c.Tool, string(c.Mode)) + ")"
		}
		if len(effect.Schema) > 0 {
			what += " by schema"
		}
		fmt.Fprintf(&s.out, "  < %s: %s\n", what, history(effect.Messages))
	case loop.SwitchAgent:
		fmt.Fprintf(&s.out, "  < hand over to %s: %s\n", effect.Agent, effect.Call.ID)
	case loop.RunTools:
		fmt.Fprintf(&s.out, "  < run tools: %s\n", calls(effect.Calls))
	case loop.RunHooks:
		switch {
		case len(effect.Messages) > 0:
			fmt.Fprintf(&s.out, "  < ask hooks (%s): %s\n", effect.Point, history(effect.Messages))
		case len(effect.Calls) > 0:
			fmt.Fprintf(&s.out, "  < ask hooks (%s): %s\n", effect.Point, calls(effect.Calls))
		default:
			fmt.Fprintf(&s.out, "  < ask hooks (%s): %q\n", effect.Point, effect.Output)
		}
	default:
		fmt.Fprintf(&s.out, "  = %s, version %d, turn %d", s.s.Status, s.s.Version, s.s.Turn)
		if names := s.s.Awaits(); len(names) > 0 {
			fmt.Fprintf(&s.out, ", awaits %s", strings.Join(names, " "))
		}
		if due := s.s.Due(); !due.IsZero() {
			fmt.Fprintf(&s.out, ", due in %s", due.Sub(s.now.Time))
		}
		s.out.WriteString("\n")
		s.attempt, s.started, s.results = 0, nil, nil
	}
}

// entry describes one log entry.
func entry(e state.Entry) string {
	line := string(e.Type)
	switch e.Type {
	case state.EntryModel, state.EntryTombstoned:
		if e.Message != nil {
			line += " " + message(*e.Message)
		}
	case state.EntryTool, state.EntryReused:
		line += " " + e.CallID + " " + message(*e.Message)
	case state.EntryDecided:
		line += fmt.Sprintf(" %s %s %s", e.CallID, e.Approval.Decision, e.Approval.Shown)
		if len(e.Approval.Arguments) > 0 {
			line += fmt.Sprintf(" with %s", e.Approval.Arguments)
		}
	case state.EntryProgress:
		line += fmt.Sprintf(" %d %s %s", e.Step, e.Action, e.Target)
	case state.EntryReflect:
		line += fmt.Sprintf(" %s %+.2f to %.4f", e.Assessment, e.ConfidenceDelta, *e.Confidence)
	case state.EntryWarning, state.EntryExceeded:
		line += fmt.Sprintf(" %s %.2f", e.Limit, e.UsedFraction)
	case state.EntryHandoff:
		line += fmt.Sprintf(" %s@%d to %s@%d, replaces %d", e.Handoff.From.Name, e.Handoff.From.Version, e.Handoff.To.Name, e.Handoff.To.Version, len(e.MessageIDs))
	case state.EntryCompacted:
		line += fmt.Sprintf(" %d messages", len(e.MessageIDs))
	default:
		line += " " + string(e.Reason)
		if e.Detail != "" {
			line += ": " + e.Detail
		}
		if e.Output != nil {
			line += fmt.Sprintf(" %q", *e.Output)
		}
		if len(e.StructuredOutput) > 0 {
			line += " = " + string(e.StructuredOutput)
		}
	}
	for _, m := range e.Messages {
		line += fmt.Sprintf("\n    %s %s", m.Role, message(m))
	}
	return line
}

// message describes the parts of a message.
func message(m state.Message) string {
	var parts []string
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartToolCall:
			parts = append(parts, fmt.Sprintf("→ %s %s %s", p.ID, p.Name, p.Arguments))
		case state.PartToolResult:
			text := fmt.Sprintf("%q", short(p.Content))
			if p.IsError {
				text = "error " + text
			}
			parts = append(parts, text)
		default:
			parts = append(parts, fmt.Sprintf("%q", short(p.Text)))
		}
	}
	return strings.Join(parts, " ")
}

func short(text string) string {
	if len(text) <= 160 {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:100], len(text))
}

// history describes the messages that a model reads: their roles, and the last one in full.
func history(messages []state.Message) string {
	var roles []string
	for _, m := range messages {
		roles = append(roles, string(m.Role))
	}
	line := strings.Join(roles, " ")
	if n := len(messages); n > 0 {
		line += " " + message(messages[n-1])
	}
	return line
}

func calls(list []state.OpenCall) string {
	var out []string
	for _, c := range list {
		line := fmt.Sprintf("%s %s %s", c.ID, c.Name, c.Arguments)
		if c.Answer != nil {
			line += fmt.Sprintf(" %s answered %q", c.AskState, *c.Answer)
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}
