package turnpiketest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

// The uses of a provider's tool are in the history once, wherever the worker dies, with the calls of other
// tools next to them.
func TestProviderTools(t *testing.T) {
	t.Parallel()
	tt.EachCrash(t, func(t *testing.T, open tt.Open) {
		k := open(turnpike.Options{})
		a := turnpike.Agent{Name: "reader", Tools: []tool.Definition{
			{Name: "web_search", Kind: "provider", Own: tool.EncodeSettings(map[string]any{"max_uses": 2})},
			{Name: "memory", Kind: "memory", Own: tool.EncodeSettings(map[string]any{"scope": "agent"})},
		}}
		both := tt.Calls("memory", notes{Command: "create", Path: "/memories/tea", FileText: "green\n"})
		use := model.ScriptedUse{Name: "web_search", Arguments: json.RawMessage(`{"query":"tea"}`), Result: "Tea\nhttps://tea.example/"}
		both.ProviderTools = []model.ScriptedUse{use, use}
		run := k.Start(a, "What about tea?", both, tt.Says("Tea is green."))
		info := k.WaitIdle(run)
		if info.Status != "completed" || info.Usage.WebSearches != 2 {
			t.Errorf("%s, %+v", info.Status, info.Usage)
		}
		messages, err := run.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var uses []string
		for _, m := range messages {
			for _, p := range m.Parts {
				if p.Type == state.PartProviderTool {
					uses = append(uses, fmt.Sprintf("%s %s %s %q %s", m.Role, p.Name, p.Arguments, p.Content, p.Origin))
				}
			}
		}
		one := `assistant web_search {"query":"tea"} "Tea\nhttps://tea.example/" web`
		if got := strings.Join(uses, "|"); got != one+"|"+one {
			t.Errorf("the history has %s", got)
		}
		if got := results(t, run); !strings.Contains(got, "File created") {
			t.Errorf("the model read %q", got)
		}
	})
}
