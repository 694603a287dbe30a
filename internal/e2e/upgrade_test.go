package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// buildNext compiles the services with a format version one higher, into a directory next to the current ones.
var buildNext = sync.OnceValues(func() (string, error) {
	dir, err := build()
	if err != nil {
		return "", err
	}
	const name = "pkg/state/format.go"
	source, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		return "", err
	}
	today, next := fmt.Sprintf("const Format = %d\n", state.Format), fmt.Sprintf("const Format = %d\n", state.Format+1)
	if !strings.Contains(string(source), today) {
		return "", fmt.Errorf("%s does not say %q", name, today)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "format.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, name): changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(changed, []byte(strings.Replace(string(source), today, next, 1)), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "next")
	cmd := exec.Command("go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", out+"/", "./cmd/gateway", "./cmd/worker")
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, text)
	}
	return "next/", nil
})

// Builds of two formats share a deployment, and workers of both are killed. While both are present, both take
// turns of every run. Once the newer build is alone, it writes its own format, and the older one changes
// nothing written in it (I1, I2).
func TestTwoBuilds(t *testing.T) {
	t.Parallel()
	for store, env := range map[string]string{"redis": "", "jetstream": "TURNPIKE_REDIS_URL="} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			b := newTwoBuilds(t, slices.DeleteFunc([]string{env}, func(e string) bool { return e == "" }))
			b.both(t)
			b.apart(t)
		})
	}
}

// twoBuilds is a deployment with a gateway of each build.
type twoBuilds struct {
	*deployment
	front   *process // the newer build's gateway
	newer   *api.Client
	workers []*process // two of each build, the older ones first
}

func newTwoBuilds(t *testing.T, env []string) *twoBuilds {
	t.Helper()
	next, err := buildNext()
	if err != nil {
		t.Fatal(err)
	}
	b := &twoBuilds{deployment: newDeployment(t, 0, append([]string{"TURNPIKE_LEASE=3s"}, env...)...)}
	serveSeedTools(b.deployment)
	b.put(`{"name": "steps", "model": {"provider": "scripted", "responses": [
		{"tool_calls": [{"name": "echo", "id": "c1", "arguments": {"n": 1}}], "delay": "100ms"}, {"tool_calls": [{"name": "pay", "id": "c2"}]},
		{"tool_calls": [{"name": "echo", "id": "c3", "arguments": {"n": 2}}], "delay": "100ms"}, {"text": "done", "delay": "100ms"}]},
		"tools": [{"name": "echo", "kind": "nats", "idempotent": true}, {"name": "pay", "kind": "client", "schema": {"type": "object"}}]}`)
	b.put(`{"name": "boss", "model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "steps", "id": "c1", "arguments": {"task": "go"}}]}, {"text": "done"}]},
		"tools": [{"name": "steps", "kind": "agent", "agent": "steps"}]}`)
	// Behind one address, either gateway may answer.
	addr := freeAddr(t)
	b.front = spawn(t, next+"gateway", append(slices.Clone(b.env), "TURNPIKE_ADDR="+addr))
	b.newer = api.New("http://" + addr)
	eventually(t, "the next build's gateway is ready", func() error { return b.newer.Ready(t.Context()) })
	for _, id := range []string{"old-0", "old-1", "next-0", "next-1"} {
		build := ""
		if strings.HasPrefix(id, "next") {
			build = next
		}
		b.workers = append(b.workers, spawn(t, build+"worker", append(slices.Clone(b.env), "TURNPIKE_WORKER_ID="+id)))
	}
	return b
}

// ended checks that a run has completed, and returns its rows of the audit trail.
func (b *twoBuilds) ended(t *testing.T, id string) []api.Turn {
	t.Helper()
	run, err := b.newer.Get(t.Context(), id)
	if err != nil || stands(run) != "completed" {
		t.Fatalf("run %s is %s, %v", id, stands(run), err)
	}
	turns, err := b.newer.Turns(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range turns {
		if row.Version != int64(i+1) {
			t.Errorf("I1: version %d of %s is at position %d", row.Version, id, i+1)
		}
	}
	return turns
}

func (b *twoBuilds) submitNew(t *testing.T, agent string) string {
	t.Helper()
	run, err := b.newer.Submit(t.Context(), api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// both lets workers of both builds take turns of the same runs.
func (b *twoBuilds) both(t *testing.T) {
	t.Helper()
	// The newer build's processes start with the old format, and detect an older worker before they would write
	// their own.
	var ids []string
	for i := range 24 {
		agent := "steps"
		if i%4 == 0 {
			agent = "boss"
		}
		if i%2 == 0 {
			ids = append(ids, b.submit(agent))
		} else {
			ids = append(ids, b.submitNew(t, agent))
		}
	}
	for i, p := range b.workers {
		answerAll(t, b.newer, ids, i*len(ids)/8)
		p.kill()
		p.env = append(p.env, "TURNPIKE_WORKER_ID="+p.env[len(p.env)-1][len("TURNPIKE_WORKER_ID="):]+"-again") // the last value counts
		p.start()
	}
	answerAll(t, b.newer, ids, len(ids))
	both := map[string]int{}
	for _, id := range ids {
		if _, err := b.client.Get(t.Context(), id); err != nil {
			t.Errorf("the old gateway returns %v", err)
		}
		for _, row := range b.ended(t, id) {
			build, _, _ := strings.Cut(row.Worker, "-")
			both[build]++
		}
	}
	if both["old"] == 0 || both["next"] == 0 {
		t.Errorf("turns by build: %v, want some of each", both)
	}
}

// apart lets the newer build write its own format, which the older build then reads.
func (b *twoBuilds) apart(t *testing.T) {
	t.Helper()
	old, next := b.workers[0], b.workers[2:]
	b.gateway.kill()
	for _, p := range b.workers[:2] {
		p.kill()
	}
	d, err := deploy.Open(t.Context(), deploy.Config{NATS: b.nats, RedisURL: b.redisURL(), Prefix: b.prefix()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var early string
	slowly := time.NewTicker(500 * time.Millisecond) // each check is a run
	defer slowly.Stop()
	eventually(t, "the next build writes its own format", func() error {
		<-slowly.C
		early = b.submitNew(t, "steps")
		if _, err := d.Store.Load(t.Context(), state.RunID(early)); !errors.Is(err, state.ErrFormat) {
			return fmt.Errorf("Load = %w", err)
		}
		return nil
	})
	eventually(t, "the run waits", func() error {
		run, err := b.newer.Get(t.Context(), early)
		if err == nil && stands(run) != "waiting_client_tool" {
			err = fmt.Errorf("it is %s", stands(run))
		}
		return err
	})

	// Runs in the new format wait for newer workers, and lose nothing.
	for _, p := range next {
		p.kill()
	}
	b.gateway.start()
	old.start()
	eventually(t, "the old gateway is ready", func() error { return b.client.Ready(t.Context()) })
	_, err = b.client.Get(t.Context(), early)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeNewerBuild {
		t.Errorf("the old gateway returns %v, want newer_build", err)
	}
	left := strings.Count(old.log(), "left to its workers")
	if _, err := b.newer.Signal(t.Context(), early, api.SignalRequest{
		SignalID: "pay", ToolResults: []api.ToolResult{{CallID: "c2", Content: json.RawMessage(`"paid"`)}},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old worker says that it leaves the run alone", func() error {
		if n := strings.Count(old.log(), "left to its workers") - left; n < 2 {
			return fmt.Errorf("said %d times", n)
		}
		return nil
	})
	next[0].start()
	answerAll(t, b.newer, []string{early}, 1)
	waited := false
	for _, row := range b.ended(t, early) {
		if waited && row.Attempt != 1 {
			t.Errorf("attempt %d at version %d, although no worker of the newer build died", row.Attempt, row.Version)
		}
		if strings.HasPrefix(row.Worker, "old") {
			t.Errorf("version %d was written by %s after a newer build", row.Version, row.Worker)
		}
		waited = waited || row.Reason == state.WaitingClientTool
	}
}

// redisURL returns the URL of the deployment's Redis, or "" if runs are in JetStream.
func (b *twoBuilds) redisURL() (url string) {
	for _, e := range b.env { // the last value counts
		if v, ok := strings.CutPrefix(e, "TURNPIKE_REDIS_URL="); ok {
			url = v
		}
	}
	return url
}

func stands(run api.Run) string {
	if run.Reason != nil {
		return *run.Reason
	}
	return run.Status
}

// answerAll answers the waits of runs and their children until n runs have ended.
func answerAll(t *testing.T, c *api.Client, ids []string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d runs end", n), func() error {
		page, err := c.List(t.Context(), map[string][]string{"limit": {"100"}})
		if err != nil {
			return err
		}
		ended := 0
		for _, run := range page.Items {
			if run.Terminal() && slices.Contains(ids, run.ID) {
				ended++
			}
			if stands(run) == "waiting_client_tool" {
				// A duplicate is refused, and an answer that was not accepted is sent again.
				_, _ = c.Signal(t.Context(), run.ID, api.SignalRequest{
					SignalID: fmt.Sprintf("%s-%d", run.ID, run.Version), ToolResults: []api.ToolResult{{CallID: run.Waiting.Calls[0].ID, Content: json.RawMessage(`"paid"`)}},
				})
			}
		}
		if ended < n {
			return fmt.Errorf("%d have", ended)
		}
		return nil
	})
}
