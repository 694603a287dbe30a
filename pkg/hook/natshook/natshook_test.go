package natshook_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/natshook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A8: a service is a hook: it sees the whole request, and what it says counts.
func TestServe(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	want := hook.Request{
		Point: hook.PreTool, Run: "run_1", Agent: "a", Turn: 3, Tenant: "t", Metadata: map[string]string{"k": "v"},
		Call: &hook.Call{ID: "c1", Tool: "refund", Arguments: json.RawMessage(`{"amount":500}`)},
	}
	got := make(chan hook.Request, 1)
	no := "too much"
	stop, err := natshook.Serve(nc, "policy.refund", hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		got <- r
		return hook.Answer{Deny: &no}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	a, err := natshook.New(nc, "policy.refund").Call(t.Context(), want)
	if err != nil || a.Deny == nil || *a.Deny != no {
		t.Fatalf("Call = %+v, %v", a, err)
	}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("the service was asked:\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// What goes wrong is an error that says what.
func TestFailures(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	respond := func(subject, data string) {
		sub, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(data)) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() })
	}
	respond("a", `{"deny": 7}`)
	respond("b", `{"veto": "x"}`)
	respond("c", `{"prevent": "x"}`)
	respond("d", `{"error": "database is away"}`)
	respond("e", `not JSON`)
	stop, err := natshook.Serve(nc, "f", hook.Func(func(context.Context, hook.Request) (hook.Answer, error) { panic("ouch") }))
	if err != nil {
		t.Fatal(err)
	}
	defer stop() //nolint:errcheck // the connection is about to close
	for subject, want := range map[string]string{
		"a": "decode answer", "b": `unknown field "veto"`, "c": "cannot answer with prevent", "d": "database is away", "e": "decode answer",
		"f": "it panicked: ouch", "nobody": "no service answers on the subject nobody",
	} {
		if _, err := natshook.New(nc, subject).Call(t.Context(), hook.Request{Point: hook.PreTool}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Call = %v, want %q", subject, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := natshook.New(nc, "a").Call(ctx, hook.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Call with a context that has ended = %v", err)
	}
	if _, err := natshook.Serve(nc, "a.>", nil); err == nil {
		t.Error("Serve takes a wildcard")
	}
}
