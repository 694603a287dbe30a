package turnpiketest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

type notes struct {
	Command    string `json:"command"`
	Path       string `json:"path"`
	FileText   string `json:"file_text,omitempty"`
	InsertText string `json:"insert_text,omitempty"`
	InsertLine int    `json:"insert_line"`
}

// A memory change is made once, wherever the worker dies, and the next run reads it. A repeated call has the
// result of the first.
func TestMemory(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		k := open(turnpike.Options{})
		a := turnpike.Agent{Name: "clerk", Tools: []tool.Definition{{
			Name: "memory", Kind: "memory", Own: tool.EncodeSettings(map[string]any{"scope": "agent", "max_bytes": 1000}),
		}}}
		both := tt.Calls("memory", notes{Command: "create", Path: "/memories/tea", FileText: "green\n"})
		both.ToolCalls = append(both.ToolCalls, tt.Calls("memory", notes{Command: "insert", Path: "/memories/tea", InsertText: "black"}).ToolCalls...)
		run := k.Start(a, "I like tea.", both, tt.Says("Noted."))
		if i := k.WaitIdle(run); i.Status != "completed" {
			t.Error(i.Status)
		}
		if got := results(t, run); got != "File created successfully at: /memories/tea (version 1)|The file /memories/tea has been edited. (version 2)" {
			t.Errorf("the model read %q", got)
		}
		next := k.Start(a, "What do I like?", tt.Calls("memory", notes{Command: "view", Path: "/memories/tea"}), tt.Says("Tea."))
		if i := k.WaitIdle(next); i.Status != "completed" || results(t, next) != "Here's the content of /memories/tea with line numbers (version 2):\n     1\tblack\n     2\tgreen" {
			t.Errorf("%s: %q", i.Status, results(t, next))
		}
	})
}

// results returns the results of the calls of a run, in order.
func results(t *testing.T, r *turnpike.Run) string {
	t.Helper()
	messages, err := r.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Type == state.PartToolResult {
				texts = append(texts, p.Content)
			}
		}
	}
	return strings.Join(texts, "|")
}

// A run that has read a file does not overwrite another run's later write: the model reads the conflict,
// whichever worker makes the call.
func TestMemoryConflict(t *testing.T) {
	t.Parallel()
	shared := tool.Definition{Name: "memory", Kind: "memory", Own: tool.EncodeSettings(map[string]any{"scope": "tenant"})}
	insert := func(text string) tt.Reply {
		return tt.Calls("memory", notes{Command: "insert", Path: "/memories/tea", InsertText: text})
	}
	var k *tt.Kit
	meanwhile := turnpike.NewTool("meanwhile", "Lets another run write.", func(context.Context, struct{}) (string, error) {
		k.WaitIdle(k.Start(turnpike.Agent{Name: "other", Tools: []tool.Definition{shared}}, "Add one.", insert("white"), tt.Says("Done.")))
		return "", nil
	})
	k = tt.New(t, turnpike.Options{Tools: []turnpike.Tool{meanwhile}})
	k.WaitIdle(k.Start(turnpike.Agent{Name: "first", Tools: []tool.Definition{shared}}, "Begin.",
		tt.Calls("memory", notes{Command: "create", Path: "/memories/tea", FileText: "green\n"}), tt.Says("Created.")))
	reader := k.Start(turnpike.Agent{Name: "reader", Tools: append(turnpike.Use(meanwhile), shared)}, "Add one.",
		tt.Calls("memory", notes{Command: "view", Path: "/memories/tea"}), tt.Calls("meanwhile", struct{}{}), insert("black"), tt.Says("I see."))
	k.WaitIdle(reader)
	if got := results(t, reader); !strings.Contains(got, "/memories/tea has version 2, not 1") {
		t.Errorf("the model read %q", got)
	}
}
