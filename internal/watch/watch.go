// Package watch writes the events of a run for people.
package watch

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Printer writes events: one line each, and on a terminal the model's words as they
// come. It may not be used by several goroutines at once.
type Printer struct {
	Out      io.Writer
	Terminal bool

	// Colour marks lines by what they say. It needs an Out of Plain.
	Colour bool

	// Indent stands before each line: that of a child run is deeper than its parent's.
	Indent string

	midLine bool

	// streamed is what the terminal has of the response that is being written.
	streamed strings.Builder

	// answer is a response without calls that is not printed yet: it may be the run's
	// output, which is printed in full at the end.
	answer     string
	answerTurn int
}

func (p *Printer) line(format string, args ...any) {
	if p.midLine {
		fmt.Fprintln(p.Out)
		p.midLine = false
	}
	fmt.Fprintf(p.Out, p.Indent+format+"\n", args...)
}

// The colours of lines, as terminals number them.
type colour string

const (
	good    colour = "32"
	bad     colour = "31"
	caution colour = "33"
	faint   colour = "2"
)

// paint writes a line in a colour.
func (p *Printer) paint(c colour, format string, args ...any) {
	out, ok := p.Out.(*plain)
	if !p.Colour || !ok {
		p.line(format, args...)
		return
	}
	if p.midLine {
		fmt.Fprintln(p.Out)
		p.midLine = false
	}
	out.style(string(c))
	fmt.Fprintf(out, p.Indent+format, args...)
	out.style("0")
	fmt.Fprintln(out)
}

// Show writes one event.
func (p *Printer) Show(e api.Event) {
	if e.Type == state.EntryFinished {
		p.finished(e)
		return
	}
	if p.answer != "" {
		p.line("  turn %d · %s", p.answerTurn, short(p.answer))
		p.answer = ""
	}
	switch e.Type {
	case state.LiveTurnStarted:
		p.streamed.Reset()
		if e.Attempt > 1 {
			p.paint(caution, "  turn %d · attempt %d on %s", e.Turn, e.Attempt, e.Worker)
		}
	case state.LiveModelDelta:
		if p.Terminal && e.Delta != nil && e.Delta.Text != "" {
			fmt.Fprint(p.Out, e.Delta.Text)
			p.streamed.WriteString(e.Delta.Text)
			p.midLine = true
		}
	case state.LiveToolStarted:
		p.paint(faint, "  turn %d · %s started on %s", e.Turn, e.Name, e.Worker)
	case state.LiveToolProgress:
		p.paint(faint, "  turn %d · %s: %s", e.Turn, e.Name, short(e.Progress))
	case state.EntryModel:
		p.response(e)
	case state.EntryTool, state.EntryReused:
		if e.IsError {
			// Print the error in full, because the remedy is often at its end.
			p.paint(bad, "  turn %d ✗ %s: %s", e.Turn, e.Name, oneLine(content(e.Message)))
			break
		}
		p.line("  turn %d ← %s: %s", e.Turn, e.Name, short(content(e.Message)))
	case state.EntryTransition:
		p.transition(e)
	case state.EntryDecided:
		p.decided(e)
	case state.EntryProgress:
		p.line("  turn %d · step %d: %s %s", e.Turn, e.Step, e.Action, short(e.Target))
	case state.EntryReflect:
		p.reflected(e)
	case state.EntryWaiting:
		text := fmt.Sprintf("  turn %d ⏸ %s", e.Turn, e.Reason)
		if e.Detail != "" {
			text += " · " + short(e.Detail)
		}
		if e.Waiting != nil && e.Reason == state.WaitingSchedule {
			text += " · continues at " + e.Waiting.ExpiresAt.Local().Format(time.TimeOnly)
		}
		p.paint(caution, "%s", text)
		if e.Waiting != nil && e.Reason == state.WaitingApproval {
			for _, c := range e.Waiting.Calls {
				if c.Needs == state.NeedApproval {
					p.line("           %s %s%s", c.Tool, oneLine(string(c.Arguments)), risk(c))
					if c.Again != nil {
						p.line("           the model's arguments were %s", oneLine(string(c.Again.OriginalArguments)))
					}
					for _, text := range Provenance(c.ArgsFromUntrusted, c.Sources) {
						p.paint(caution, "           ! %s", oneLine(text))
					}
				}
			}
		}
		if e.Waiting != nil && e.Waiting.Question != "" {
			p.line("           %s", e.Waiting.Question)
		}
	case state.EntryWarning, state.EntryExceeded:
		p.paint(caution, "  turn %d ! %s: %s at %.0f %%", e.Turn, e.Type, e.Limit, e.UsedFraction*100)
	default:
	}
}

// finished writes how the run ended, and its output unless the terminal has it.
func (p *Printer) finished(e api.Event) {
	output := ""
	if e.Output != nil {
		output = *e.Output
	}
	if p.answer != "" && p.answer != output {
		p.line("  turn %d · %s", p.answerTurn, short(p.answer))
	}
	p.answer = ""
	c := bad
	switch e.Status {
	case state.Completed:
		c = good
	case state.Incomplete, state.Cancelled:
		c = caution
	default:
	}
	p.paint(c, "■ %s (%s)", e.Status, e.Reason)
	switch {
	case e.Error != nil:
		p.paint(c, "  %s: %s", e.Error.Code, e.Error.Message)
	case e.Detail != "":
		p.paint(c, "  %s", e.Detail)
	}
	switch {
	case output == "" || output == p.streamed.String():
	case p.Indent != "":
		p.line("  %s", short(output)) // it is the result of the parent's call
	default:
		p.line("%s", output)
	}
}

func (p *Printer) response(e api.Event) {
	if e.Message == nil {
		return
	}
	if text := e.Message.Text(); text != "" && !p.midLine {
		if len(e.Message.Calls()) == 0 {
			p.answer, p.answerTurn = text, e.Turn
			return
		}
		p.line("  turn %d · %s", e.Turn, short(text))
	}
	for _, c := range e.Message.Calls() {
		p.line("  turn %d → %s %s", e.Turn, c.Name, short(c.Arguments))
	}
}

func (p *Printer) transition(e api.Event) {
	by := ""
	if e.Worker != "" {
		by = " · " + e.Worker
	}
	if e.Detail != "" {
		by += " · " + e.Detail
	}
	c := faint
	if e.Reason == state.Recovered || e.Reason == state.ModelRetry || e.Reason == state.ModelFallback {
		c = caution
	}
	p.paint(c, "  turn %d ⟳ %s%s", e.Turn, e.Reason, by)
}

// risk returns the risk of a call as its tool declares it, or "".
func risk(c state.WaitCall) string {
	if c.Risk == "" {
		return ""
	}
	return " · " + c.Risk
}

// Provenance returns a warning for the approver of a call that its arguments may come
// from an untrusted source.
func Provenance(fromUntrusted bool, sources []state.ArgumentSource) []string {
	if !fromUntrusted {
		return nil
	}
	if len(sources) == 0 {
		return []string{"its arguments may come from tools, the web or other agents"}
	}
	lines := make([]string, len(sources))
	for i, s := range sources {
		lines[i] = s.String()
	}
	return lines
}

// decided writes who decided what about a call.
func (p *Printer) decided(e api.Event) {
	if e.Approval == nil {
		return
	}
	verdict, c := "approved", faint
	if e.Approval.Decision == state.Deny {
		verdict, c = "denied", caution
	}
	if e.By != nil {
		verdict += " by " + e.By.Principal
	}
	if e.Approval.Expired {
		verdict += ": no decision in time"
	}
	text := fmt.Sprintf("  turn %d · %s %s %s", e.Turn, e.Name, short(string(e.Approval.Shown)), verdict)
	if len(e.Approval.Arguments) > 0 {
		text += " as " + short(string(e.Approval.Arguments))
	}
	if e.Approval.Reason != "" {
		text += ": " + oneLine(e.Approval.Reason)
	}
	p.paint(c, "%s", text)
}

// reflected writes what a reflection found.
func (p *Printer) reflected(e api.Event) {
	text := fmt.Sprintf("  turn %d · reflection", e.Turn)
	if e.Confidence != nil {
		text += fmt.Sprintf(": confidence %.2f (%+.2f)", *e.Confidence, e.ConfidenceDelta)
	}
	if e.Assessment != "" {
		text += " · " + short(e.Assessment)
	}
	p.line("%s", text)
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
	s = oneLine(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
