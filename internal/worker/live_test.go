package worker_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Response deltas carry the turn of their message, also in an attempt that started with calls of the turn
// before: readers join the two by turn. The first delta of each response is marked as first.
func TestLiveDeltasNameTheirTurn(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.createStreaming(agent.Definition{
		Name: "a", Tools: []agent.Tool{{Name: "ask", Kind: "human"}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "First.", ToolCalls: []model.ScriptedCall{{ID: "c1", Name: "ask", Arguments: []byte(`{"question":"Well?"}`)}}}, {Text: "Second."}}},
	})
	var mu sync.Mutex
	first := map[string][]bool{}
	turns := map[string][]int{}
	stop, err := s.bus.Watch(t.Context(), id, func(n bus.Notice) {
		var live api.Live
		if json.Unmarshal(n.Live, &live) != nil || live.Type != state.LiveModelDelta || live.Delta == nil || live.Delta.Text == "" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		turns[live.Delta.Text] = append(turns[live.Delta.Text], live.Turn)
		first[live.Delta.Text] = append(first[live.Delta.Text], live.First)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.work(s.config())
	s.start(id)
	s.await(id, "the question", func(st state.State) bool { return st.Status == state.Waiting })
	answer := "yes"
	s.signal(id, state.Signal{ID: "s1", Answer: &answer})
	s.awaitReason(id, state.EndCompleted)
	s.await(id, "the pieces of both responses", func(state.State) bool {
		mu.Lock()
		defer mu.Unlock()
		return len(turns) == 2
	})
	log, err := s.store.Log(t.Context(), id, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		if e.Type != state.EntryModel {
			continue
		}
		text := e.Message.Parts[0].Text
		if got := slices.Compact(turns[text]); !slices.Equal(got, []int{e.Turn}) {
			t.Errorf("the deltas of %q carry turns %v, its message %d", text, got, e.Turn)
		}
		if got := first[text]; !slices.Equal(got, []bool{true}) {
			t.Errorf("the only delta of %q has first = %v", text, got)
		}
	}
}
