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

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/hook/natshook"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A service can be a hook: it gets the whole request, and its answer counts (A8).
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
	a, err := natshook.New(nc, "tp", "policy.refund").Call(t.Context(), want)
	if err != nil || a.Deny == nil || *a.Deny != no {
		t.Fatalf("Call = %+v, %v", a, err)
	}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("the service got:\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A failed hook call returns an error with the reason.
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
		"a": "the hook's answer cannot be read", "b": `unknown field "veto"`, "c": "has the field prevent", "d": "database is away", "e": "the hook's answer cannot be read",
		"f": "the hook's program panicked (ouch): correct the program", "nobody": "no service listens on the subject nobody",
	} {
		if _, err := natshook.New(nc, "tp", subject).Call(t.Context(), hook.Request{Point: hook.PreTool}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Call = %v, want %q", subject, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := natshook.New(nc, "tp", "a").Call(ctx, hook.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Call with a context that has ended = %v", err)
	}
	if _, err := natshook.Serve(nc, "a.>", nil); err == nil {
		t.Error("Serve takes a wildcard")
	}
}

// A tenant's hooks are called below the tenant's subject root. Those of the default tenant cannot use subjects
// of the deployment or of another tenant. A hook that cannot be called objects, like any failed hook.
func TestTenants(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	heard := make(chan string, 100)
	if _, err := nc.Subscribe(">", func(m *nats.Msg) {
		if m.Reply != "" {
			heard <- m.Subject + " " + m.Reply
			_ = m.Respond([]byte("{}"))
		}
	}); err != nil {
		t.Fatal(err)
	}
	kind := natshook.Kind(nc, "tp")
	for _, c := range []struct {
		tenant, subject, inbox string // the subject of the answer; empty if no call is allowed
	}{
		{"default", "policy.payments", "_INBOX."},
		{"", "tp.hook.policy", "_INBOX."},
		{"default", "tpx.hook.policy", "_INBOX."},
		{"acme", "tp.t.acme.hook.policy", "tp.t.acme.inbox."},
		{"default", "tp.tool.refund", ""},
		{"default", "tp.abort.run_1", ""},
		{"default", "tp.submit.a", ""},
		{"default", "tp", ""},
		{"default", "tp.t.acme.hook.policy", ""},
		{"acme", "policy.payments", ""},
		{"acme", "tp.hook.policy", ""},
		{"acme", "tp.t.other.hook.policy", ""},
		{"acme", "tp.t.acme.tool.refund", ""},
		{"acme", "tp.t.acme.abort.run_1", ""},
	} {
		_, err := kind.Call(t.Context(), &hookspec.Service{Subject: c.subject}, hook.Request{Point: hook.PreTool, Tenant: c.tenant})
		if c.inbox == "" {
			if err == nil || len(heard) > 0 {
				t.Errorf("%s asks %s: %v", c.tenant, c.subject, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s asks %s: %v", c.tenant, c.subject, err)
			continue
		}
		if got := <-heard; !strings.HasPrefix(got, c.subject+" "+c.inbox) {
			t.Errorf("%s calls %s: %s, want the inbox %s", c.tenant, c.subject, got, c.inbox)
		}
	}
}
