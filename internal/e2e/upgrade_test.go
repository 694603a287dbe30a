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

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// buildNext compiles the services as a build would be whose format is one higher, into
// a directory next to those of today's.
var buildNext = sync.OnceValues(func() (string, error) {
	dir, err := build()
	if err != nil {
		return "", err
	}
	const name = "pkg/state/codec.go"
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
	changed, overlay := filepath.Join(dir, "codec.go"), filepath.Join(dir, "overlay.json")
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

// Two builds of different formats share a site, and workers of both are killed: every
// run ends, no attempt is lost by what the older build does not know, and nothing that
// the newer one wrote is touched by the older again (I1, I2).
func TestTwoBuilds(t *testing.T) {
	t.Parallel()
	for store, env := range map[string]string{"redis": "", "jetstream": "TURNPIKE_REDIS_URL="} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			next, err := buildNext()
			if err != nil {
				t.Fatal(err)
			}
			s := newSite(t, 0, append([]string{"TURNPIKE_LEASE=3s"}, slices.DeleteFunc([]string{env}, func(e string) bool { return e == "" })...)...)
			serveSeedTools(s)
			s.put(`{"name": "steps", "model": {"provider": "scripted", "responses": [
				{"tool_calls": [{"name": "echo", "id": "c1", "arguments": {"n": 1}}], "delay": "100ms"}, {"tool_calls": [{"name": "pay", "id": "c2"}]},
				{"tool_calls": [{"name": "echo", "id": "c3", "arguments": {"n": 2}}], "delay": "100ms"}, {"text": "done", "delay": "100ms"}]},
				"tools": [{"name": "echo", "kind": "nats", "idempotent": true}, {"name": "pay", "kind": "client", "schema": {"type": "object"}}]}`)
			s.put(`{"name": "boss", "model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "steps", "id": "c1", "arguments": {"task": "go"}}]}, {"text": "done"}]},
				"tools": [{"name": "steps", "kind": "agent", "agent": "steps"}]}`)
			// A second gateway, of the next build: behind one address, either may answer.
			addr := freeAddr(t)
			spawn(t, next+"gateway", append(slices.Clone(s.env), "TURNPIKE_ADDR="+addr))
			newer := client.New("http://" + addr)
			eventually(t, "the next build's gateway is ready", func() error { return newer.Ready(t.Context()) })
			worker := func(build, id string) *process {
				return spawn(t, build+"worker", append(slices.Clone(s.env), "TURNPIKE_WORKER_ID="+id))
			}

			// What only newer workers know waits for them, and loses nothing.
			old := worker("", "old-0")
			early, err := newer.Submit(t.Context(), api.SubmitRequest{Agent: "steps", Input: json.RawMessage(`"go"`)}, "")
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the old worker says that it leaves the run alone", func() error {
				if n := strings.Count(old.log(), "left to its workers"); n < 2 {
					return fmt.Errorf("said %d times", n)
				}
				return nil
			})
			_, err = s.client.Get(t.Context(), early.ID)
			if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeNewerBuild {
				t.Errorf("the old gateway answers %v, want newer_build", err)
			}

			ids := []string{early.ID}
			for i := range 24 {
				agent := "steps"
				if i%4 == 0 {
					agent = "boss"
				}
				ids = append(ids, s.submit(agent))
			}
			killed := []*process{old, worker("", "old-1"), worker(next, "next-0"), worker(next, "next-1")}
			for i, p := range killed {
				answerAll(t, newer, ids, i*len(ids)/8)
				p.kill()
				p.env = append(p.env, "TURNPIKE_WORKER_ID="+p.env[len(p.env)-1][len("TURNPIKE_WORKER_ID="):]+"-again") // the last one counts
				p.start()
			}
			answerAll(t, newer, ids, len(ids))
			both := map[string]int{}
			for _, id := range ids {
				run, err := newer.Get(t.Context(), id)
				if err != nil || stands(run) != "completed" {
					t.Fatalf("run %s is %s, %v", id, stands(run), err)
				}
				turns, err := newer.Turns(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				newest := ""
				for i, row := range turns {
					if row.Version != int64(i+1) {
						t.Errorf("I1: version %d of %s stands in place %d", row.Version, id, i+1)
					}
					build, _, _ := strings.Cut(row.Worker, "-")
					if build != "" && newest == "next" && build == "old" {
						t.Errorf("run %s was written by %s after a newer build", id, row.Worker)
					}
					newest = build
					both[build]++
				}
				if id == early.ID && turns[1].Attempt != 1 {
					t.Errorf("attempt %d at the first turn of %s, which no worker that knows it has lost", turns[1].Attempt, id)
				}
			}
			if both["old"] == 0 || both["next"] == 0 {
				t.Errorf("turns by build: %v, want some of each", both)
			}
		})
	}
}

func stands(run api.Run) string {
	if run.Reason != nil {
		return *run.Reason
	}
	return run.Status
}

// answerAll gives runs, and those they have started, what they wait for until n of them
// have ended.
func answerAll(t *testing.T, c *client.Client, ids []string, n int) {
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
				// A double is refused, and what was not accepted is asked again.
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
