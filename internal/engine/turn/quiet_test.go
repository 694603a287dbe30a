package turn_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Turns of a run that has no trouble write nothing at the level info: a log grows with trouble, not with work.
func TestTurnsAreNotLogged(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 2} {
		var out bytes.Buffer
		s := newStage(t)
		s.log = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level}))
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "PAID"}, nil })
		s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"), model.Scripted{Text: "end"})
		for _, worker := range []string{"w1", "w2"} {
			s.next(t.Context(), worker)
		}
		if got := bytes.Count(out.Bytes(), []byte(`"level":"DEBUG","msg":"turn"`)); got != want || level == slog.LevelInfo && out.Len() > 0 {
			t.Errorf("level %s: %d lines of debug for 2 turns, want %d:\n%s", level, got, want, out.String())
		}
		if !s.record().Status.Terminal() {
			t.Errorf("after 2 turns the run is %s", s.record().Status)
		}
	}
}
