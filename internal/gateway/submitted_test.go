package gateway_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A submission that names a version gets it, also at a gateway that knows a later one.
func TestSubmissionOfAVersion(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("hello", `{model: {provider: scripted, responses: [{text: "second"}]}}`)
	for _, version := range []int{0, 1, 2, 1, 0} {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", AgentVersion: version, Input: api.Text("x")}, "")
		want := version
		if want == 0 {
			want = 2
		}
		if err != nil || run.AgentVersion != want {
			t.Errorf("version %d: the run has version %d, %v", version, run.AgentVersion, err)
		}
	}
	_, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", AgentVersion: 3, Input: api.Text("x")}, "")
	refused(t, "a version that does not exist", err, api.CodeAgentNotFound)
}

// Two submissions under one key whose large numbers differ are two.
func TestLargeNumbersUnderAKey(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	body := func(n string) string { return `{"agent":"hello","input":"x","limits":{"total_tokens":` + n + `}}` }
	for n, want := range map[string]int{"9007199254740993": 409, "9007199254740992": 202} {
		if code, _, p := s.call("POST", "/v1/runs", body("9007199254740992"), "Idempotency-Key", "k"); code != 202 {
			t.Fatal(code, p)
		}
		if code, _, p := s.call("POST", "/v1/runs", body(n), "Idempotency-Key", "k"); code != want {
			t.Errorf("%s: %d %v, want %d", n, code, p, want)
		}
	}
}

// A limit of the cost is refused if the uses of a provider's tool have none.
func TestCostLimitNeedsBoundedUses(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("bounded", `{model: {provider: anthropic, name: claude-sonnet-4-5}, tools: [{kind: provider, name: web_search, max_uses: 3}]}`)
	s.put("unbounded", `{model: {provider: anthropic, name: claude-sonnet-4-5}, tools: [{kind: provider, name: web_search}]}`)
	s.wantRefused([]refusal{{"POST", "/v1/runs", `{"agent":"unbounded","input":"x","limits":{"cost_usd":1}}`, nil, 400, "invalid_request", "limits.cost_usd: "}})
	if code, _, p := s.call("POST", "/v1/runs", `{"agent":"bounded","input":"x","limits":{"cost_usd":1}}`); code != 202 {
		t.Errorf("bounded uses: %d %v", code, p)
	}
}

// A submission over the bus that names another agent than its subject, or is too large, starts no run, and its sender
// learns why.
func TestRefusedSubmissionsOverTheBus(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for reply, c := range map[string]struct{ body, want string }{
		"other": {`{"agent":"adder","input":"x"}`, `the body names agent \"adder\", but the subject names \"hello\"`},
		"large": {`{"input":"` + strings.Repeat("x", 1<<20) + `"}`, "at most 1048576 are allowed"},
	} {
		s.bus.Submit("default", "hello", []byte(c.body), map[string]string{"Turnpike-Reply": reply})
		testbed.Eventually(t, reply, func() error {
			if len(s.bus.Replies(reply)) == 0 {
				return context.DeadlineExceeded
			}
			return nil
		})
		if got := s.bus.Replies(reply)[0]; !bytes.Contains(got, []byte(c.want)) {
			t.Errorf("%s: the reply is %.300s, want %q", reply, got, c.want)
		}
	}
	if page, err := s.client.List(t.Context(), nil); err != nil || len(page.Items) != 0 {
		t.Errorf("%d runs exist, %v", len(page.Items), err)
	}
}

// The ids of a user's signals are that user's own: a signal of the backend with the same id is another.
func TestSignalIDsOfUsers(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	s.run("acme") // stores the agent
	backend, ada := s.key("acme", access.Submitter), s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles})
	run := s.submit(ada, api.SubmitRequest{Agent: "a"}, "")
	for _, token := range []string{backend, ada, ada} {
		if status, p := s.doJSON(http.MethodPost, "/v1/runs/"+run.ID+"/signals", token, `{"signal_id":"k","message":"hello"}`); status != http.StatusAccepted {
			t.Fatal(status, p)
		}
	}
	claim, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: state.RunID(run.ID), Version: 1, Token: "t", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Minute})
	if err != nil || len(claim.Signals) != 2 {
		t.Errorf("the run has %d signals, %v, want one of each sender", len(claim.Signals), err)
	}
}

// A file that a schedule sends with its runs cannot be deleted while the schedule exists.
func TestFileOfASchedule(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.upload("a.txt", "hello")
	schedule := api.ScheduleSettings{Cron: "0 9 * * *", Run: api.SubmitRequest{Agent: "hello", Input: input(id)}}
	if _, err := s.client.PutSchedule(t.Context(), "daily", schedule); err != nil {
		t.Fatal(err)
	}
	refused(t, "the deletion of a file in use", s.client.DeleteFile(t.Context(), id), api.CodeFileInUse)
}

// A turn whose tool is at work cannot be rolled back. It can be interrupted.
func TestRollbackDuringATool(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.Kinds = toolspec.Kinds(map[string]tool.Tool{"add": tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		})})
	})
	id := s.submit("adder")
	<-begun
	send := func(mode string) error {
		_, err := s.client.Signal(t.Context(), id, api.SignalRequest{Message: api.Text("stop"), Mode: mode})
		return err
	}
	refused(t, "a rollback", send(api.ModeRollback), api.CodeEffectsStarted)
	if err := send(api.ModeInterrupt); err != nil {
		t.Fatal(err)
	}
	s.events(id, 0, nil)
	run, err := s.client.Get(t.Context(), id)
	if err != nil || run.Status != "completed" || run.Output == nil || *run.Output != "it is 42" {
		t.Errorf("after the interrupt the run is %s, %v", run.Status, err)
	}
}
