package restore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// bounded is a store that refuses reads of a whole log, and measures the largest page.
type bounded struct {
	state.Store

	t       *testing.T
	largest int64
}

func (s *bounded) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	s.t.Error("a read of the log has no limit in bytes")
	return s.Store.Log(ctx, id, after, limit)
}

func (s *bounded) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	page, err := s.Store.LogPage(ctx, id, after, limit, bytes)
	size := int64(0)
	for i := range page.Entries {
		size += page.Entries[i].Weight()
	}
	s.largest = max(s.largest, size)
	return page, err
}

// The review of a store reads a large log in pages, and finds the calls without a result. A provider may repeat the id
// of a call that has a result.
func TestOpenCallsOfALargeLog(t *testing.T) {
	t.Parallel()
	store := &bounded{Store: memstore.New(memstore.Config{}), t: t}
	at := state.At(time.Now())
	run := state.State{ID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", Tenant: state.DefaultTenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{state.UserText("x")}})
	if err != nil {
		t.Fatal(err)
	}
	respond := func(turn int, calls ...string) {
		m := state.Message{ID: fmt.Sprint("m", turn), Role: state.RoleAssistant, Turn: turn}
		for _, c := range calls {
			m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: c, Name: "t", Arguments: `{"a":"` + strings.Repeat("ä", maxArguments) + `"}`})
		}
		run = run.Append(state.Entry{Type: state.EntryModel, At: at, Turn: turn, Message: &m, Usage: &state.Usage{ModelCalls: 1}})
	}
	for turn := 1; turn <= 20; turn++ {
		respond(turn, "a", "b")
		for _, c := range []string{"a", "b"} {
			m := state.ToolResult(c, strings.Repeat("x", 256<<10), false)
			run = run.Append(state.Entry{Type: state.EntryTool, At: at, Turn: turn, CallID: c, Name: "t", Message: &m})
		}
	}
	respond(21, "gone")
	run = run.Append(state.Entry{Type: state.EntryTombstoned, At: at, MessageIDs: []string{"m21"}})
	respond(22, "a", "c")
	if _, err := store.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	calls, err := (&Review{store: store}).openCalls(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}

	for i := range calls {
		if n := len(calls[i].Arguments); n == 0 || n > maxArguments {
			t.Errorf("the arguments of call %s have %d bytes, want at most %d", calls[i].ID, n, maxArguments)
		}
		calls[i].Arguments = ""
	}
	if diff := cmp.Diff([]api.RestoreCall{{ID: "a", Tool: "t"}, {ID: "c", Tool: "t"}}, calls); diff != "" {
		t.Errorf("open calls:\n%s", diff)
	}
	if most := int64(3 << 20); store.largest > most {
		t.Errorf("a read of the log returns %d KiB, want at most %d KiB", store.largest>>10, most>>10)
	}
}
