package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// treeTurns is the number of times that each run of a tree delegates.
const treeTurns = 5

// besideTrees is the maximum latency of a run of another tenant next to trees, at the 95th
// percentile.
const besideTrees = 200 * time.Millisecond

// trees has one tenant run trees whose runs delegate to themselves as often as they may, while
// another tenant makes one short run after the other.
func trees(ctx context.Context, s *scene) error {
	if err := s.deploy(ctx, rig.Config{Workers: 2, Env: []string{"TURNPIKE_AUTH=keys"}}); err != nil {
		return err
	}
	store, err := redisstore.Open(ctx, redisstore.Config{URL: "redis://" + s.Redis.Addr + "/0", Prefix: rig.Prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	keys := access.NewKeys(store)
	noisy, err := tenant(ctx, s, keys, "noisy", "tree", selfDelegating("tree", 0))
	if err != nil {
		return err
	}
	quiet, err := tenant(ctx, s, keys, "quiet", "short", "model: {provider: scripted, responses: [{text: done}]}")
	if err != nil {
		return err
	}
	alone, err := shortRuns(ctx, quiet, s.Beside/5)
	if err != nil {
		return err
	}
	s.figure("a run alone: %s", spread(alone))
	var roots []string
	for range s.Trees {
		root, err := noisy.Submit(ctx, api.SubmitRequest{Agent: "tree", Input: json.RawMessage(`"go"`)}, "")
		if err != nil {
			return err
		}
		roots = append(roots, root.ID)
	}
	beside, err := shortRuns(ctx, quiet, s.Beside)
	if err != nil {
		return err
	}
	if len(beside) == 0 {
		return fmt.Errorf("no run was made in %s", s.Beside)
	}
	slices.Sort(beside)
	p95 := beside[len(beside)*95/100]
	s.figure("a run beside %d trees of another tenant: %s, p95 %d ms; want %d ms", s.Trees, spread(beside), p95.Milliseconds(), besideTrees.Milliseconds())
	if p95 > besideTrees {
		s.fail("a run beside trees takes %d ms at the 95th percentile", p95.Milliseconds())
	}
	growing := 0
	for _, id := range roots {
		root, err := noisy.Get(ctx, id)
		if err != nil {
			return err
		}
		if !root.Terminal() {
			growing++
		}
	}
	s.figure("%d of %d trees are in flight at the end", growing, s.Trees)
	return nil
}

// tenant returns a client of a tenant that has one agent.
func tenant(ctx context.Context, s *scene, keys *access.Keys, name, agent, definition string) (*api.Client, error) {
	key, _, err := keys.Create(ctx, access.KeySpec{Tenant: name, Roles: access.Roles()})
	if err != nil {
		return nil, err
	}
	c := api.New(s.URL, api.WithToken(key))
	_, err = c.PutAgent(ctx, agent, []byte(definition))
	return c, err
}

// selfDelegating returns the definition of an agent that delegates to itself as often as it may,
// in each of some turns.
func selfDelegating(name string, delay time.Duration) string {
	var turns []string
	for n := range treeTurns {
		var calls []string
		for i := range agent.MaxChildren {
			calls = append(calls, fmt.Sprintf("{name: again, id: c%d_%d, arguments: {task: again}}", n, i))
		}
		turns = append(turns, fmt.Sprintf("{delay: %s, tool_calls: [%s]}", delay, strings.Join(calls, ", ")))
	}
	return fmt.Sprintf("model: {provider: scripted, responses: [%s, {text: done}]}\ntools: [{name: again, kind: agent, agent: %s}]", strings.Join(turns, ", "), name)
}

// shortRuns makes runs one after the other for a time, and returns what each took.
func shortRuns(ctx context.Context, c *api.Client, lasts time.Duration) (took []time.Duration, err error) {
	for end := time.Now().Add(lasts); time.Now().Before(end); rig.Pause(ctx, 20*time.Millisecond) {
		began := time.Now()
		run, err := c.Submit(ctx, api.SubmitRequest{Agent: "short", Input: json.RawMessage(`"go"`)}, "")
		if err != nil {
			return took, err
		}
		if _, err := c.Wait(ctx, run.ID); err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
