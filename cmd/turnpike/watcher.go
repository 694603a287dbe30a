package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// watcher writes events for people: one line each, and on a terminal the model's
// words as they come.
type watcher struct {
	out      io.Writer
	terminal bool
	midLine  bool
}

func (w *watcher) line(format string, args ...any) {
	if w.midLine {
		fmt.Fprintln(w.out)
		w.midLine = false
	}
	fmt.Fprintf(w.out, format+"\n", args...)
}

func (w *watcher) show(e api.Event) {
	switch e.Type {
	case state.LiveTurnStarted:
		if e.Attempt > 1 {
			w.line("  turn %d · attempt %d on %s", e.Turn, e.Attempt, e.Worker)
		}
	case state.LiveModelDelta:
		if w.terminal && e.Delta != nil && e.Delta.Text != "" {
			fmt.Fprint(w.out, e.Delta.Text)
			w.midLine = true
		}
	case state.LiveToolStarted:
		w.line("  turn %d · %s started on %s", e.Turn, e.Name, e.Worker)
	case state.LiveToolProgress:
		w.line("  turn %d · %s: %s", e.Turn, e.Name, short(e.Progress))
	case state.EntryModel:
		w.response(e)
	case state.EntryTool, state.EntryReused:
		mark := "←"
		if e.IsError {
			mark = "✗"
		}
		w.line("  turn %d %s %s: %s", e.Turn, mark, e.Name, short(content(e.Message)))
	case state.EntryTransition:
		w.transition(e)
	case state.EntryWaiting:
		w.line("  turn %d ⏸ %s", e.Turn, e.Reason)
		if e.Waiting != nil && e.Waiting.Question != "" {
			w.line("           %s", e.Waiting.Question)
		}
	case state.EntryFinished:
		w.line("■ %s (%s)", e.Status, e.Reason)
		if e.Error != nil {
			w.line("  %s: %s", e.Error.Code, e.Error.Message)
		}
		if e.Output != nil && *e.Output != "" {
			w.line("%s", *e.Output)
		}
	case state.EntryWarning, state.EntryExceeded:
		w.line("  turn %d ! %s: %s at %.0f %%", e.Turn, e.Type, e.Limit, e.UsedFraction*100)
	default:
	}
}

func (w *watcher) response(e api.Event) {
	if e.Message == nil {
		return
	}
	if text := e.Message.Text(); text != "" && !w.midLine {
		w.line("  turn %d · %s", e.Turn, short(text))
	}
	for _, c := range e.Message.Calls() {
		w.line("  turn %d → %s %s", e.Turn, c.Name, short(c.Arguments))
	}
}

func (w *watcher) transition(e api.Event) {
	by := ""
	if e.Worker != "" {
		by = " · " + e.Worker
	}
	if e.Detail != "" {
		by += " · " + e.Detail
	}
	w.line("  turn %d ⟳ %s%s", e.Turn, e.Reason, by)
}

func content(m *state.Message) string {
	if m == nil || len(m.Parts) == 0 {
		return ""
	}
	return m.Parts[0].Content
}

// short cuts a text to one line.
func short(s string) string {
	const most = 100
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func messageLines(m api.Message) string {
	var b strings.Builder
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartToolCall:
			fmt.Fprintf(&b, "%-9s → %s %s\n", m.Role, p.Name, p.Arguments)
		case state.PartToolResult:
			fmt.Fprintf(&b, "%-9s ← %s\n", m.Role, p.Content)
			if n := len(p.Images); n > 0 {
				fmt.Fprintf(&b, "%-9s   [%d images]\n", m.Role, n)
			}
		case state.PartText:
			fmt.Fprintf(&b, "%-9s %s\n", m.Role, p.Text)
		default:
			fmt.Fprintf(&b, "%-9s [%s]\n", m.Role, p.Type)
		}
	}
	return b.String()
}
