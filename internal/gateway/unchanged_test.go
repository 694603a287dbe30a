package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// listing is a kind of source that lists one tool.
type listing struct{ tool.Plain }

func (listing) Spec() tool.Spec { return toolspec.MCPSpec }

func (listing) Pin(context.Context, tool.Bound) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

func (listing) Expand(t tool.Bound, _ json.RawMessage) ([]tool.Definition, error) {
	listed := *t.Definition
	listed.Name, listed.Schema, listed.Listed = "look", json.RawMessage(`{"type": "object"}`), true
	return []tool.Definition{listed}, nil
}

func (listing) Call(context.Context, tool.Bound, tool.Call) (tool.Result, error) {
	return tool.Result{}, nil
}

// Saving an unchanged definition makes no version, also if calls are concurrent or repeated because the answer was lost.
// A version that has pinned the tools of a source is the exception: saving it makes one version, which lists them again.
func TestUnchangedAgent(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, func(c *worker.Config) { c.Kinds[toolspec.MCP] = listing{} })
	const model = `"model": {"provider": "scripted", "responses": [{"text": "hi"}]}`
	for name, c := range map[string]struct {
		definition string
		pins       bool
	}{
		"plain":  {`{` + model + `}`, false},
		"source": {`{` + model + `, "tools": [{"kind": "mcp", "url": "http://127.0.0.1:1/"}]}`, true},
		"probe":  {`{` + model + `, "tools": [{"name": "add", "probe": {"kind": "mcp", "url": "http://127.0.0.1:1/", "allow": ["look"]}}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			save := func(when string, want int) {
				t.Helper()
				v, err := s.client.PutAgent(t.Context(), name, []byte(c.definition))
				if err != nil || v.Version != want {
					t.Errorf("saved %s, it has version %d, %v; want %d", when, v.Version, err, want)
				}
			}
			var saves sync.WaitGroup
			for range 8 {
				saves.Go(func() { save("at the same time", 1) })
			}
			saves.Wait()
			save("again", 1)
			want := 1
			for i := range 2 {
				if run := s.ended(s.submit(name)); run.Status != "completed" {
					t.Fatalf("the run is %s: %+v", run.Status, run.Error)
				}
				if c.pins {
					want++
				}
				save(fmt.Sprint("after run ", i), want)
				save(fmt.Sprint("after run ", i, ", without an answer"), want)
			}
			if err := s.client.DeleteAgent(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			save("after its deletion", want+1)
			save("after its deletion, again", want+1)
		})
	}
}
