package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// children lets a run start runs that each start runs. All are created soon, and all complete.
func children(ctx context.Context, s *scene) error {
	return s.children(ctx, rig.Config{Workers: 2})
}

func childrenOnJetStream(ctx context.Context, s *scene) error {
	return s.children(ctx, rig.Config{Workers: 2, JetStream: true})
}

func (s *scene) children(ctx context.Context, cfg rig.Config) error {
	if err := s.deploy(ctx, cfg); err != nil {
		return err
	}
	// A run below the root, with those below it.
	each := max(s.Children/agent.MaxChildren, 2)
	delegate := func(n int, tool string) string {
		calls := make([]string, n)
		for i := range calls {
			calls[i] = fmt.Sprintf("{name: %s, id: c%d, arguments: {task: go}}", tool, i)
		}
		return fmt.Sprintf("model: {provider: scripted, responses: [{tool_calls: [%s]}, {text: done}]}\ntools: [{name: %s, kind: agent, agent: %s}]\nlimits: {runs: 1000}", strings.Join(calls, ", "), tool, tool)
	}
	for name, definition := range map[string]string{
		"leaf":   "model: {provider: scripted, responses: [{text: done}]}",
		"branch": delegate(each-1, "leaf"),
		"trunk":  delegate(agent.MaxChildren, "branch"),
	} {
		if _, err := s.Client.PutAgent(ctx, name, []byte(definition)); err != nil {
			return err
		}
	}
	root, _, err := s.Client.Do(ctx, api.SubmitRequest{Agent: "trunk", Input: json.RawMessage(`"go"`)}, "", nil)
	if err != nil {
		return err
	}
	created, n := time.Time{}, 0
	for _, name := range []string{"leaf", "branch"} {
		t, err := s.tree(ctx, name)
		if err != nil {
			return err
		}
		created, n = later(created, t.created), n+t.runs
		if t.going > 0 {
			s.fail("%d runs of %s go on", t.going, name)
		}
	}
	if want := agent.MaxChildren * each; n != want || root.Status != "completed" {
		s.fail("the run is %s with %d runs below it, want %d", root.Status, n, want)
	}
	s.figure("the last of %d runs is created %.1f s after the first, want 5; all have ended after %.1f s", n, created.Sub(root.CreatedAt.Time).Seconds(), root.FinishedAt.Sub(root.CreatedAt.Time).Seconds())
	return nil
}
