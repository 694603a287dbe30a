package loop

import (
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Checkpoint returns s with a checkpoint at the end of its log, for the beginning of a turn: the turns
// that follow read the log from there. It returns false, and s unchanged, if the log is empty, or where later decisions
// need entries from before: while the last response has open calls or was not decided about, while the run
// recovers within a turn or can be replayed, and while input hooks have not decided about a message.
func Checkpoint(s state.State, a *agent.Agent, at state.Time) (state.State, bool) {
	t := &Turn{s: s, at: at, agent: a}
	if len(s.Log) == 0 || len(s.Open) > 0 || s.ResponsePending || s.ContinueTurn || s.Poison != nil ||
		len(a.Hooks(hook.Input)) > 0 && len(t.uncheckedInput()) > 0 {
		return s, false
	}
	c := state.NewCheckpoint(&s)
	c.Largest, c.Text, c.Window, c.Same = largestCall(s.Log), lastText(s.Log), windowOf(s.Log), sameCalls(s.Log, mostSame)
	c.Errors, c.ToolLast = recentErrors(s.Log), lastIsTool(s.Log)
	c.Responded, c.Reacted, c.Retries, c.Reaction = respondedTo(s.Log), reacted(s.Log), retries(s.Log), reaction(s.Log)
	c.CalledAt = state.Time{Time: CalledAt(s.Log)}
	c.Answer = LastAnswer(s.Log)
	c.Calls = allMade(s.Log)
	t.seenFiles(c)
	t.append(&state.Entry{Type: state.EntryCheckpoint, Checkpoint: c})
	return t.s, true
}

// mostSame is the number of responses in a row with the same calls that a checkpoint counts. No sensible
// tool_loop_threshold exceeds it.
const mostSame = 1000

// allMade returns the number of calls that were made, by the name of the tool.
func allMade(log []state.Entry) map[string]int {
	calls := map[string]int{}
	if c := state.CheckpointOf(log); c != nil {
		maps.Copy(calls, c.Calls)
	}
	for i := range log {
		if e := &log[i]; e.Type == state.EntryTool && !e.Message.Synthetic {
			calls[e.Name]++
		}
	}
	return calls
}

// seenFiles adds what the run has read with tools for memories: those of the agent, and those that an earlier checkpoint
// names.
func (t *Turn) seenFiles(c *state.Checkpoint) {
	var tools []string
	if old := state.CheckpointOf(t.s.Log); old != nil {
		tools = slices.Collect(maps.Keys(old.Files))
	}
	for _, name := range t.agent.ToolNames() {
		if t.tool(name).Kind == toolspec.Memory {
			tools = append(tools, name)
		}
	}
	for _, name := range tools {
		files, from := memory.Seen(t.s.Log, name)
		if len(files) == 0 {
			continue
		}
		if c.Files == nil {
			c.Files, c.FilesFrom = map[string]map[string]int64{}, map[string]state.Origin{}
		}
		c.Files[name], c.FilesFrom[name] = files, from
	}
}

// CalledAt returns the time of the latest response in a log; zero if there is none.
func CalledAt(log []state.Entry) time.Time {
	for i := range slices.Backward(log) {
		if e := &log[i]; e.Type == state.EntryModel {
			return e.At.Time
		}
	}
	if c := state.CheckpointOf(log); c != nil {
		return c.CalledAt.Time
	}
	return time.Time{}
}

// LastAnswer returns the output tokens of the latest response whose usage is known, or nil.
func LastAnswer(log []state.Entry) *int64 {
	for i := range slices.Backward(log) {
		if e := &log[i]; e.Type == state.EntryModel && e.Usage != nil {
			return new(e.Usage.OutputTokens)
		}
	}
	if c := state.CheckpointOf(log); c != nil {
		return c.Answer
	}
	return nil
}
