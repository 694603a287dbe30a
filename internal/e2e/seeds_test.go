package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

var update = flag.Bool("update", false, "rewrite what the scenarios came to")

// scenario is one behavior, seen from outside: agents, a submission, and a signal for each time that the run
// waits.
type scenario struct {
	Rows    string              `json:"rows"` // in the list of behaviors
	Agents  []json.RawMessage   `json:"agents"`
	Run     api.SubmitRequest   `json:"run"`
	Signals []api.SignalRequest `json:"signals"`
	Cancel  string              `json:"cancel"` // instead of a signal, after the others
}

// Every behavior in testdata/seeds runs through a gateway, NATS, Redis and two worker processes. The expected
// result is stored next to it and reviewed as a diff; -update rewrites it.
func TestSeeds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/seeds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	s := newDeployment(t, 2)
	serveSeedTools(s)
	t.Run("scenarios", func(t *testing.T) {
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
				t.Parallel()
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var sc scenario
				if err := yaml.UnmarshalStrict(data, &sc); err != nil {
					t.Fatal(err)
				}
				got := sc.play(t, s)
				golden := strings.TrimSuffix(file, ".yaml") + ".golden"
				if *update {
					if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", sc.Rows, diff)
				}
			})
		}
	})
}

// text makes a handler from a function that returns text.
func text(f func(ctx context.Context, c toolkit.Call) (string, error)) func(context.Context, toolkit.Call) (toolkit.Result, error) {
	return func(ctx context.Context, c toolkit.Call) (toolkit.Result, error) {
		content, err := f(ctx, c)
		return toolkit.Result{Content: content}, err
	}
}

// serveSeedTools starts the tools of the scenarios as NATS services.
func serveSeedTools(s *deployment) {
	s.t.Helper()
	for name, handler := range map[string]func(context.Context, toolkit.Call) (string, error){
		"echo": func(_ context.Context, r toolkit.Call) (string, error) { return string(r.Arguments), nil },
		"fail": func(context.Context, toolkit.Call) (string, error) { return "", errors.New("the disk is full") },
		"hang": func(ctx context.Context, _ toolkit.Call) (string, error) { <-ctx.Done(); return "", ctx.Err() },
		"long": func(context.Context, toolkit.Call) (string, error) { return strings.Repeat("0123456789", 100), nil },
	} {
		stop, err := toolkit.Serve(s.nats, s.prefix(), toolkit.Tool{Name: name, Handler: text(handler)})
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = stop() })
	}
	sub, err := s.nats.Subscribe(toolkit.Subject(s.prefix(), "later"), func(m *nats.Msg) { _ = m.Respond([]byte(`{"pending": true}`)) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// shown replaces the hash "shown" in approvals with the hash of the waiting call.
func shown(ctx context.Context, t *testing.T, s *deployment, id string, sig api.SignalRequest) api.SignalRequest {
	t.Helper()
	for i, a := range sig.Approvals {
		if a.Hash != "shown" {
			continue
		}
		run, err := s.client.Get(ctx, id)
		if err != nil || run.Waiting == nil {
			t.Fatalf("run %s waits for no approval: %v", id, err)
		}
		at := slices.IndexFunc(run.Waiting.Calls, func(c api.WaitCall) bool { return c.ID == a.CallID })
		if at < 0 {
			t.Fatalf("run %s does not wait for %s", id, a.CallID)
		}
		sig.Approvals[i].Hash = run.Waiting.Calls[at].Hash
	}
	return sig
}

func (sc scenario) play(t *testing.T, s *deployment) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, raw := range sc.Agents {
		var def struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &def); err != nil {
			t.Fatal(err)
		}
		if _, err := s.client.PutAgent(ctx, def.Name, raw); err != nil {
			t.Fatal(err)
		}
	}
	run, err := s.client.Submit(ctx, sc.Run, "")
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	signals := sc.Signals
	for e, err := range s.client.Events(ctx, run.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 0 {
			continue
		}
		types = append(types, string(e.Type))
		if e.Type != state.EntryWaiting || e.Reason == state.WaitingChild || e.Reason == state.WaitingSchedule {
			continue
		}
		switch {
		case len(signals) > 0:
			if _, err := s.client.Signal(ctx, run.ID, shown(ctx, t, s, run.ID, signals[0])); err != nil {
				t.Fatal(err)
			}
			signals = signals[1:]
		case sc.Cancel != "":
			if _, err := s.client.Cancel(ctx, run.ID, sc.Cancel); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("the run waits (%s), and the scenario has no signal left", e.Reason)
		}
	}
	return describe(t, ctx, s, run.ID, types)
}

// describe writes the result of a run, without ids and times.
func describe(t *testing.T, ctx context.Context, s *deployment, id string, types []string) string {
	t.Helper()
	run, err := s.client.Get(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := s.client.Turns(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.client.AllMessages(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, turn %d, %d model calls, %d tool calls\n", run.Status, *run.Reason, run.TurnCount, run.Usage.ModelCalls, run.Usage.ToolCalls)
	if run.Output != nil {
		fmt.Fprintf(&b, "output: %s\n", *run.Output)
	}
	if run.Confidence != nil {
		fmt.Fprintf(&b, "confidence: %.4f\n", *run.Confidence)
	}
	if run.Error != nil {
		fmt.Fprintf(&b, "error: %s\n", run.Error.Code)
	}
	b.WriteString("\nturns\n")
	for _, row := range turns {
		fmt.Fprintf(&b, "  %d@%d %s", row.Version, row.Turn, row.Reason)
		if row.Detail != "" && row.Reason != state.ChildFinished {
			fmt.Fprintf(&b, ": %s", row.Detail)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\nevents\n  %s\n\nmessages\n", strings.Join(types, "\n  "))
	for _, m := range messages {
		var marks string
		for _, mark := range []struct {
			word string
			on   bool
		}{{" tombstoned", m.Tombstoned}, {" compacted", m.Compacted}, {" synthetic", m.Synthetic}} {
			if mark.on {
				marks += mark.word
			}
		}
		fmt.Fprintf(&b, "  %s@%d%s", m.Role, m.Turn, marks)
		for _, p := range m.Parts {
			switch p.Type {
			case state.PartToolCall:
				fmt.Fprintf(&b, " → %s %s", p.Name, p.Arguments)
			case state.PartToolResult:
				content := p.Content
				if len(content) > 120 {
					content = content[:60] + "…" + content[len(content)-40:]
				}
				fmt.Fprintf(&b, " ← %s", content)
				if p.IsError {
					b.WriteString(" (error)")
				}
			default:
				fmt.Fprintf(&b, " %s", p.Text)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
