package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// notOfTheClient lists the routes without a client method, with the reason.
var notOfTheClient = map[string]string{
	"GET /v1/session":                "of browsers, which have a cookie; the client has a token",
	"POST /v1/session":               "of browsers",
	"DELETE /v1/session":             "of browsers",
	"GET /auth/login":                "of browsers, which it redirects",
	"GET /auth/callback":             "of browsers, which the OpenID provider redirects",
	"POST /v1/hooks/{name}":          "of other systems, which sign what they deliver",
	"POST /v1/hooks/{tenant}/{name}": "of other systems",
	"GET /healthz":                   "of probes; Ready says what a caller wants to know",
	"GET /openapi.json":              "a document for tools; the client has its types",
}

// methods calls the client methods that correspond to the routes.
func methods(ctx context.Context, c *api.Client) {
	const id = "run_01JD3X9K3W8Q4V5N6M7P8R9S0T"
	_, _ = c.Submit(ctx, api.SubmitRequest{}, "")
	_, _ = c.List(ctx, nil)
	_, _ = c.Get(ctx, id)
	_, _ = c.Messages(ctx, id)
	_, _ = c.Turns(ctx, id)
	for range c.Events(ctx, id, 0) {
	}
	for range c.Changes(ctx, nil) {
	}
	_ = c.Delete(ctx, id)
	_, _ = c.Cancel(ctx, id, "")
	_, _ = c.Signal(ctx, id, api.SignalRequest{})
	_, _ = c.Fork(ctx, id, api.ForkRequest{})
	_, _ = c.CancelRuns(ctx, api.CancelRunsRequest{})
	_, _ = c.SubmitDraft(ctx, api.DraftRequest{Definition: api.Text("x"), SubmitRequest: api.SubmitRequest{Input: api.Text("x")}}, "")
	_, _ = c.SubmitBatch(ctx, api.BatchRequest{}, "")
	_, _ = c.Batch(ctx, "x")
	_, _ = c.Batches(ctx, "", 0)
	_, _ = c.Agents(ctx)
	_, _ = c.Agent(ctx, "x")
	_, _ = c.AgentVersions(ctx, "x", "", 0)
	_, _ = c.AgentDraft(ctx, "x")
	_ = c.DiscardAgentDraft(ctx, "x")
	_, _ = c.PublishAgent(ctx, "x", "")
	_, _ = c.PutAgent(ctx, "x", nil)
	_ = c.DeleteAgent(ctx, "x")
	_, _ = c.Dead(ctx, 0, 0)
	_, _ = c.DeadLetter(ctx, 1)
	_, _ = c.Replay(ctx, 1)
	_, _ = c.PendingEvents(ctx, "", 0)
	_, _ = c.TestWebhook(ctx, api.WebhookTestRequest{})
	_, _ = c.WebhookTest(ctx, "x")
	_, _ = c.Workers(ctx)
	_, _ = c.Queues(ctx)
	_, _ = c.Stats(ctx, api.StatsQuery{})
	_, _ = c.Restore(ctx)
	_, _ = c.AcceptRestore(ctx)
	_, _ = c.AbandonRestore(ctx)
	_, _ = c.Keys(ctx)
	_, _ = c.CreateKey(ctx, api.KeyRequest{})
	_ = c.RevokeKey(ctx, "x")
	_, _ = c.PutFile(ctx, api.FileUpload{Content: strings.NewReader("x")})
	_, _ = c.Files(ctx, "", 0)
	_, _ = c.File(ctx, "x")
	if content, err := c.FileContent(ctx, "x"); err == nil {
		_ = content.Close()
	}
	_ = c.DeleteFile(ctx, "x")
	_, _ = c.PutHook(ctx, "x", api.HookSettings{})
	_, _ = c.Hook(ctx, "x")
	_, _ = c.Hooks(ctx, "", 0)
	_ = c.DeleteHook(ctx, "x")
	_, _ = c.PutTrigger(ctx, "x", api.TriggerSettings{})
	_, _ = c.Trigger(ctx, "x")
	_, _ = c.Triggers(ctx, "", 0)
	_ = c.DeleteTrigger(ctx, "x")
	_, _ = c.MemoryScopes(ctx, "", 0)
	_, _ = c.MemoryFiles(ctx, "tenant", "", 0)
	_, _ = c.MemoryFile(ctx, "tenant", "x/y")
	_, _ = c.PutMemoryFile(ctx, "tenant", "x/y", "", api.AnyVersion)
	_ = c.DeleteMemoryFile(ctx, "tenant", "x/y", 1)
	_ = c.EraseMemory(ctx, "tenant")
	_, _ = c.PutEvaluation(ctx, "x", api.EvaluationReport{})
	_, _ = c.Evaluation(ctx, "x")
	_, _ = c.Evaluations(ctx, "", "", 0)
	_ = c.DeleteEvaluation(ctx, "x")
	_, _ = c.PutSchedule(ctx, "x", api.ScheduleSettings{})
	_, _ = c.Schedule(ctx, "x")
	_, _ = c.Schedules(ctx, "", 0)
	_, _ = c.PauseSchedule(ctx, "x")
	_, _ = c.ResumeSchedule(ctx, "x")
	_, _ = c.RunSchedule(ctx, "x", "")
	_ = c.DeleteSchedule(ctx, "x")
	_, _ = c.CreateToken(ctx, api.TokenRequest{})
	_, _ = c.RotateTokens(ctx)
	_, _ = c.Tenants(ctx)
	_, _ = c.Tenant(ctx, "x")
	_, _ = c.PutTenant(ctx, "x", api.TenantSettings{})
	_ = c.DeleteTenant(ctx, "x")
	_, _ = c.Audit(ctx, "", 0)
	_, _ = c.WhoAmI(ctx)
	_ = c.Ready(ctx)
}

// Each route of the gateway has a client method or a reason why it has none.
func TestEachRouteHasAMethod(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1000)
	mux := http.NewServeMux()
	routes := gateway.Routes(t)
	for _, pattern := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			asked <- pattern
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeNotFound, Status: http.StatusNotFound})
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	methods(t.Context(), api.New(server.URL))
	close(asked)
	has := map[string]bool{}
	for pattern := range asked {
		has[pattern] = true
	}
	for _, pattern := range routes {
		switch reason := notOfTheClient[pattern]; {
		case !has[pattern] && reason == "":
			t.Errorf("%s has no method in pkg/api: write one and call it in methods, or add a reason to notOfTheClient", pattern)
		case has[pattern] && reason != "":
			t.Errorf("%s has a method and a reason why it has none", pattern)
		}
	}
	for pattern := range notOfTheClient {
		if !slices.Contains(routes, pattern) {
			t.Errorf("notOfTheClient has %s, which is not a route of the gateway", pattern)
		}
	}
}

func refused(t *testing.T, what string, err error, code string) *api.Problem {
	t.Helper()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != code {
		t.Fatalf("%s: %v, want %s", what, err, code)
	}
	return p
}

// A client that follows changes also receives those made while its connection was broken.
func TestClientFollowsChanges(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(to)
	through.FlushInterval = -1
	proxy := httptest.NewServer(through)
	t.Cleanup(proxy.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var first, missed string
	for change, err := range api.New(proxy.URL).Changes(ctx, url.Values{"agent": {"hello"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if change.Type == api.ChangesOpen && first == "" {
			s.submit("adder")
			first = s.submit("hello")
		}
		if change.Run == nil {
			continue
		}
		if change.Run.Agent != "hello" {
			t.Errorf("received a change of a run of %s", change.Run.Agent)
		}
		if missed == "" && change.Run.ID == first && change.Run.Terminal() {
			proxy.CloseClientConnections()
			missed = s.submit("hello")
			if _, err := s.client.Wait(ctx, missed); err != nil {
				t.Fatal(err)
			}
		}
		if change.Run.ID == missed && change.Run.Terminal() {
			break
		}
	}
	n := 0
	for _, err := range s.client.Changes(ctx, url.Values{"status": {"queued"}}) {
		n++
		refused(t, "a filter that does not hold", err, api.CodeInvalidRequest)
	}
	if n != 1 {
		t.Errorf("a refused stream yields %d pairs, want the error", n)
	}
}

func TestClientCancelsRuns(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	want := []string{s.submit("slow"), s.submit("slow")}
	other := s.submit("gated")
	slices.Sort(want)
	req := api.CancelRunsRequest{Filter: &api.RunFilter{Agent: "slow"}, DryRun: true, Reason: "enough"}
	for _, cancelled := range []int{0, 2} {
		got, err := s.client.CancelRuns(t.Context(), req)
		slices.Sort(got.RunIDs)
		if err != nil || got.Matched != 2 || got.Cancelled != cancelled || !slices.Equal(got.RunIDs, want) || got.NextCursor != nil {
			t.Fatalf("dry run %t: %+v, %v", req.DryRun, got, err)
		}
		req.DryRun = false
	}
	for _, id := range want {
		if run, err := s.client.Wait(t.Context(), id); err != nil || run.Status != string(state.Cancelled) {
			t.Errorf("run is %s, %v", run.Status, err)
		}
	}
	if run, err := s.client.Wait(t.Context(), other); err != nil || run.Status != string(state.Waiting) {
		t.Errorf("a run that does not match is %s, %v", run.Status, err)
	}
	_, err := s.client.CancelRuns(t.Context(), api.CancelRunsRequest{Filter: &api.RunFilter{}})
	refused(t, "a filter that names nothing", err, api.CodeInvalidRequest)
}

func TestClientSubmitsDrafts(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	before, err := s.client.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	draft := api.DraftRequest{Definition: api.Text("name: hello\nmodel:\n  provider: scripted\n  responses: [{text: from a draft}]\n")}
	draft.Input = api.Text("go")
	run, err := s.client.SubmitDraft(t.Context(), draft, "k1")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.client.SubmitDraft(t.Context(), draft, "k1"); err != nil || again.ID != run.ID {
		t.Errorf("with the same key: %s, %v, want %s", again.ID, err, run.ID)
	}
	if run, err = s.client.Wait(t.Context(), run.ID); err != nil || run.Output == nil || *run.Output != "from a draft" {
		t.Errorf("run = %+v, %v", run, err)
	}
	after, err := s.client.Agents(t.Context())
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("agents: %v\n%s", err, diff)
	}
	draft.Definition = api.Text("name: hello\nmodell: {}\n")
	_, err = s.client.SubmitDraft(t.Context(), draft, "")
	if p := refused(t, "a mistake", err, api.CodeInvalidAgent); len(p.Errors) == 0 {
		t.Errorf("problem has no errors: %+v", p)
	}
}

func TestClientReadsVersions(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	if _, err := s.client.Wait(t.Context(), s.submit("hello")); err != nil {
		t.Fatal(err)
	}
	s.put("hello", `{model: {provider: scripted, responses: [{text: second}]}}`)
	all, err := s.client.AgentVersions(t.Context(), "hello", "", 0)
	if err != nil || len(all.Items) != 2 || !all.Items[0].Latest || all.Items[1].Runs.Statuses[state.Completed] != 1 || !all.Complete {
		t.Fatalf("versions: %+v, %v", all, err)
	}
	page, err := s.client.AgentVersions(t.Context(), "hello", "", 1)
	if err != nil || len(page.Items) != 1 || page.Items[0].Version != 2 || page.NextCursor == nil {
		t.Fatalf("page: %+v, %v", page, err)
	}
	page, err = s.client.AgentVersions(t.Context(), "hello", *page.NextCursor, 1)
	if err != nil || len(page.Items) != 1 || page.Items[0].Version != 1 || page.NextCursor != nil {
		t.Errorf("next page: %+v, %v", page, err)
	}
	old, err := s.client.AgentVersion(t.Context(), "hello", 1)
	latest, err2 := s.client.Agent(t.Context(), "hello")
	if errors.Join(err, err2) != nil || old.Version != 1 || latest.Version != 2 || string(old.Definition) == string(latest.Definition) {
		t.Errorf("version 1: %+v, %v", old, err)
	}
	_, err = s.client.AgentVersion(t.Context(), "hello", 9)
	refused(t, "a version that there is not", err, api.CodeAgentNotFound)
}

func TestClientReadsTheDeployment(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.submit("adder")
	if _, err := s.client.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker's heartbeat arrives", func() bool {
		workers, err := s.client.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(workers) == 1 && workers[0].ID == "w1" && workers[0].Status == api.WorkerAlive && workers[0].Slots > 0
	})
	eventually(t, "the run is counted", func() bool {
		queues, err := s.client.Queues(t.Context())
		if err != nil || len(queues.Items) == 0 || queues.Items[0].Lane == "" {
			t.Fatalf("queues: %+v, %v", queues, err)
		}
		return queues.Runs[state.Completed] == 1
	})
	steps, err := s.client.SessionEvents(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range steps {
		types = append(types, e.Type)
	}
	if diff := cmp.Diff([]string{"user_message", "tool_call", "tool_result", "agent_response"}, types); diff != "" {
		t.Errorf("session:\n%s", diff)
	}
}
