package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// loses is a tool whose worker is lost during the call, a given number of times; then it returns. It records
// its calls.
type loses struct {
	times int

	mu    sync.Mutex
	calls []tool.Call
	at    []time.Time
	begun chan struct{}
}

func newLoses(times int) *loses { return &loses{times: times, begun: make(chan struct{}, 10)} }

func (l *loses) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	l.mu.Lock()
	l.calls, l.at = append(l.calls, c), append(l.at, time.Now())
	n := len(l.calls)
	l.mu.Unlock()
	l.begun <- struct{}{}
	if n > l.times {
		return tool.Result{Content: fmt.Sprintf("done at start %d", n)}, nil
	}
	<-ctx.Done()
	return tool.Result{}, ctx.Err()
}

func (l *loses) keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for _, c := range l.calls {
		keys = append(keys, c.IdempotencyKey)
	}
	return keys
}

// asked is a probe that gives these answers, repeating the last, and records its questions.
type asked struct {
	answers []tool.Result

	mu    sync.Mutex
	calls []tool.Call
}

func (a *asked) Call(_ context.Context, c tool.Call) (tool.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, c)
	return a.answers[min(len(a.calls), len(a.answers))-1], nil
}

// losing submits a run that pays, and kills its worker at each start of the tool but the last. It returns the
// run, which the last worker has.
func (s *deployment) losing(pay *loses, probe tool.Tool, def agent.Definition, change func(*worker.Config)) state.RunID {
	s.t.Helper()
	s.tools["pay"], s.tools["pay_probe"] = pay, probe
	def.Name, def.Model = "a", agent.Model{Provider: "scripted", Responses: []model.Scripted{
		{ToolCalls: []model.ScriptedCall{{ID: "c1", Name: "pay", Arguments: json.RawMessage(`{"amount": 5}`)}}}, {Text: "end"},
	}}
	if def.Tools == nil {
		def.Tools = []agent.Tool{{Name: "pay", Probe: &tool.Probe{}}}
	}
	config := func() worker.Config {
		cfg := s.config()
		cfg.ShutdownGrace = time.Millisecond
		if change != nil {
			change(&cfg)
		}
		return cfg
	}
	cfg, store := config(), &mortal{Store: s.store}
	stop := s.workOn(store, cfg)
	id := s.submitTo(def)
	for range pay.times {
		<-pay.begun
		store.dead.Store(true)
		stop()
		if _, err := s.store.Evict(s.t.Context(), cfg.ID, 100, time.Millisecond); err != nil {
			s.t.Fatal(err)
		}
		cfg, store = config(), &mortal{Store: s.store}
		stop = s.workOn(store, cfg)
	}
	return id
}

func (s *deployment) wantResult(id state.RunID, want string) {
	s.t.Helper()
	s.awaitReason(id, state.EndCompleted)
	if got := s.lastResult(id); got != want {
		s.t.Errorf("the model reads %q, want %q", got, want)
	}
}

const unknownOutcome = "The outcome of this call is unknown"

func (s *deployment) wantUnknown(id state.RunID) {
	s.t.Helper()
	s.awaitReason(id, state.EndCompleted)
	if got := s.lastResult(id); !strings.HasPrefix(got, unknownOutcome) {
		s.t.Errorf("the model reads %q", got)
	}
}

// If the probe reports the call as done, its result counts as the tool's result: its size is bounded. The probe
// gets the key and arguments that the tool got.
func TestProbeSaysDone(t *testing.T) {
	t.Parallel()
	s, pay := newDeployment(t), newLoses(1)
	probe := &asked{answers: []tool.Result{tool.ProbeDone(tool.Result{Content: "paid " + strings.Repeat("x", 100)})}}
	id := s.losing(pay, probe, agent.Definition{Tools: []agent.Tool{{Name: "pay", MaxResult: 10, Timeout: model.Duration(time.Hour), Probe: &tool.Probe{}}}}, nil)
	s.wantResult(id, "paid xxxxx\n[output truncated: 10 of 105 bytes]")
	if len(pay.calls) != 1 || len(probe.calls) != 1 {
		t.Fatalf("%d starts, %d probe calls, want 1 and 1", len(pay.calls), len(probe.calls))
	}
	was, got := pay.calls[0], probe.calls[0]
	if got.IdempotencyKey != was.IdempotencyKey || string(got.Arguments) != string(was.Arguments) || got.ID != was.ID || got.Run != was.Run || got.Name != "pay_probe" {
		t.Errorf("the probe got %+v, want what the tool got: %+v", got, was)
	}
	if left := time.Until(got.Deadline); left < 30*time.Minute {
		t.Errorf("the probe's time limit is %s, want the tool's", left)
	}
	if st := s.awaitReason(id, state.EndCompleted); st.Usage.ToolCalls != 1 {
		t.Errorf("%d tool calls were counted", st.Usage.ToolCalls)
	}
}

// A hook that changes the arguments also changes the key. It is not called again before the probe, because it
// could decide differently.
func TestProbeGetsWhatTheToolGot(t *testing.T) {
	t.Parallel()
	s, pay := newDeployment(t), newLoses(1)
	probe := &asked{answers: []tool.Result{tool.ProbeDone(tool.Result{Content: "paid"})}}
	n := 0
	edits := hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
		n++
		return hook.Answer{Arguments: json.RawMessage(fmt.Sprintf(`{"amount":5,"currency":"C%d"}`, n))}, nil
	})
	id := s.losing(pay, probe, agent.Definition{Hooks: &agent.Hooks{PreTool: named("edits")}}, func(cfg *worker.Config) {
		cfg.Hooks = hookspec.Kinds(map[string]hook.Hook{"edits": edits})
	})
	s.wantResult(id, "paid")
	was, got := pay.calls[0], probe.calls[0]
	if got.IdempotencyKey != was.IdempotencyKey || string(got.Arguments) != string(was.Arguments) || !strings.Contains(string(was.Arguments), "C1") {
		t.Errorf("the probe got %s %s, want what the tool got: %s %s", got.IdempotencyKey, got.Arguments, was.IdempotencyKey, was.Arguments)
	}
}

// A call whose key the probe refuses is restarted at once with another key, but only once: if its worker is
// lost again and the probe answers the same, the outcome is unknown (I4).
func TestProbeRefusesTheKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lost    int
		answers []tool.Result
		starts  int
		result  string
	}{
		{1, []tool.Result{tool.ProbeNotDone(true)}, 2, "done at start 2"},
		{2, []tool.Result{tool.ProbeNotDone(true), tool.ProbeDone(tool.Result{Content: "the second was paid", IsError: true})}, 2, "the second was paid"},
		{2, []tool.Result{tool.ProbeNotDone(true)}, 2, unknownOutcome},
	} {
		s, pay, probe := newDeployment(t), newLoses(test.lost), &asked{answers: test.answers}
		id := s.losing(pay, probe, agent.Definition{}, nil)
		if test.result == unknownOutcome {
			s.wantUnknown(id)
		} else {
			s.wantResult(id, test.result)
		}
		keys := pay.keys()
		if len(keys) != test.starts || keys[0] == keys[1] {
			t.Errorf("started with the keys %v, want %d different ones", keys, test.starts)
		}
		for i, c := range probe.calls {
			if c.IdempotencyKey != keys[i] {
				t.Errorf("probe call %d is about %s, want %s", i+1, c.IdempotencyKey, keys[i])
			}
		}
	}
}

// Without a promise, a call that was not done may still arrive until its deadline plus a margin. Until then the
// turn waits without a worker. Then the probe is called again and decides; the key stays the same (I4, I6).
func TestProbeWithoutPromise(t *testing.T) {
	for _, test := range []struct {
		name   string
		after  tool.Result // the probe's answer after the deadline
		starts int
		result string
	}{
		{"not done", tool.ProbeNotDone(false), 2, "done at start 2"},
		{"done after all", tool.ProbeDone(tool.Result{Content: "late, but paid"}), 1, "late, but paid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, pay := newDeployment(t), newLoses(1)
				began := time.Now()
				const until = 30*time.Second + 7*time.Second
				questions := 0
				probe := tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
					if questions++; time.Since(began) < until {
						return tool.ProbeNotDone(false), nil
					}
					return test.after, nil
				})
				id := s.losing(pay, probe, agent.Definition{Tools: []agent.Tool{{Name: "pay", Timeout: model.Duration(30 * time.Second), Probe: &tool.Probe{}}}},
					func(cfg *worker.Config) { cfg.ProbeMargin = 7 * time.Second })
				time.Sleep(20 * time.Second) // the bubble's clock
				st, err := s.store.Load(t.Context(), id)
				if err != nil || st.Status == state.Running {
					t.Errorf("after 20 s the run is %s, %v: it occupies a worker", st.Status, err)
				}
				time.Sleep(30 * time.Second)
				s.wantResult(id, test.result)
				if keys := pay.keys(); len(keys) != test.starts || len(slices.Compact(keys)) != 1 {
					t.Errorf("started with the keys %v", keys)
				}
				if n := len(pay.at); n == 2 && pay.at[1].Sub(began) < until {
					t.Errorf("I4: started again after %s, while the first request may still arrive", pay.at[1].Sub(began))
				}
				if questions > 6 {
					t.Errorf("the probe was called %d times", questions)
				}
			})
		})
	}
}

// A probe that fails, hangs, panics or returns an invalid answer gives no outcome. The worker calls it a few
// times; then the model reads the same as without a probe.
func TestProbeCannotSay(t *testing.T) {
	for name, probe := range map[string]tool.Func{
		"an error":  func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, context.Canceled },
		"a failure": func(context.Context, tool.Call) (tool.Result, error) { return tool.Error("out of order"), nil },
		"nonsense":  func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "<html>"}, nil },
		"no result": func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Content: `{"outcome":"done"}`}, nil
		},
		"a word that is none": func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Content: `{"outcome":"maybe"}`}, nil
		},
		"later":   func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Pending: true}, nil },
		"unknown": func(context.Context, tool.Call) (tool.Result, error) { return tool.ProbeUnknown(), nil },
		"a panic": func(context.Context, tool.Call) (tool.Result, error) { panic("ouch") },
		"too late": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			<-ctx.Done()
			return tool.ProbeNotDone(true), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, pay, n := newDeployment(t), newLoses(1), 0
				id := s.losing(pay, tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
					n++
					return probe(ctx, c)
				}), agent.Definition{Tools: []agent.Tool{{Name: "pay", Timeout: model.Duration(2 * time.Second), Probe: &tool.Probe{}}}}, nil)
				time.Sleep(10 * time.Second) // the bubble's clock
				s.wantUnknown(id)
				if len(pay.calls) != 1 || n != 3 {
					t.Errorf("%d starts, %d probe calls, want 1 and 3", len(pay.calls), n)
				}
			})
		})
	}
}

// A probe that recovers decides the outcome.
func TestProbeIsAskedAgain(t *testing.T) {
	t.Parallel()
	s, pay := newDeployment(t), newLoses(1)
	probe := &asked{answers: []tool.Result{tool.Error("out of order"), tool.ProbeUnknown(), {Content: `{"outcome":"done","result":{"id": 7}}`}}}
	s.wantResult(s.losing(pay, probe, agent.Definition{}, nil), `{"id":7}`)
}

// An abort ends a run during a probe call (I7).
func TestAbortDuringProbe(t *testing.T) {
	t.Parallel()
	s, pay := newDeployment(t), newLoses(1)
	begun := make(chan struct{}, 3)
	probe := tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	})
	id := s.losing(pay, probe, agent.Definition{}, nil)
	<-begun
	s.abort(id)
	s.await(id, "cancelled", func(st state.State) bool { return st.Status == state.Cancelled })
	if len(pay.calls) != 1 || len(begun) != 0 {
		t.Errorf("%d starts, %d more probe calls after the abort", len(pay.calls), len(begun))
	}
}

// A message that interrupts a turn during a probe call costs neither an attempt nor the probe's answer.
func TestInterruptDuringProbe(t *testing.T) {
	t.Parallel()
	s, pay := newDeployment(t), newLoses(1)
	begun := make(chan struct{})
	var asked atomic.Int32
	probe := tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		if asked.Add(1) == 1 {
			close(begun)
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		}
		return tool.Result{Content: `{"outcome":"done","result":{"id": 7}}`}, nil
	})
	id := s.losing(pay, probe, agent.Definition{}, nil)
	<-begun
	s.interrupt(id, "stop")
	s.wantResult(id, `{"id":7}`)
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		if e.Attempt > 2 {
			t.Errorf("%s is of attempt %d, want no more than those of the lost worker and its successor", e.Type, e.Attempt)
		}
	}
}

// A tool of an MCP server can be the probe of another: the worker resolves its name in the same way as that of
// a tool.
func TestProbeOverMCP(t *testing.T) {
	t.Parallel()
	s, pay := newDeployment(t), newLoses(1)
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	var meta []any
	for _, name := range []string{"payment_status", "something_else"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			meta = append(meta, name, r.Params.Meta["turnpike.dev/idempotencyKey"], string(r.Params.Arguments))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: `{"outcome":"done","result":"paid, says MCP"}`}}}, nil
		})
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(h.Close)
	own := toolspec.Servers{Server: toolspec.Server{URL: h.URL}, Allow: []string{"payment_status"}}
	mcpKind := s.mcpWorker().Kinds[toolspec.MCP]
	with := func(cfg *worker.Config) { cfg.Kinds[toolspec.MCP] = mcpKind }
	id := s.losing(pay, nil, agent.Definition{Tools: []agent.Tool{{Name: "pay", Probe: &tool.Probe{Kind: toolspec.MCP, Own: tool.EncodeSettings(own)}}}}, with)
	s.wantResult(id, "paid, says MCP")
	if want := []any{"payment_status", pay.keys()[0], `{"amount":5}`}; !slices.Equal(meta, want) {
		t.Errorf("the server got the calls %v, want %v", meta, want)
	}

	own.Allow = nil
	id = s.submit(state.Limits{}, []agent.Tool{{Name: "pay", Probe: &tool.Probe{Kind: toolspec.MCP, Own: tool.EncodeSettings(own)}}}, model.Scripted{Text: "end"})
	st := s.awaitReason(id, state.EndInvalidAgent)
	if st.Error == nil || !strings.Contains(st.Error.Message, "tools[0].probe: its source lists 2 tools, but a probe is exactly 1 tool: correct the source, or name that tool in its allow") {
		t.Errorf("error = %+v", st.Error)
	}
}

// Tools and their probe may come from the same MCP server.
func TestProbeOfAToolOverMCP(t *testing.T) {
	t.Parallel()
	s, pay, over := newDeployment(t), newLoses(1), make(chan struct{})
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	for name, call := range map[string]func() string{
		"pay":    func() string { pay.begun <- struct{}{}; <-over; return "too late" },
		"status": func() string { return `{"outcome":"done","result":"paid, says MCP"}` },
	} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: call()}}}, nil
		})
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() { close(over); h.Close() })
	only := func(name string) json.RawMessage {
		return tool.EncodeSettings(toolspec.Servers{Server: toolspec.Server{URL: h.URL}, Allow: []string{name}})
	}
	mcpKind := s.mcpWorker().Kinds[toolspec.MCP]
	id := s.losing(pay, nil, agent.Definition{Tools: []agent.Tool{{Kind: toolspec.MCP, Own: only("pay"), Probe: &tool.Probe{Kind: toolspec.MCP, Own: only("status")}}}},
		func(cfg *worker.Config) { cfg.Kinds[toolspec.MCP] = mcpKind })
	s.wantResult(id, "paid, says MCP")
}
