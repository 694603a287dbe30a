package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A definition has the tool's schema and all its rules.
func TestUse(t *testing.T) {
	t.Parallel()
	look := func(context.Context, refund) (string, turnpike.Outcome, error) { return "", tool.NotDone, nil }
	full := turnpike.NewTool("pay", "Pays.", pay, turnpike.Idempotent(), turnpike.Approval("always"), turnpike.Risk(tool.Pays), turnpike.Timeout(time.Minute),
		turnpike.Retries(2), turnpike.Probe(look), turnpike.MaxCalls(3), turnpike.Serial(), turnpike.Async())
	b, err := json.Marshal(turnpike.Use(full))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"name":"pay","description":"Pays.","schema":{"type":"object","properties":{"Order":{"type":"string","description":"its number"},"Cents":{"type":"integer"}},"required":["Order","Cents"],"additionalProperties":false},` +
		`"approval":"always","risk":"pays","idempotent":true,"probe":{"name":"pay_probe"},"async":true,"max_calls":3,"timeout":"1m0s","concurrency":"serial"}]`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Error(diff)
	}
	plain := turnpike.Use(turnpike.NewTool("look", "Looks.", func(context.Context, struct{}) (int, error) { return 1, nil }, turnpike.Schema(json.RawMessage(`{"type":"object"}`))))
	if string(plain[0].Schema) != `{"type":"object"}` {
		t.Errorf("schema %s", plain[0].Schema)
	}
}

func TestMustSchema(t *testing.T) {
	t.Parallel()
	if got, want := string(turnpike.MustSchema[answer]()), `{"type":"object","properties":{"Refunded":{"type":"boolean"}},"required":["Refunded"],"additionalProperties":false}`; got != want {
		t.Errorf("schema %s, want %s", got, want)
	}
	panics(t, "schema of func()", func() { turnpike.MustSchema[func()]() })
}

func panics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
			t.Errorf("panicked with %s, want %q", p, want)
		}
	}()
	f()
}

// Functions that require a tool call report its absence.
func TestOutsideACall(t *testing.T) {
	t.Parallel()
	panics(t, "outside a tool call", func() { turnpike.IdempotencyKey(t.Context()) })
	if _, ok := turnpike.CallFrom(t.Context()); ok {
		t.Error("there is a call")
	}
	if text, ok := turnpike.Answered(t.Context(), nil); ok {
		t.Errorf("without a call there is an answer %q", text)
	}
	if err := turnpike.Again(nil, time.Second); err != nil {
		t.Errorf("Again(nil) = %v", err)
	}
	cause := errors.New("busy")
	if err := turnpike.Again(cause, time.Second); !errors.Is(err, cause) || err.Error() != "busy" {
		t.Errorf("Again = %v", err)
	}
}

// observed records what the tools of TestTools received.
type observed struct {
	mu   sync.Mutex
	keys []string
}

func (o *observed) note(ctx context.Context) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keys = append(o.keys, turnpike.IdempotencyKey(ctx))
	return len(o.keys)
}

type kept struct{ Size int }

// Go tools keep their guarantees in runs, called by agents in Go and in YAML.
func TestTools(t *testing.T) {
	t.Parallel()
	retried, exhausted := &observed{}, &observed{}
	tools := []turnpike.Tool{
		turnpike.NewTool("value", "", func(_ context.Context, in map[string]int) (map[string]int, error) {
			return map[string]int{"sum": in["a"] + in["b"]}, nil
		}),
		turnpike.NewTool("raw", "", func(context.Context, struct{}) (tool.Result, error) { return tool.Error("no such thing"), nil }),
		turnpike.NewTool("fails", "", func(context.Context, struct{}) (string, error) { return "", errors.New("out of stock") }),
		turnpike.NewTool("retried", "", func(ctx context.Context, _ struct{}) (string, error) {
			if retried.note(ctx) < 3 {
				return "", turnpike.Again(errors.New("busy"), 0)
			}
			return "at last", nil
		}, turnpike.Idempotent(), turnpike.Retries(2)),
		turnpike.NewTool("exhausted", "", func(ctx context.Context, _ struct{}) (string, error) {
			exhausted.note(ctx)
			return "", turnpike.Again(errors.New("still busy"), 0)
		}, turnpike.Idempotent(), turnpike.Retries(1)),
		turnpike.NewTool("asks", "", func(ctx context.Context, _ struct{}) (string, error) {
			var k kept
			text, ok := turnpike.Answered(ctx, &k)
			if !ok {
				return "", turnpike.Ask("Which size?", kept{42})
			}
			return fmt.Sprintf("size %s, kept %d", text, k.Size), nil
		}),
		turnpike.NewTool("later", "", func(context.Context, struct{}) (string, error) { return "", turnpike.ErrPending }, turnpike.Async()),
		turnpike.NewTool("where", "", func(ctx context.Context, _ struct{}) (string, error) {
			c, ok := turnpike.CallFrom(ctx)
			return fmt.Sprint(ok, c.Name, c.Tenant, c.Run != "", c.IdempotencyKey == turnpike.IdempotencyKey(ctx)), nil
		}),
		payTool(),
	}
	d := open(t, func(o *turnpike.Options) { o.Tools = tools })
	run := func(name string, args any) (*turnpike.Run, turnpike.Info) {
		t.Helper()
		a := agentOf("a-"+name, calls(name, args), model.Scripted{Text: "end"})
		for _, used := range turnpike.Use(tools...) {
			if used.Name == name {
				a.Tools = []tool.Definition{used}
			}
		}
		put(t, d.Client, a)
		r := submit(t, d.Client, turnpike.Submission{Agent: a.Name, Input: "go"})
		i, err := r.WaitIdle(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r, i
	}
	result := func(r *turnpike.Run) string {
		t.Helper()
		if i, err := r.Wait(t.Context()); err != nil || i.Status != "completed" {
			t.Fatal(i.Status, i.Error, err)
		}
		all, err := r.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Role == state.RoleTool {
				return m.Parts[0].Content
			}
		}
		t.Fatal("no result")
		return ""
	}
	none := struct{}{}
	for name, want := range map[string]string{
		"raw": "no such thing", "fails": "out of stock", "retried": "at last", "exhausted": "still busy", "where": "truewheredefaulttrue true",
	} {
		r, _ := run(name, none)
		if got := result(r); !strings.Contains(got, want) {
			t.Errorf("%s: result %q, want %q", name, got, want)
		}
	}
	r, _ := run("value", map[string]int{"a": 1, "b": 2})
	if got := result(r); got != `{"sum":3}` {
		t.Errorf("value: result %q", got)
	}
	r, _ = run("pay", map[string]any{"Order": "7", "Cent": 1})
	if got := result(r); !strings.Contains(got, `Invalid arguments for tool "pay"`) {
		t.Errorf("pay: result %q", got)
	}
	for _, o := range []struct {
		*observed
		n int
	}{{retried, 3}, {exhausted, 2}} {
		if len(o.keys) != o.n || o.keys[0] != o.keys[o.n-1] {
			t.Errorf("keys %q, want %d equal ones", o.keys, o.n)
		}
	}
	r, i := run("asks", none)
	if i.Waiting == nil || i.Waiting.Question == nil || *i.Waiting.Question != "Which size?" {
		t.Fatalf("waits for %+v", i.Waiting)
	}
	if err := r.Answer(t.Context(), "L"); err != nil {
		t.Fatal(err)
	}
	if got := result(r); got != "size L, kept 42" {
		t.Errorf("asks: result %q", got)
	}
	r, i = run("later", none)
	if i.Waiting == nil || i.Waiting.Reason != "waiting_tool" {
		t.Fatalf("waits for %+v", i.Waiting)
	}
	if err := r.ToolResult(t.Context(), i.Waiting.Calls[0].ID, map[string]bool{"sent": true}); err != nil {
		t.Fatal(err)
	}
	if got := result(r); got != `{"sent":true}` {
		t.Errorf("later: result %q", got)
	}

	// An agent in YAML that only names the tool gets its schema.
	if _, err := d.PutYAML(t.Context(), []byte("{name: short, tools: [{name: value}], model: {provider: scripted, responses: [{tool_calls: [{name: value, arguments: {a: x}}]}, {text: end}]}}")); err != nil {
		t.Fatal(err)
	}
	if got := result(submit(t, d.Client, turnpike.Submission{Agent: "short", Input: "go"})); !strings.Contains(got, "Invalid arguments") {
		t.Errorf("short: result %q", got)
	}
	// One with a schema of its own that admits more does not open the tool.
	if _, err := d.PutYAML(t.Context(), []byte("{name: loose, tools: [{name: fails, schema: {type: object}}], model: {provider: scripted, responses: [{tool_calls: [{name: fails, arguments: {more: 1}}]}, {text: end}]}}")); err != nil {
		t.Fatal(err)
	}
	if got := result(submit(t, d.Client, turnpike.Submission{Agent: "loose", Input: "go"})); !strings.Contains(got, `Invalid arguments for tool "fails"`) {
		t.Errorf("loose: result %q", got)
	}
}

// The worker makes no retry whose delay would outlast the call: the model reads the tool's own error at once. The same
// holds for a tool without retries. A retry that the end of the call cuts short is not made.
func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	ended, cut := &observed{}, make(chan struct{})
	again := func(after time.Duration) func(context.Context, struct{}) (string, error) {
		return func(ctx context.Context, _ struct{}) (string, error) {
			ended.note(ctx)
			return "", fmt.Errorf("not now: %w", turnpike.Again(errors.New("busy"), after))
		}
	}
	tools := []turnpike.Tool{
		turnpike.NewTool("late", "", again(time.Hour), turnpike.Idempotent(), turnpike.Retries(5), turnpike.Timeout(3*time.Second)),
		turnpike.NewTool("once", "", again(0), turnpike.Idempotent()),
		turnpike.NewTool("cut", "", func(context.Context, struct{}) (string, error) {
			defer close(cut)
			return "", turnpike.Again(errors.New("busy"), time.Minute)
		}, turnpike.Idempotent(), turnpike.Retries(1)),
	}
	d := open(t, func(o *turnpike.Options) { o.Tools = tools })
	start := func(used turnpike.Tool) *turnpike.Run {
		t.Helper()
		name := turnpike.Use(used)[0].Name
		a := agentOf("a-"+name, calls(name, struct{}{}), model.Scripted{Text: "end"})
		a.Tools = turnpike.Use(used)
		put(t, d.Client, a)
		return submit(t, d.Client, turnpike.Submission{Agent: a.Name, Input: "go"})
	}
	for _, used := range tools[:2] {
		r := start(used)
		if i, err := r.Wait(t.Context()); err != nil || i.Status != "completed" {
			t.Fatal(i.Status, i.Error, err)
		}
		all, err := r.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Role == state.RoleTool && m.Parts[0].Content != "not now: busy" {
				t.Errorf("the model reads %q, want the error of the tool", m.Parts[0].Content)
			}
		}
	}
	if len(ended.keys) != 2 {
		t.Errorf("%d calls, want one of each tool", len(ended.keys))
	}
	r := start(tools[2])
	<-cut
	if err := r.Cancel(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	if i, err := r.Wait(t.Context()); err != nil || i.Status != "cancelled" {
		t.Errorf("the run is %s, %v; want it cancelled", i.Status, err)
	}
}

// One tool serves concurrent calls of many runs.
func TestToolIsConcurrent(t *testing.T) {
	t.Parallel()
	const n = 8
	var in atomic.Int32
	all := make(chan struct{})
	meet := turnpike.NewTool("meet", "", func(ctx context.Context, p struct{ N int }) (int, error) {
		if in.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return p.N, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	d := open(t, func(o *turnpike.Options) { o.Tools = []turnpike.Tool{meet} })
	var runs []*turnpike.Run
	for i := range n {
		a := agentOf(fmt.Sprint("meets-", i), calls("meet", map[string]int{"N": i}), model.Scripted{Text: "met"})
		a.Tools = turnpike.Use(meet)
		put(t, d.Client, a)
		runs = append(runs, submit(t, d.Client, turnpike.Submission{Agent: a.Name, Input: "x"}))
	}
	for _, r := range runs {
		if text, err := turnpike.Result[string](t.Context(), r); err != nil || text != "met" {
			t.Error(text, err)
		}
	}
}

// Open reports all errors in its options, and connects to nothing before there are none.
func TestOpenReportsMistakes(t *testing.T) {
	t.Parallel()
	var nobody *nilStore
	ok := func(context.Context, refund) (string, error) { return "", nil }
	_, err := turnpike.Open(t.Context(), turnpike.Options{
		Store: nobody, Tenant: "No Tenant", LeaseDuration: -1, NATS: turnpike.NATS{URL: "nats://127.0.0.1:1", Replicas: -1},
		Tools: []turnpike.Tool{
			turnpike.NewTool[refund, string]("nothing", "", nil),
			turnpike.NewTool("twice", "", ok), turnpike.NewTool("twice", "", ok),
			turnpike.NewTool("bad name", "", ok),
			turnpike.NewTool("number", "", func(context.Context, int) (string, error) { return "", nil }),
			turnpike.NewTool("function", "", func(context.Context, struct{ F func() }) (string, error) { return "", nil }),
			turnpike.NewTool("schema", "", ok, turnpike.Schema(json.RawMessage(`{"type":`))),
			turnpike.NewTool("list", "", ok, turnpike.Schema(json.RawMessage(`{"type":"array"}`))),
			turnpike.NewTool("rule", "", ok, turnpike.Approval("args.Cents >")),
			turnpike.NewTool("risk", "", ok, turnpike.Risk("burns")),
			turnpike.NewTool("retries", "", ok, turnpike.Retries(1)),
			turnpike.NewTool("negative", "", ok, turnpike.Retries(-1), turnpike.Timeout(-1), turnpike.MaxCalls(0)),
			turnpike.NewTool("probe", "", ok, turnpike.Probe(func(context.Context, answer) (string, turnpike.Outcome, error) { return "", "", nil })),
			turnpike.NewTool("noprobe", "", ok, turnpike.Probe[refund, string](nil)),
			{},
		},
		Models:    turnpike.Models{"none": nil},
		Loops:     loop.Registry{"absent": nil, "react": checked.Loop, "mine": checked.Loop},
		Hooks:     map[string]hook.Hook{"missing": nil},
		Kinds:     tool.Kinds{"void": nil, "go": nil},
		HookKinds: hook.Kinds{"empty": nil},
		MaxResult: -1, OIDC: turnpike.OIDC{Audience: "turnpike"}, Redis: turnpike.Redis{URL: "redis://127.0.0.1:1"},
		Retention: agent.Retention{Completed: agent.Period(time.Second), Failed: -1, Events: agent.Period(time.Minute)},
	})
	if err == nil {
		t.Fatal("Open accepts all of these options")
	}
	for _, want := range []string{
		"Store holds a nil *turnpike_test.nilStore", "tenant \"No Tenant\"", "LeaseDuration is -1ns", "NATS.Replicas is -1",
		"Tools[0] nothing: the function of the tool is nil", `two tools have the name "twice" (a probe counts as a tool, and its name ends with _probe): rename one of the tools`, "Tools[3] bad name: ", "Tools[4] number: schema: ", "Tools[5] function: schema: ",
		"Tools[6] schema: schema: ", "Tools[7] list: ", "Tools[8] rule: ", "Tools[9] risk: ", "Tools[10] retries: the tool has the option Retries", "retries is -1", "timeout is -1ns", "max calls is 0",
		"Tools[12] probe: the function of the option Probe has arguments of type turnpike_test.answer", "Tools[13] noprobe: the function of the option Probe is nil", "Tools[14]: the tool is a zero value", `Models["none"] is nil`,
		"Retention.Completed is 1s: set 1m0s or more", "Retention.Failed is -1ns",
		`Loops["absent"] is nil`, `Loops["react"] has the name of a built-in loop`, `Hooks["missing"] is nil`, `Kinds["void"] is nil`, `Kinds has the name "go"`, `HookKinds["empty"] is nil`,
		"MaxResult is -1", "OIDC.Audience is \"turnpike\"", "Store and Redis.URL are both set",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	for _, right := range []string{"Retention.Events", `Loops["mine"]`} {
		if strings.Contains(err.Error(), right) {
			t.Errorf("%s is refused:\n%v", right, err)
		}
	}
}

// nilStore is an interface value with a nil pointer.
type nilStore struct{ state.Store }
