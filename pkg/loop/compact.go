package loop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// clipTo is the maximum size, in bytes, of each text that a compaction shortens.
const clipTo = 4000

// summarise is the prompt for the summary.
const summarise = "Summarise the conversation so far for somebody who has to continue it without having read it: the task and its constraints, " +
	"what was found out (with exact names, numbers and identifiers), what was done and with which result, what is left to do. Answer with the summary alone."

// compactable reports whether the loop has a history that can be shortened: a single call has
// only the submission.
func (t *Turn) compactable() bool { return t.agent != nil && t.agent.Loop.Type != "single_call" }

// windowFull reports whether the history fills the share of the model's window at
// which it is compacted ahead of time (A18).
func (t *Turn) windowFull() bool {
	c := t.agent.Compaction
	if c == nil || c.At == 0 {
		return false
	}
	used := windowOf(t.s.Log)
	return used > 0 && float64(used) >= c.At*float64(c.Window) && t.plan().saves
}

// windowOf returns the tokens of the last prompt and its response; 0 if they are not known, or if the history was
// compacted since.
func windowOf(log []state.Entry) int64 {
	for i := range slices.Backward(log) {
		switch e := &log[i]; e.Type {
		case state.EntryCompacted:
			return 0
		case state.EntryModel:
			if e.Usage == nil {
				return 0
			}
			return e.Usage.InputTokens + e.Usage.OutputTokens
		case state.EntryCheckpoint:
			if i == 0 {
				return e.Checkpoint.Window
			}
		default:
		}
	}
	return 0
}

// compactOr compacts the history and decides with then, or first asks a model for
// the summary if the agent wants one.
func (t *Turn) compactOr(then func(*Turn) Decision) Decision {
	p := t.plan()
	if c := t.agent.Compaction; c != nil && c.Summarize && len(p.cut) > 0 {
		ask := slices.Concat(p.head, clipAll(p.cut), []state.Message{state.UserText(summarise)})
		return Decision{Next: &t.s, Effect: CallModel{Messages: ask, Purpose: ForSummary, Quiet: true}}
	}
	t.compact(p, p.remark(), state.Entry{}, "")
	return then(t)
}

// summarised replaces the history by the summary that a model wrote.
func (t *Turn) summarised(ev ModelResponded, proceed func(*Turn) Decision) Decision {
	p := t.plan()
	u := ev.Response.Usage
	u.ModelCalls = 1
	t.lose(ev.Lost)
	t.s.ModelRequests += ev.Failed
	text := (state.Message{Parts: ev.Response.Parts}).Text()
	if strings.TrimSpace(text) == "" {
		text = p.remark()
	} else {
		text = "[Summary of the earlier conversation]\n" + text
	}
	t.compact(p, text, state.Entry{Usage: &u}, origin(p.cut))
	return t.afterCompaction(proceed)
}

// unsummarised compacts without a summary, because the model call for it failed.
func (t *Turn) unsummarised(ev ModelFailed, proceed func(*Turn) Decision) Decision {
	t.lose(ev.Lost)
	t.withdraw("", ev.Spent) // no reader has seen the text
	t.s.ModelRequests += ev.Failed
	p := t.plan()
	t.compact(p, p.remark(), state.Entry{Detail: "no summary: " + ev.Err.Message}, "")
	return t.afterCompaction(proceed)
}

// afterCompaction continues from where the compaction began: before the turn's model call, or
// after one whose prompt was too long.
func (t *Turn) afterCompaction(proceed func(*Turn) Decision) Decision {
	if t.reacting() {
		return t.move(state.ReactiveCompactRetry, state.Entry{Detail: "prompt too long"})
	}
	return proceed(t)
}

// reacting reports whether the compaction in flight answers a prompt that was too
// long.
func (t *Turn) reacting() bool { return t.s.Compacted && !t.compactedBefore() }

// compactedBefore reports whether the run has already continued after its reactive compaction, the one
// after a prompt that was too long; any compaction since is made ahead of time. A user message or a handoff allows
// the run a new reactive compaction, and so does progress if compaction.reactive of the agent is progress.
func (t *Turn) compactedBefore() bool {
	return reacted(t.s.Log) && (!t.agent.CompactsAnew() || !progressed(t.s.Log))
}

// reacted reports whether the run has continued after its reactive compaction since the last user message or handoff.
func reacted(log []state.Entry) bool {
	for i := range slices.Backward(log) {
		e := &log[i]
		switch {
		case e.Reason == state.ReactiveCompactRetry:
			return true
		case e.Type == state.EntryHandoff, e.Type != state.EntryCompacted && saidByUser(e.Messages):
			return false
		case i == 0 && e.Checkpoint != nil:
			return e.Checkpoint.Reacted
		}
	}
	return false
}

// progressed reports whether, since the latest reactive compaction, the model has accepted a prompt
// and a tool call has returned. A call that did not run, such as a denied one, is not progress.
func progressed(log []state.Entry) bool {
	r := reaction(log)
	return r != nil && r.Answered && r.Returned
}

// reaction returns what happened since the latest reactive compaction; nil without one.
func reaction(log []state.Entry) *state.Reaction {
	var r state.Reaction
	for i := range slices.Backward(log) {
		e := &log[i]
		switch {
		case e.Reason == state.ReactiveCompactRetry:
			return &r
		case e.Type == state.EntryModel:
			r.Answered = true
		case e.Type == state.EntryTool || e.Type == state.EntryReused:
			r.Returned = r.Returned || e.Message == nil || !e.Message.Synthetic
		case i == 0 && e.Checkpoint != nil && e.Checkpoint.Reaction != nil:
			before := e.Checkpoint.Reaction
			return &state.Reaction{Answered: r.Answered || before.Answered, Returned: r.Returned || before.Returned}
		}
	}
	return nil
}

// plan describes a compaction of a view: head stays, a remark replaces cut, and kept follows,
// with long messages clipped.
type plan struct {
	head, cut, kept []state.Message

	// task is the first message if it is too long to stay unchanged: it is the beginning of
	// cut, and a clipped copy replaces it.
	task []state.Message

	saves bool
}

// plan keeps the instructions, the first message and the latest messages, and never separates
// a call from its result.
func (t *Turn) plan() plan {
	view := state.View(t.s.Log)
	head := 0
	for head < len(view) && view[head].Role == state.RoleSystem {
		head++
	}
	var task []state.Message
	if head < len(view) && view[head].Role == state.RoleUser {
		if long(view[head]) {
			task = view[head : head+1]
		} else {
			head++
		}
	}
	// The tail is made of whole groups: a message with the results that follow it.
	tail, groups := len(view), t.agent.KeepGroups()
	for tail > head && groups > 0 {
		tail--
		if view[tail].Role != state.RoleTool {
			groups--
		}
	}
	p := plan{head: view[:head], cut: view[head:tail], kept: view[tail:]}
	if len(p.cut) > 0 {
		p.task = task
	}
	p.saves = len(p.cut) > 1 || slices.ContainsFunc(p.kept, long)
	return p
}

// remark returns a text that describes the messages cut.
func (p plan) remark() string {
	if len(p.cut) == 0 {
		return ""
	}
	calls := map[string]int{}
	var names []string
	for _, m := range p.cut {
		for _, c := range m.Calls() {
			if calls[c.Name]++; calls[c.Name] == 1 {
				names = append(names, c.Name)
			}
		}
	}
	text := fmt.Sprintf("[%d earlier messages were removed to fit the model's context.", len(p.cut))
	if len(names) > 0 {
		for i, n := range names {
			names[i] = fmt.Sprintf("%s (%d)", n, calls[n])
		}
		text += " They had calls of " + strings.Join(names, ", ") + "."
	}
	if last := slices.IndexFunc(p.cut, func(m state.Message) bool { return m.Role == state.RoleAssistant && m.Text() != "" }); last >= 0 {
		for _, m := range slices.Backward(p.cut) {
			if m.Role == state.RoleAssistant && m.Text() != "" {
				text += " The last words among them: " + clip(m.Text())
				break
			}
		}
	}
	return text + "]"
}

// origin returns the origin of a text made from messages: the least trusted origin among
// their parts.
func origin(messages []state.Message) state.Origin {
	var farthest state.Origin
	for _, m := range messages {
		for i := range m.Parts {
			farthest = farthest.Farther(m.Parts[i].Source())
		}
	}
	return farthest
}

// compact appends the entry that replaces messages in the view. The origin is that of the
// remark.
func (t *Turn) compact(p plan, remark string, e state.Entry, of state.Origin) {
	e.Type = state.EntryCompacted
	gone := p.cut
	if slices.ContainsFunc(p.kept, long) {
		gone = slices.Concat(p.cut, p.kept)
	}
	e.Messages = clipAll(p.task)
	if remark != "" {
		m := state.UserText(remark)
		m.Synthetic = true
		m.Parts[0].Origin = of
		e.Messages = append(e.Messages, m)
	}
	if len(gone) > len(p.cut) {
		e.Messages = append(e.Messages, clipAll(p.kept)...)
	}
	for _, m := range gone {
		e.MessageIDs = append(e.MessageIDs, m.ID)
	}
	for i := range e.Messages {
		turn := e.Messages[i].Turn
		t.stamp(&e.Messages[i], i)
		if turn > 0 {
			e.Messages[i].Turn = turn
		}
	}
	if len(gone) > 0 {
		t.append(&e)
	}
}

func long(m state.Message) bool {
	return slices.ContainsFunc(m.Parts, func(p state.Part) bool { return len(p.Text) > clipTo || len(p.Content) > clipTo || keeps(p) })
}

// keeps reports whether a use of a provider's tool has long blocks to send back.
func keeps(p state.Part) bool { return p.Type == state.PartProviderTool && len(p.Opaque) > clipTo }

// clipAll returns messages with each long text cut in the middle. It marks the messages that
// it cut as synthetic, because no user or model wrote them in that form.
func clipAll(messages []state.Message) []state.Message {
	out := slices.Clone(messages)
	for i, m := range out {
		if !long(m) {
			continue
		}
		out[i].Synthetic = true
		out[i].Parts = slices.Clone(m.Parts)
		for j := range out[i].Parts {
			p := &out[i].Parts[j]
			if len(p.Text) > clipTo && p.Type == state.PartThinking {
				p.Opaque, p.OpaqueBy = nil, "" // a signature of the whole
			}
			if keeps(*p) {
				p.Opaque, p.OpaqueBy = nil, "" // the model reads the content as text
			}
			p.Text, p.Content = clip(p.Text), clip(p.Content)
		}
	}
	return out
}

// clip keeps the beginning and the end of a text.
func clip(s string) string {
	if len(s) <= clipTo {
		return s
	}
	head, tail := strings.ToValidUTF8(s[:clipTo*3/4], ""), strings.ToValidUTF8(s[len(s)-clipTo/4:], "")
	return fmt.Sprintf("%s\n[... %d of %d bytes removed ...]\n%s", head, len(s)-len(head)-len(tail), len(s), tail)
}
