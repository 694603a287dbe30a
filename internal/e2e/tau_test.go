package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// recording is one recorded conversation in OpenAI's chat format.
type recording struct {
	ID       int             `json:"id"`
	Messages []recordedEntry `json:"messages"`
}

type recordedEntry struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// dataDir returns the folder of real inputs, or ends the test with the reason.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("TURNPIKE_REAL_DATA")
	if dir == "" {
		t.Skip("TURNPIKE_REAL_DATA names no folder of recorded conversations: `make real` sets it")
	}
	return dir
}

func readRecordings(t *testing.T, path string) []recording {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []recording
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r recording
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Recorded conversations run through a gateway, NATS, Redis and three workers that are killed continuously.
// Each transcript equals its recording (I1, I2, I3, I5).
func TestRecordedConversations(t *testing.T) {
	path := filepath.Join(dataDir(t), "tau-airline", "trajectories.jsonl")
	recordings := readRecordings(t, path)

	d := newDeployment(t, 3)
	mock := freeAddr(t)
	spawn(t, "turnpike", nil, "mock-model", "--addr", mock, "--conversations", path)
	eventually(t, "mock-model is ready", func() error {
		resp, err := http.Get("http://" + mock + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	runs := &playing{runs: map[string]recording{}, added: make(chan struct{})}
	names := serveRecordedTools(t, d, recordings, runs)

	killed := killAtRandom(t, d, 500*time.Millisecond)
	began := time.Now()
	var turns atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for _, r := range recordings {
		group.Go(func() error {
			n, err := replay(ctx, d, r, mock, names, runs)
			turns.Add(int64(n))
			if err != nil {
				return fmt.Errorf("conversation %d: %w", r.ID, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d conversations, %d turns, %d workers killed, %s", len(recordings), turns.Load(), killed(), time.Since(began).Round(time.Millisecond))
}

// playing maps runs to their recordings: call ids are unique only within a recording.
type playing struct {
	mu    sync.Mutex
	runs  map[string]recording
	added chan struct{} // closed and replaced when a run is added
}

func (p *playing) add(run string, r recording) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[run] = r
	close(p.added)
	p.added = make(chan struct{})
}

// of returns the recording of a run. It waits for a submission that is not recorded yet.
func (p *playing) of(ctx context.Context, run string) (recording, error) {
	for {
		p.mu.Lock()
		r, ok := p.runs[run]
		added := p.added
		p.mu.Unlock()
		if ok {
			return r, nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return recording{}, ctx.Err()
		}
	}
}

// recorded returns the result of a call. Ids repeat within a conversation, so name and arguments must match as
// well.
func (r recording) recorded(call, name, arguments string) (string, error) {
	for i, m := range r.Messages {
		for _, c := range m.ToolCalls {
			if c.ID == call && c.Function.Name == name && sameJSON(c.Function.Arguments, arguments) {
				return *r.Messages[i+1].Content, nil
			}
		}
	}
	return "", fmt.Errorf("no call %s with arguments %s is recorded", call, arguments)
}

// serveRecordedTools answers every recorded call with its recorded result, as a NATS micro service, and returns
// the tools' names.
func serveRecordedTools(t *testing.T, s *deployment, recordings []recording, runs *playing) []string {
	t.Helper()
	seen := map[string]bool{}
	var names []string
	for _, r := range recordings {
		for _, m := range r.Messages {
			for _, c := range m.ToolCalls {
				if !seen[c.Function.Name] {
					seen[c.Function.Name] = true
					names = append(names, c.Function.Name)
				}
			}
		}
	}
	for _, name := range names {
		stop, err := toolkit.Serve(s.nats, s.prefix(), toolkit.Tool{
			Name: name, Description: name + ", as recorded", Schema: json.RawMessage(`{"type":"object"}`),
			Handler: text(func(ctx context.Context, req toolkit.Call) (string, error) {
				r, err := runs.of(ctx, req.RunID)
				if err != nil {
					return "", err
				}
				return r.recorded(req.CallID, name, string(req.Arguments))
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stop() })
	}
	return names
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	xs, _ := json.Marshal(x)
	ys, _ := json.Marshal(y)
	return string(xs) == string(ys)
}

// killAtRandom kills one worker after another with SIGKILL and restarts it, until the test ends. It waits until
// the worker is running again: on a busy machine, where a start takes longer, a turn would otherwise lose five
// workers in a row, and its run would end poisoned.
func killAtRandom(t *testing.T, s *deployment, every time.Duration) (killed func() int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var n atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every/2 + time.Duration(rng.Int64N(int64(every)))):
			}
			w := s.workers[rng.IntN(len(s.workers))]
			w.kill()
			n.Add(1)
			before := w.logged(started)
			w.start()
			for tick := time.NewTicker(10 * time.Millisecond); w.logged(started) == before; {
				select {
				case <-ctx.Done():
					tick.Stop()
					return
				case <-tick.C:
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return func() int {
		cancel()
		wg.Wait()
		return int(n.Load())
	}
}

// replay plays the user of one conversation and compares the transcript.
func replay(ctx context.Context, s *deployment, r recording, mock string, names []string, runs *playing) (turns int, err error) {
	agentName := fmt.Sprintf("airline-%d", r.ID)
	tools := make([]map[string]any, len(names))
	for i, n := range names {
		tools[i] = map[string]any{"name": n, "kind": "nats", "idempotent": true, "reuse": false, "timeout": "30s"}
	}
	def, err := json.Marshal(map[string]any{
		"name":         agentName,
		"instructions": *r.Messages[0].Content,
		"model":        map[string]any{"provider": "openai", "name": fmt.Sprintf("recorded/%d", r.ID), "base_url": "http://" + mock + "/v1"},
		"loop":         map[string]any{"type": "react", "converse": true},
		"tools":        tools,
	})
	if err != nil {
		return 0, err
	}
	if _, err := s.client.PutAgent(ctx, agentName, def); err != nil {
		return 0, fmt.Errorf("put agent: %w", err)
	}
	var said []string // the user's messages, in order
	asked := 0        // model turns
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			said = append(said, *m.Content)
		case "assistant":
			asked++
		}
	}
	input, err := json.Marshal(said[0])
	if err != nil {
		return 0, err
	}
	run, err := s.client.Submit(ctx, api.SubmitRequest{Agent: agentName, Input: input, Limits: &api.SubmitLimits{MaxTurns: asked}}, agentName)
	if err != nil {
		return 0, fmt.Errorf("submit: %w", err)
	}
	runs.add(run.ID, r)
	next := 1
	for ev, err := range s.client.Events(ctx, run.ID, 0) {
		if err != nil {
			return 0, fmt.Errorf("events: %w", err)
		}
		if ev.Type != "run.waiting" {
			continue
		}
		if ev.Reason != "waiting_human_input" {
			continue
		}
		if next >= len(said) {
			return 0, errors.New("the run waits for a user who has no more messages")
		}
		if _, err := s.client.Signal(ctx, run.ID, api.SignalRequest{SignalID: fmt.Sprintf("said-%d", next), Answer: &said[next]}); err != nil {
			return 0, fmt.Errorf("answer %d: %w", next, err)
		}
		next++
	}
	done, err := s.client.Get(ctx, run.ID)
	if err != nil {
		return 0, err
	}
	if done.Reason == nil || *done.Reason != "max_turns" {
		return 0, fmt.Errorf("run ended %s (%v), want max_turns: %+v", done.Status, done.Reason, done.Error)
	}
	return done.TurnCount, compare(ctx, s, r, run.ID)
}

func compare(ctx context.Context, s *deployment, r recording, run string) error {
	got, err := s.client.Messages(ctx, run)
	if err != nil {
		return err
	}
	if len(got) != len(r.Messages) {
		return fmt.Errorf("transcript has %d messages, the recording %d", len(got), len(r.Messages))
	}
	for i, want := range r.Messages {
		if err := same(want, got[i]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

func same(want recordedEntry, got api.Message) error {
	if string(got.Role) != want.Role {
		return fmt.Errorf("role is %s, recorded %s", got.Role, want.Role)
	}
	text, call := "", 0
	for _, p := range got.Parts {
		switch p.Type {
		case "text":
			text += p.Text
		case "tool_result":
			text += p.Content
			if p.CallID != want.ToolCallID {
				return fmt.Errorf("result of %s, recorded %s", p.CallID, want.ToolCallID)
			}
		case "tool_call":
			if call >= len(want.ToolCalls) {
				return fmt.Errorf("unrecorded call %s", p.Name)
			}
			w := want.ToolCalls[call]
			if p.ID != w.ID || p.Name != w.Function.Name || !sameJSON(p.Arguments, w.Function.Arguments) {
				return fmt.Errorf("call %s %s %s, recorded %s %s %s", p.ID, p.Name, p.Arguments, w.ID, w.Function.Name, w.Function.Arguments)
			}
			call++
		default:
			return fmt.Errorf("unexpected part of type %s", p.Type)
		}
	}
	if call != len(want.ToolCalls) {
		return fmt.Errorf("%d calls, recorded %d", call, len(want.ToolCalls))
	}
	recorded := ""
	if want.Content != nil {
		recorded = *want.Content
	}
	if text != recorded {
		return fmt.Errorf("text is %q, recorded %q", text, recorded)
	}
	return nil
}
