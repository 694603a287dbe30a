package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// longReader is a model that calls a tool again and again, then reads its first result again, and answers with it. It
// keeps the prompts.
type longReader struct {
	turns int

	mu      sync.Mutex
	prompts [][]string
}

var removed = regexp.MustCompile(`\{"result": "(msg_[0-9_]+)"\}`)

func (m *longReader) Generate(_ context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	var prompt []string
	turn, stub := 0, ""
	for _, msg := range r.Messages {
		b, err := json.Marshal(msg.Parts)
		if err != nil {
			return model.Response{}, err
		}
		prompt = append(prompt, string(msg.Role)+string(b))
		if msg.Role == state.RoleAssistant {
			turn++
		}
		if found := removed.FindStringSubmatch(msg.Parts[0].Content); found != nil && stub == "" {
			stub = found[1]
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prompts = append(m.prompts, prompt)
	u := state.Usage{InputTokens: 1, OutputTokens: 1}
	if turn%7 == 6 {
		u.InputTokens = 900 // the window is full
	}
	call := state.Part{Type: state.PartToolCall, ID: "c", Name: "look", Arguments: fmt.Sprintf(`{"n":%d}`, turn)}
	last := r.Messages[len(r.Messages)-1]
	switch {
	case last.Role == state.RoleUser && turn > 0:
		return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "again"}}, Usage: u}, nil
	case turn == m.turns:
		call.Name, call.Arguments = "read", fmt.Sprintf(`{"result":%q}`, stub)
	case turn > m.turns:
		return model.Response{Parts: []state.Part{{Type: state.PartText, Text: last.Parts[0].Content}}, Usage: u}, nil
	}
	return model.Response{Parts: []state.Part{call}, Usage: u}, nil
}

// A long run has checkpoints. Every prompt is the one without them, the model can read a result from before them again,
// and another worker continues the run.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	run := func(bytes int64) (*deployment, *longReader, state.RunID) {
		s := newDeployment(t)
		m := &longReader{turns: 40}
		s.model = m
		s.tools["look"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			return tool.Result{Content: string(c.Arguments) + strings.Repeat("x", 30_000)}, nil
		})
		id := s.start(s.createFor(agent.Definition{
			Name: "long_reader", Model: agent.Model{Provider: "scripted"}, Loop: agent.Loop{MaxTurns: 100}, Compaction: &agent.Compaction{At: 0.5, Window: 1000, Keep: 1},
			Tools: []agent.Tool{{Name: "look", Kind: toolspec.Go, MaxCalls: 50}, {Name: "read", Kind: toolspec.Results}},
		}, state.Limits{MaxTurns: 100}))
		stop := s.work(withCheckpoints(s, bytes))
		end := s.awaitReason(id, state.EndCompleted)
		if !strings.HasPrefix(*end.Output, `{"n":0}xxx`) {
			t.Errorf("with checkpoints after %d bytes the output is %.80q", bytes, *end.Output)
		}
		stop()
		return s, m, id
	}
	_, want, _ := run(1 << 40)
	s, got, id := run(200_000)
	if len(want.prompts) != len(got.prompts) {
		t.Fatalf("%d prompts, without checkpoints %d", len(got.prompts), len(want.prompts))
	}
	ids := regexp.MustCompile(`msg_[0-9]+_`)
	for i := range want.prompts {
		a, b := strings.Join(want.prompts[i], "\n"), strings.Join(got.prompts[i], "\n")
		if ids.ReplaceAllString(a, "") != ids.ReplaceAllString(b, "") {
			t.Errorf("prompt %d differs from that without checkpoints: %d and %d bytes", i, len(b), len(a))
		}
		if i == 0 || strings.Count(b, "was removed to fit") != strings.Count(strings.Join(got.prompts[i-1], "\n"), "was removed to fit") {
			continue
		}
		if !strings.HasPrefix(b, strings.Join(got.prompts[i-1], "\n")) {
			t.Errorf("prompt %d does not begin with the one before", i)
		}
	}
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range log {
		if e.Type == state.EntryCheckpoint {
			found++
		}
	}
	if found < 3 {
		t.Fatalf("the log has %d checkpoints", found)
	}

	// Another worker continues it from the checkpoint.
	said := state.UserText("again?")
	s.signal(id, state.Signal{ID: "m", Message: &said})
	s.work(withCheckpoints(s, 200_000))
	end := s.await(id, "the second answer", func(st state.State) bool { return st.Status == state.Completed && *st.Output == "again" })
	if end.Checkpoint == 0 || end.LogBytes > 1_000_000 || end.Usage.ToolCalls != 41 {
		t.Errorf("the run ended with the checkpoint %d, %d bytes, %d calls", end.Checkpoint, end.LogBytes, end.Usage.ToolCalls)
	}
}

func withCheckpoints(s *deployment, bytes int64) worker.Config {
	cfg := s.config()
	cfg.CheckpointBytes = bytes
	return cfg
}
