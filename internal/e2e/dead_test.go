package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// bomb is a tool that kills the process of the calling worker until it is defused. It starts a new worker for
// each one it kills.
type bomb struct {
	s       *deployment
	rdb     *redis.Client
	defused atomic.Bool
	kills   atomic.Int64

	mu      sync.Mutex
	calls   map[string]int // by call key, once defused
	workers map[string]*process
}

func newBomb(t *testing.T, s *deployment, workers int) *bomb {
	t.Helper()
	opts, err := redis.ParseURL(strings.TrimPrefix(s.env[1], "TURNPIKE_REDIS_URL="))
	if err != nil {
		t.Fatal(err)
	}
	b := &bomb{s: s, rdb: redis.NewClient(opts), calls: map[string]int{}, workers: map[string]*process{}}
	t.Cleanup(func() { _ = b.rdb.Close() })
	for i := range workers {
		id := fmt.Sprintf("w%d", i)
		b.workers[id] = spawn(t, "worker", append(slices.Clone(s.env), "TURNPIKE_WORKER_ID="+id))
	}
	stop, err := toolkit.Serve(s.nats, s.prefix(), toolkit.Tool{Name: "bomb", Handler: text(b.explode)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	return b
}

func (b *bomb) explode(ctx context.Context, r toolkit.Call) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.defused.Load() {
		b.calls[r.IdempotencyKey]++
		return "defused", nil
	}
	owner, err := b.rdb.HGet(ctx, fmt.Sprintf("%s:{s%03d}:run:%s", b.s.prefix(), state.RunID(r.RunID).Shard(), r.RunID), "own").Result()
	if err != nil {
		return "", err
	}
	if w := b.workers[owner]; w != nil {
		w.kill()
		next := fmt.Sprintf("w%d", int(b.kills.Add(1))+len(b.workers))
		w.env = append(w.env, "TURNPIKE_WORKER_ID="+next) // the last value counts
		delete(b.workers, owner)
		b.workers[next] = w
		w.start()
	}
	return "boom", nil
}

func (s *deployment) put(def string) {
	s.t.Helper()
	var name struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(def), &name); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.client.PutAgent(s.t.Context(), name.Name, []byte(def)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *deployment) submit(agent string) string {
	s.t.Helper()
	run, err := s.client.Submit(s.t.Context(), api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}, rand.Text())
	if err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

func (s *deployment) ended(id, status string) api.Run {
	s.t.Helper()
	var run api.Run
	eventually(s.t, "run "+id+" ends", func() error {
		var err error
		if run, err = s.client.Get(s.t.Context(), id); err == nil && !run.Terminal() {
			err = fmt.Errorf("it is %s, version %d", run.Status, run.Version)
		}
		return err
	})
	if run.Status != status {
		s.t.Fatalf("run %s of %s is %s (%s), want %s", id, run.Agent, run.Status, run.Transition.Detail, status)
	}
	return run
}

const bombAgent = `{"name": "bomber", "model": {"provider": "scripted", "responses": [
	{"tool_calls": [{"name": "bomb", "id": "c1"}]}, {"text": "survived"}]},
	"tools": [{"name": "bomb", "kind": "nats", "idempotent": true}]}`

// A tool kills every worker that calls it, and the run ends poisoned. Once the tool is fixed, a replay
// completes the run with the same open call (I1, I5).
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, 0)
	b := newBomb(t, s, 2)
	s.put(bombAgent)
	id := s.submit("bomber")
	if run := s.ended(id, "failed"); *run.Reason != "poisoned" {
		t.Fatalf("run = %+v", run)
	}
	if n := b.kills.Load(); n != 5 {
		t.Errorf("%d workers died, want 5: a turn has five attempts", n)
	}
	checkHistory(t, s, id)
	c := cli{t, s.url}
	eventually(t, "the letter is written", func() error {
		if out, _ := c.run("dead", "ls"); !strings.Contains(out, id) {
			return fmt.Errorf("dead ls: %s", out)
		}
		return nil
	})
	c.want(0, "open", "dead", "ls")
	c.want(0, `"next_cursor": null`, "-o", "json", "dead", "--open")
	c.want(0, `"next_cursor": null`, "-o", "json", "agents")
	out := c.want(0, "turnpike dead replay 1", "dead", "show", "1")
	for _, part := range []string{"poisoned: claimed 5 times without a commit", id, "after 5 attempts", "c1 bomb {}", "bomber"} {
		if !strings.Contains(out, part) {
			t.Errorf("dead show does not print %q:\n%s", part, out)
		}
	}

	b.defused.Store(true)
	c.want(0, id, "dead", "replay", "1")
	if run := s.ended(id, "completed"); *run.Output != "survived" {
		t.Errorf("run = %+v", run)
	}
	if len(b.calls) != 1 {
		t.Errorf("calls = %v, want one", b.calls)
	}
	checkHistory(t, s, id)
	c.want(0, "replayed", "dead", "show", "1")
	c.want(0, id, "dead", "replay", "1") // a second replay has no effect
	c.want(1, "letter_not_found", "dead", "replay", "2")
	if run := s.ended(id, "completed"); run.Version != 5 {
		t.Errorf("version %d, want 5: submitted, poisoned, replayed, next_turn, completed", run.Version)
	}
}

// Runs that kill their workers do not keep other runs from completing (I2).
func TestPoisonAmongHealthy(t *testing.T) {
	t.Parallel()
	const poison, healthy = 10, 60
	s := newDeployment(t, 0)
	b := newBomb(t, s, 3)
	serveSeedTools(s)
	s.put(bombAgent)
	s.put(`{"name": "healthy", "model": {"provider": "scripted", "responses": [
		{"tool_calls": [{"name": "echo", "id": "c1", "arguments": {"n": 1}}]}, {"tool_calls": [{"name": "echo", "id": "c2", "arguments": {"n": 2}}]}, {"text": "done"}]},
		"tools": [{"name": "echo", "kind": "nats", "idempotent": true}]}`)
	var bad, good []string
	for i := range healthy {
		if i%(healthy/poison) == 0 {
			bad = append(bad, s.submit("bomber"))
		}
		good = append(good, s.submit("healthy"))
	}
	most := 0
	for _, id := range good {
		s.ended(id, "completed")
		turns, err := s.client.Turns(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range turns {
			most = max(most, row.Attempt)
		}
	}
	for _, id := range bad {
		s.ended(id, "failed")
		checkHistory(t, s, id)
	}
	b.defused.Store(true)
	c := cli{t, s.url}
	eventually(t, "every letter is written", func() error {
		out, code := c.run("dead", "ls", "--open")
		for _, id := range bad {
			if code != 0 || !strings.Contains(out, id) {
				return fmt.Errorf("no dead letter of %s: %s", id, out)
			}
		}
		return nil
	})
	c.want(0, bad[0], "dead", "replay", "--all")
	for _, id := range bad {
		s.ended(id, "completed")
	}
	t.Logf("%d workers killed; a healthy turn had up to %d attempts", b.kills.Load(), most)
}
