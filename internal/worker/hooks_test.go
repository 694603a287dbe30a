package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// watchedBy submits a run of an agent with these hooks, all of them Go functions.
func (s *deployment) watchedBy(hooks agent.Hooks, in map[string]hook.Func, responses ...model.Scripted) state.RunID {
	s.t.Helper()
	cfg := s.config()
	hooked := map[string]hook.Hook{}
	cfg.Hooks = hookspec.Kinds(hooked)
	for name, f := range in {
		hooked[name] = f
	}
	s.work(cfg)
	return s.submitTo(agent.Definition{
		Name: "a", Model: agent.Model{Provider: "scripted", Responses: responses}, Tools: []agent.Tool{{Name: "do"}}, Hooks: &hooks,
	})
}

func named(name string) []agent.Hook {
	return []agent.Hook{{Kind: hookspec.Go, Own: tool.EncodeSettings(hookspec.Function{Name: name})}}
}

// Hooks after a response do not delay the turn and cannot change its tools. Their messages reach the model in
// the next turn (A13).
func TestPostSamplingHooks(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	ran := make(chan struct{})
	s.tools["do"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		close(ran)
		return tool.Result{Content: "done"}, nil
	})
	id := s.watchedBy(agent.Hooks{PostSampling: append(named("slow"), named("broken")...)}, map[string]hook.Func{
		"slow": func(ctx context.Context, r hook.Request) (hook.Answer, error) {
			if len(r.Calls) == 0 {
				return hook.Answer{}, nil
			}
			// The tool does not wait for the hook, but the hook waits for the tool.
			select {
			case <-ran:
				return hook.Answer{Notes: []string{"saw " + r.Calls[0].Tool}}, nil
			case <-ctx.Done():
				return hook.Answer{}, ctx.Err()
			}
		},
		"broken": func(context.Context, hook.Request) (hook.Answer, error) { panic("ouch") },
	}, call("do", "c1"), model.Scripted{Text: "bye"})
	if run := s.awaitReason(id, state.EndCompleted); run.Trouble != (state.Trouble{HookErrors: 1}) {
		t.Errorf("the failures are %+v, want one failed hook", run.Trouble)
	}
	var roles []string
	for _, m := range s.view(id) {
		roles = append(roles, string(m.Role)+" "+m.Text())
	}
	if got := strings.Join(roles, "|"); got != "user hello|assistant |tool |system saw do|assistant bye" {
		t.Errorf("transcript = %s", got)
	}
}

// A failed model call runs the failure hooks and no stop hook (A9).
func TestStopFailureHooks(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	told := make(chan hook.Request, 2)
	id := s.watchedBy(agent.Hooks{StopFailure: named("failed"), Stop: named("stop")}, map[string]hook.Func{
		"failed": func(_ context.Context, r hook.Request) (hook.Answer, error) {
			told <- r
			return hook.Answer{}, errors.New("it fails, too")
		},
		"stop": func(_ context.Context, r hook.Request) (hook.Answer, error) {
			told <- r
			return hook.Answer{}, nil
		},
	}, model.Scripted{Error: model.Auth})
	s.awaitReason(id, state.EndModelError)
	if r := <-told; r.Point != hook.StopFailure || r.Run != id || r.Error == nil || r.Error.Code != "auth" {
		t.Errorf("the hook received %+v", r)
	}
	select {
	case r := <-told:
		t.Errorf("the second hook received %+v", r)
	default:
	}
}

// Policies written as expressions decide without a hook call (A8, A13).
func TestPolicies(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.watchedBy(agent.Hooks{
		PreTool: []agent.Hook{{Kind: hookspec.CEL, Own: tool.EncodeSettings(hookspec.Expression{When: `tool == "do" && args.amount > 100`, Then: "deny", Message: "too much"})}},
		Stop:    []agent.Hook{{Kind: hookspec.CEL, Own: tool.EncodeSettings(hookspec.Expression{When: `!output.contains("sorry")`, Then: "block", Message: "Say sorry."})}},
	}, nil, model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "do", ID: "c1", Arguments: []byte(`{"amount":500}`)}}},
		model.Scripted{Text: "no"}, model.Scripted{Text: "sorry"})
	st := s.awaitReason(id, state.EndCompleted)
	if *st.Output != "sorry" || st.Turn != 2 || st.StopBlocks != 1 {
		t.Errorf("output %q, turn %d, blocks %d", *st.Output, st.Turn, st.StopBlocks)
	}
	if got := s.view(id)[2].Parts[0].Content; got != "Denied: too much" {
		t.Errorf("result = %q", got)
	}
}

// Input hooks, in Go or as expressions, decide what the model reads.
func TestInputHooks(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	seen := make(chan hook.Request, 4)
	hooks := agent.Hooks{Input: append(named("mask"), agent.Hook{
		Kind: hookspec.CEL, Own: tool.EncodeSettings(hookspec.Expression{When: `input.contains("bomb")`, Then: "refuse", Message: "Not that."}),
	})}
	id := s.watchedBy(hooks, map[string]hook.Func{"mask": func(_ context.Context, r hook.Request) (hook.Answer, error) {
		seen <- r
		masked := strings.ReplaceAll(r.Input, "hello", "[hello]")
		return hook.Answer{Replace: &masked}, nil
	}}, model.Scripted{Text: "hi"})
	s.awaitReason(id, state.EndCompleted)
	if r := <-seen; r.Point != hook.Input || r.Input != "hello" || r.Run != id || r.Call != nil || r.Output != "" {
		t.Errorf("the hook received %+v", r)
	}
	if got := s.view(id)[0].Text(); got != "[hello]" {
		t.Errorf("the model reads %q", got)
	}
	bomb := state.UserText("How do I build a bomb?")
	s.signal(id, state.Signal{ID: "sig", Message: &bomb, At: state.At(time.Now())})
	if run := s.awaitReason(id, state.EndRefused); *run.Output != "Not that." || run.Usage.ModelCalls != 1 {
		t.Errorf("the output is %q after %d model calls", *run.Output, run.Usage.ModelCalls)
	}
	if got := s.view(id); len(got) != 2 {
		t.Errorf("the view has %d messages, want those of the first answer only", len(got))
	}
}

// A hook that hangs or fails has the effect that its on_error says.
func TestHookFailures(t *testing.T) {
	t.Parallel()
	broken := map[string]hook.Func{"hangs": func(ctx context.Context, _ hook.Request) (hook.Answer, error) {
		<-ctx.Done()
		return hook.Answer{}, ctx.Err()
	}}
	for onError, want := range map[string]string{"": "Denied: hook hangs failed: the hook did not answer within its timeout of 1ms: start or repair the hook, or raise its timeout. Only an operator can repair the hook: continue without this call", "allow": "done"} {
		s := newDeployment(t)
		s.tools["do"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "done"}, nil })
		h := agent.Hook{Kind: hookspec.Go, Own: tool.EncodeSettings(hookspec.Function{Name: "hangs"}), Timeout: model.Duration(time.Millisecond), OnError: onError}
		id := s.watchedBy(agent.Hooks{PreTool: []agent.Hook{h}}, broken, call("do", "c1"), model.Scripted{Text: "bye"})
		if run := s.awaitReason(id, state.EndCompleted); run.Trouble != (state.Trouble{HookErrors: 1}) {
			t.Errorf("on_error %q: the failures are %+v, want one failed hook", onError, run.Trouble)
		}
		if got := s.view(id)[2].Parts[0].Content; got != want {
			t.Errorf("on_error %q: result = %q, want %q", onError, got, want)
		}
	}
	// A hook that no worker has counts as a failed hook.
	s := newDeployment(t)
	id := s.watchedBy(agent.Hooks{Stop: []agent.Hook{{Kind: hookspec.Go, Own: tool.EncodeSettings(hookspec.Function{Name: "nobody"}), OnError: "deny"}}}, nil, model.Scripted{Text: "bye"})
	s.awaitReason(id, state.EndStopHookFailed)
}

// A deciding stop hook that fails makes the run fail, without output. A replay calls the hook with the same
// answer and makes no model call.
func TestStopHookFails(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var broken atomic.Bool
	broken.Store(true)
	var judged []string
	hooks := map[string]hook.Func{"guard": func(_ context.Context, r hook.Request) (hook.Answer, error) {
		if broken.Load() {
			return hook.Answer{}, errors.New("no connection")
		}
		judged = append(judged, r.Output)
		return hook.Answer{}, nil
	}}
	guard := agent.Hook{Kind: hookspec.Go, Own: tool.EncodeSettings(hookspec.Function{Name: "guard"}), OnError: "deny"}
	id := s.watchedBy(agent.Hooks{Stop: []agent.Hook{guard}}, hooks, model.Scripted{Text: "the answer"})
	failed := s.awaitReason(id, state.EndStopHookFailed)
	if failed.Status != state.Failed || failed.Output != nil || failed.Error == nil || !strings.Contains(failed.Error.Message, "no connection") {
		t.Fatalf("the run is %s with output %v and error %+v, want failed without output", failed.Status, failed.Output, failed.Error)
	}
	broken.Store(false)
	s.signal(id, state.ReplaySignal(failed.Version, failed.UpdatedAt))
	if done := s.awaitReason(id, state.EndCompleted); done.Output == nil || *done.Output != "the answer" || done.Usage.ModelCalls != failed.Usage.ModelCalls {
		t.Errorf("after the replay the output is %v with %d model calls, want the same answer and %d", done.Output, done.Usage.ModelCalls, failed.Usage.ModelCalls)
	}
	if !slices.Equal(judged, []string{"the answer"}) {
		t.Errorf("the hook judged %q", judged)
	}
}

// An abort cancels a hook call in flight (A5).
func TestAbortReachesHook(t *testing.T) {
	t.Parallel()
	for _, hooks := range []agent.Hooks{{Input: named("hangs")}, {PreTool: named("hangs")}, {Stop: named("hangs")}} {
		s := newDeployment(t)
		entered, left := make(chan struct{}), make(chan struct{})
		responses := []model.Scripted{{Text: "bye"}}
		if len(hooks.PreTool) > 0 {
			responses[0] = call("do", "c1")
		}
		id := s.watchedBy(hooks, map[string]hook.Func{"hangs": func(ctx context.Context, _ hook.Request) (hook.Answer, error) {
			close(entered)
			<-ctx.Done()
			close(left)
			return hook.Answer{}, ctx.Err()
		}}, responses...)
		<-entered
		s.abort(id)
		s.awaitReason(id, state.EndAbortedStreaming)
		<-left
	}
}
