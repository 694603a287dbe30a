package hookcall_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/hook/hookcall"
	"github.com/turnpike-dev/turnpike/pkg/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func says(a hook.Answer) hook.Hook {
	return hook.Func(func(context.Context, hook.Request) (hook.Answer, error) { return a, nil })
}

func text(s string) *string { return &s }

var (
	fails = hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
		return hook.Answer{}, errors.New("out of order")
	})
	panics = hook.Func(func(context.Context, hook.Request) (hook.Answer, error) { panic("ouch") })
	hangs  = hook.Func(func(ctx context.Context, _ hook.Request) (hook.Answer, error) {
		<-ctx.Done()
		return hook.Answer{}, ctx.Err()
	})
	silent = says(hook.Answer{})
)

// The answers of several hooks combine into one, and a failure has its configured effect (A8, A13).
func TestAsk(t *testing.T) {
	t.Parallel()
	bound := func(objects bool, hooks ...hook.Hook) []hookcall.Bound {
		var out []hookcall.Bound
		for _, h := range hooks {
			out = append(out, hookcall.Bound{Name: "h", Hook: h, Objects: objects, Timeout: time.Hour})
		}
		return out
	}
	deny, block, prevent := says(hook.Answer{Deny: text("no")}), says(hook.Answer{Block: text("go on")}), says(hook.Answer{Prevent: text("stop")})
	approve := says(hook.Answer{Approval: true})
	edit := says(hook.Answer{Arguments: json.RawMessage(`{"n":1}`)})
	more := hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		if string(r.Call.Arguments) != `{"n":1}` {
			return hook.Answer{}, errors.New("the edited arguments do not arrive")
		}
		return hook.Answer{Arguments: json.RawMessage(`{"n":2}`)}, nil
	})
	refuse, replace := says(hook.Answer{Refuse: text("not that")}), says(hook.Answer{Replace: text("**")})
	shorter := hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		return hook.Answer{Replace: text(strings.TrimSuffix(r.Input, "*"))}, nil
	})
	impatient := bound(true, hangs)
	impatient[0].Timeout = time.Nanosecond
	const repair = ". Only an operator can repair the hook: continue without this call" // a model reads it
	for name, tt := range map[string]struct {
		point hook.Point
		hooks []hookcall.Bound
		want  hook.Answer
		err   string
	}{
		"first refusal":     {hook.Input, bound(true, silent, refuse, panics), hook.Answer{Refuse: text("not that")}, ""},
		"texts go on":       {hook.Input, bound(true, replace, shorter), hook.Answer{Replace: text("*")}, ""},
		"replaced, refused": {hook.Input, bound(true, replace, refuse), hook.Answer{Replace: text("**"), Refuse: text("not that")}, ""},
		"input objects":     {hook.Input, bound(true, fails), hook.Answer{Failed: text("hook h failed: out of order"), Failures: 1}, "out of order"},
		"input is passed":   {hook.Input, bound(false, fails, replace), hook.Answer{Replace: text("**"), Failures: 1}, "out of order"},
		"none":              {hook.PreTool, nil, hook.Answer{}, ""},
		"first denial":      {hook.PreTool, bound(true, silent, deny, panics), hook.Answer{Deny: text("no")}, ""},
		"approvals add up":  {hook.PreTool, bound(true, approve, silent), hook.Answer{Approval: true}, ""},
		"edits go on":       {hook.PreTool, bound(true, edit, more), hook.Answer{Arguments: json.RawMessage(`{"n":2}`)}, ""},
		"failure objects":   {hook.PreTool, bound(true, fails), hook.Answer{Deny: text("hook h failed: out of order" + repair), Failures: 1}, "out of order"},
		"failure is passed": {hook.PreTool, bound(false, fails, approve), hook.Answer{Approval: true, Failures: 1}, "out of order"},
		"panic":             {hook.PreTool, bound(true, panics), hook.Answer{Deny: text("hook h failed: the hook's program panicked (ouch): correct the program" + repair), Failures: 1}, "ouch"},
		"time-out":          {hook.PreTool, impatient, hook.Answer{Deny: text("hook h failed: the hook did not answer within its timeout of 1ns: start or repair the hook, or raise its timeout" + repair), Failures: 1}, "did not answer"},
		"first block":       {hook.Stop, bound(true, silent, block, prevent), hook.Answer{Block: text("go on")}, ""},
		"first prevention":  {hook.Stop, bound(true, prevent, block), hook.Answer{Prevent: text("stop")}, ""},
		"stop objects":      {hook.Stop, bound(true, fails), hook.Answer{Failed: text("hook h failed: out of order"), Failures: 1}, "out of order"},
		"stop is passed":    {hook.Stop, bound(false, panics), hook.Answer{Failures: 1}, "ouch"},
		"wrong answer":      {hook.Stop, bound(true, deny), hook.Answer{Failed: text("hook h failed: the answer of a hook at the point stop has the field deny, which is only for the point pre_tool: correct the program of the hook"), Failures: 1}, "has the field deny"},
		"notes in order":    {hook.PostSampling, bound(true, says(hook.Answer{Notes: []string{"a"}}), fails, says(hook.Answer{Notes: []string{"b", "c"}})), hook.Answer{Notes: []string{"a", "b", "c"}, Failures: 1}, "out of order"},
		"failure hooks":     {hook.StopFailure, bound(true, panics, silent), hook.Answer{Failures: 1}, "ouch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := hookcall.Ask(t.Context(), nil, tt.hooks, hook.Request{Point: tt.point, Call: &hook.Call{Arguments: json.RawMessage(`{}`)}})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Ask (-want +got):\n%s", diff)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Ask = %v, want an error with %q", err, tt.err)
			}
		})
	}
}

// An abort cancels a hook call, and Ask does not wait for a hook that ignores it (A5).
func TestAskAborted(t *testing.T) {
	t.Parallel()
	for _, point := range []hook.Point{hook.Input, hook.PreTool, hook.Stop, hook.PostSampling, hook.StopFailure} {
		ctx, cancel := context.WithCancel(t.Context())
		free := make(chan struct{})
		deaf := hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
			cancel()
			<-free
			return hook.Answer{}, nil
		})
		_, err := hookcall.Ask(ctx, nil, []hookcall.Bound{{Name: "deaf", Hook: deaf, Timeout: time.Hour}}, hook.Request{Point: point})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Ask = %v, want it cancelled", point, err)
		}
		close(free)
	}
}

// An answer is one JSON document, without more text after it.
func TestDecodeMoreText(t *testing.T) {
	t.Parallel()
	if _, err := hook.Decode([]byte("{} \n"), hook.PreTool); err != nil {
		t.Errorf("Decode of an empty answer: %v", err)
	}
	for _, data := range []string{`{}{}`, `{}}`, `{}]`, `{}x`} {
		if _, err := hook.Decode([]byte(data), hook.PreTool); err == nil {
			t.Errorf("Decode accepts %s", data)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"replace":"b"}`), "input")
	f.Add([]byte(`{"deny":"no"}`), "pre_tool")
	f.Add([]byte(`{"notes":["a"]}{}`), "post_sampling")
	f.Add([]byte(`{"arguments":[1]}`), "pre_tool")
	f.Fuzz(func(t *testing.T, data []byte, point string) {
		a, err := hook.Decode(data, hook.Point(point))
		if err == nil && a.Check(hook.Point(point)) != nil {
			t.Errorf("Decode accepts %+v at %s", a, point)
		}
	})
}
