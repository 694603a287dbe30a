package loop_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// What a run has read in a memory before a checkpoint counts behind it too: the versions, and the least trusted origin,
// which the files that the run writes get. That remains so behind further checkpoints, when the model does not see
// the results any more, and if the agent that is responsible by then does not have the tool.
func TestFilesReadBeforeCheckpoints(t *testing.T) {
	t.Parallel()
	bare := agent.Definition{Tools: tools(agent.Tool{Name: "t"})}
	def := agent.Definition{Tools: tools(
		agent.Tool{Name: "notes", Kind: toolspec.Memory, Own: tool.EncodeSettings(toolspec.Files{Scope: memory.ScopeTenant})},
		agent.Tool{Name: "own", Kind: toolspec.Memory, Own: tool.EncodeSettings(toolspec.Files{Scope: memory.ScopeAgent})},
		agent.Tool{Name: "t"},
	)}
	shows := func(path, mark string) string {
		return fmt.Sprintf("Here's the content of /memories/%s with line numbers %s:\n     1\tx", path, mark)
	}
	view := `{"command":"view","path":"/memories/%s"}`
	for name, next := range map[string]agent.Definition{"with the tools": def, "without the tools": bare} {
		r := start(t, def, state.Limits{MaxTurns: 100})
		var now *agent.Agent // that makes the checkpoints
		checkpoint := func() {
			t.Helper()
			s, made := loop.Checkpoint(r.s, now, r.now())
			if !made {
				t.Fatal("there is no checkpoint")
			}
			r.s = s
			r.s.Log = state.FromCheckpoint(s.Log, s.LogLen())
		}
		read := func(by, path, mark string) {
			t.Helper()
			r.begin(loop.TurnBegan{})
			r.respond(calls(by + " " + fmt.Sprintf(view, path)))
			r.finishTools(loop.ToolResult{CallID: "c1", Name: by, Content: shows(path, mark)})
		}
		want := func(by string, versions map[string]int64, from state.Origin) {
			t.Helper()
			seen, origin := memory.Seen(r.s.Log, by)
			if diff := cmp.Diff(versions, seen); diff != "" || origin != from {
				t.Errorf("%s, after %d entries: the files of %s have the origin %q, want %q, and other versions:\n%s", name, r.s.LogLen(), by, origin, from, diff)
			}
		}
		now = compile(t, def)
		read("notes", "a", "(version 3, origin web)")
		read("notes", "b", "(version 4)")
		read("own", "c", "(version 7, origin agent)")
		checkpoint()
		want("notes", map[string]int64{"/memories/a": 3, "/memories/b": 4}, state.OriginWeb)
		want("own", map[string]int64{"/memories/c": 7}, state.OriginAgent)
		read("notes", "b", "(version 5, origin agent)")
		want("notes", map[string]int64{"/memories/a": 3, "/memories/b": 5}, state.OriginWeb)
		now = compile(t, next)
		gone := state.Entry{Type: state.EntryTombstoned, At: r.now()}
		for _, m := range state.View(r.s.Log)[1:] {
			gone.MessageIDs = append(gone.MessageIDs, m.ID)
		}
		r.s = r.s.Append(gone)
		checkpoint()
		checkpoint()
		want("notes", map[string]int64{"/memories/a": 3, "/memories/b": 5}, state.OriginWeb)
		want("own", map[string]int64{"/memories/c": 7}, state.OriginAgent)
	}
}
