package gateway_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// secretsOfHooks are the hook secrets of all tenants.
var secretsOfHooks = map[string]string{"HOOK": "a secret", "OLD": "an old secret"}

func newHooked(t *testing.T) *guarded {
	t.Helper()
	store, b := &countingStore{Store: memstore.New(memstore.Config{})}, membus.New()
	keys := access.NewKeys(store)
	g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: keys}, HookSecret: func(_, name string, p policy.Policy) (string, error) {
		if err := p.Secret(name, ""); err != nil {
			return "", err
		}
		if secretsOfHooks[name] == "" {
			return "", errors.New("secret " + name + " is not declared")
		}
		return secretsOfHooks[name], nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return &guarded{t, server.URL, store, keys, b}
}

// hook stores a hook of a tenant that has an agent a.
func (s *guarded) hook(tenant, name, settings string) api.Hook {
	s.t.Helper()
	var h api.HookSettings
	if err := api.Decode([]byte(settings), &h); err != nil {
		s.t.Fatal(err)
	}
	author := s.client(tenant, access.Author)
	if _, err := author.PutAgent(s.t.Context(), "a", []byte(talker)); err != nil {
		s.t.Fatal(err)
	}
	made, err := author.PutHook(s.t.Context(), name, h)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

func sign(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// github sends a delivery as GitHub does.
func (s *guarded) github(path, secret, id, body string, more ...string) (int, api.HookResult, api.Problem) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Hub-Signature-256", "sha256="+sign(secret, body))
	req.Header.Set("X-GitHub-Delivery", id)
	req.Header.Set("X-GitHub-Event", "issues")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		api.HookResult
		api.Problem
	}
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.HookResult, answer.Problem
}

const triage = `{"verify": "github", "secret": ["secret://HOOK", "secret://OLD"], "filter": "event.action == 'opened'",
	"run": {"agent": "a", "input": "'Issue ' + string(event.issue.number) + ': ' + event.issue.title", "metadata": {"repo": "event.repository.full_name", "event": "headers['x-github-event']"}}}`

func opened(n int) string {
	return fmt.Sprintf(`{"action":"opened","issue":{"number":%d,"title":"It broke"},"repository":{"full_name":"acme/shop"}}`, n)
}

// A webhook of a request signs nothing with a secret of a hook: its receiver could deliver the event to the hook.
func TestWebhooksMustNotSignForHooks(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	s.hook("acme", "triage", triage)
	both := s.key("acme", access.Author, access.Submitter)
	for _, secret := range []string{`"secret://HOOK"`, `["secret://EVENTS", "secret://OLD"]`, `"secret://EVENTS"`} {
		webhook := `{"url": "https://example.com/x", "secret": ` + secret + `}`
		run := `{"agent": "a", "input": "x", "webhook": ` + webhook + `}`
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/v1/runs", run},
			{"POST", "/v1/runs:batch", `{"runs": [` + run + `]}`},
			{"PUT", "/v1/schedules/s", `{"cron": "@daily", "run": ` + run + `}`},
			{"POST", "/v1/webhooks/tests", webhook},
		} {
			status, p := s.do(c.method, c.path, both, "", c.body)
			refused := status == http.StatusForbidden && p.Code == api.CodeNotPermitted && strings.Contains(p.Detail, "hook triage")
			if want := secret != `"secret://EVENTS"`; refused != want || !want && status >= 300 {
				t.Errorf("%s %s with %s: %d %s", c.method, c.path, secret, status, p.Detail)
			}
		}
	}
	// The hook of another tenant does not matter.
	other := s.client("other", access.Author, access.Submitter)
	if _, err := other.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x"), Webhook: &state.Webhook{URL: "https://example.com/x", Secret: state.SecretReferences{"secret://HOOK"}}}, ""); err != nil {
		t.Errorf("a tenant without that hook: %v", err)
	}
}

// A deleted tenant's hooks are deleted: a delivery to one is refused like one to an unknown hook.
func TestHooksEndWithTheirTenant(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	admin := s.client("*", access.Admin)
	if _, err := admin.PutTenant(t.Context(), "acme", api.TenantSettings{}); err != nil {
		t.Fatal(err)
	}
	made := s.hook("acme", "triage", triage)
	if status, _, p := s.github(made.Path, "a secret", "d-1", opened(1)); status != http.StatusAccepted {
		t.Fatalf("a delivery: %d %s", status, p.Detail)
	}
	if err := admin.DeleteTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if status, _, p := s.github(made.Path, "a secret", "d-2", opened(2)); status != http.StatusUnauthorized {
		t.Errorf("a delivery after the tenant was deleted: %d %s", status, p.Detail)
	}
	if names, err := s.store.DocumentNames(t.Context(), state.HooksOf("acme")); err != nil || len(names) != 0 {
		t.Errorf("the deleted tenant has the hooks %v, %v", names, err)
	}
}

// A delivery creates one run, however often it arrives, even if the hook or the agent changes in between.
func TestHookMakesOneRun(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	made := s.hook("acme", "triage", triage)
	if made.Path != "/v1/hooks/acme/triage" {
		t.Errorf("the hook has the path %s", made.Path)
	}
	status, first, p := s.github(made.Path, "a secret", "d-1", opened(12345678))
	if status != http.StatusAccepted || first.RunID == "" {
		t.Fatalf("a delivery: %d %s", status, p.Detail)
	}
	st, err := s.store.Load(t.Context(), state.RunID(first.RunID))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"hook": "triage", "delivery": "d-1", "repo": "acme/shop", "event": "issues"}
	for k, v := range want {
		if st.Metadata[k] != v {
			t.Errorf("metadata %s is %q, want %q", k, st.Metadata[k], v)
		}
	}
	log, err := s.store.Log(t.Context(), st.ID, 0, 1)
	if err != nil || log[0].By == nil || log[0].By.Principal != "hook:triage" || log[0].By.Via != "hook" {
		t.Errorf("by: %+v, %v", log, err)
	}
	if last := log[0].Messages[len(log[0].Messages)-1]; last.Parts[0].Text != "Issue 12345678: It broke" {
		t.Errorf("input: %+v", last)
	}
	var wait sync.WaitGroup
	ids := make(chan string, 20)
	for range 10 {
		for _, id := range []string{"d-1", "d-2"} {
			wait.Go(func() {
				_, again, _ := s.github(made.Path, "an old secret", id, opened(1))
				ids <- id + again.RunID
			})
		}
	}
	wait.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	if len(seen) != 2 || !seen["d-1"+first.RunID] {
		t.Errorf("20 copies of two deliveries made %v", seen)
	}
	// The hook is changed so that it ignores the event; then the agent is deleted.
	s.hook("acme", "triage", strings.Replace(triage, "event.issue.title", "event.gone", 1))
	if status, again, p := s.github(made.Path, "a secret", "d-1", opened(1)); status != http.StatusAccepted || again.RunID != first.RunID {
		t.Errorf("a repeated delivery after a change of the hook: %d %+v %s", status, again, p.Detail)
	}
	if status, _, p := s.github(made.Path, "a secret", "d-3", opened(1)); status != http.StatusUnprocessableEntity || p.Code != api.CodeInvalidDelivery || !strings.Contains(p.Detail, "run.input") {
		t.Errorf("a delivery that the mapping ignores: %d %s", status, p.Detail)
	}
	s.hook("acme", "triage", triage)
	if err := s.client("acme", access.Author).DeleteAgent(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if status, again, p := s.github(made.Path, "a secret", "d-1", opened(1)); status != http.StatusAccepted || again.RunID != first.RunID {
		t.Errorf("a repeated delivery after the agent was deleted: %d %+v %s", status, again, p.Detail)
	}
	audit, err := s.client("acme", access.Admin).Audit(t.Context(), "", 0)
	if err != nil || !slices.ContainsFunc(audit.Items, func(a api.AuditEntry) bool {
		return a.Action == "hook.deliver" && a.Target == first.RunID && a.By.Principal == "hook:triage"
	}) {
		t.Errorf("the audit lacks the delivery: %+v, %v", audit, err)
	}
}

// A refusal reveals nothing: an unknown hook, one of another tenant and a wrong signature get the same answer.
func TestHookRefusals(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	made := s.hook("acme", "triage", triage)
	s.hook("default", "own", triage)
	answer := func(path, secret string) string {
		status, _, p := s.github(path, secret, "d", opened(1))
		return fmt.Sprint(status, " ", p.Code, " ", p.Detail)
	}
	want := answer(made.Path, "another secret")
	if !strings.HasPrefix(want, "401 unauthenticated") {
		t.Errorf("another secret: %s", want)
	}
	for _, path := range []string{"/v1/hooks/acme/nobody", "/v1/hooks/triage", "/v1/hooks/other/triage", "/v1/hooks/ACME/triage", "/v1/hooks/acme/TRIAGE", "/v1/hooks/%2A/triage"} {
		if got := answer(path, "a secret"); got != want {
			t.Errorf("%s answers %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{"/v1/hooks/own", "/v1/hooks/own?tenant=default", "/v1/hooks/default/own", "/v1/hooks/triage?tenant=acme"} {
		if got := answer(path, "a secret"); !strings.HasPrefix(got, "202") {
			t.Errorf("%s answers %s", path, got)
		}
	}
	for name, c := range map[string]struct {
		body, event, id string
		status          int
	}{
		"filtered":  {`{"action":"closed"}`, "issues", "d-9", 200},
		"a ping":    {`{"zen":"x"}`, "ping", "d-9", 200},
		"no JSON":   {`x`, "issues", "d-9", 400},
		"no id":     {opened(1), "issues", "", 400},
		"no action": {`{}`, "issues", "d-9", 422},
	} {
		status, out, p := s.github(made.Path, "a secret", c.id, c.body, "X-GitHub-Event", c.event)
		if status != c.status || out.RunID != "" || out.Ignored != (status == 200) {
			t.Errorf("%s: %d %+v %s", name, status, out, p.Detail)
		}
	}
	if status, _, p := s.github(made.Path, "a secret", "d", strings.Repeat("x", 1<<20+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", status, p.Detail)
	}
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Suspended: true}); err != nil {
		t.Fatal(err)
	}
	if status, _, p := s.github(made.Path, "a secret", "d-8", opened(1)); status != http.StatusForbidden || p.Code != api.CodeTenantSuspended {
		t.Errorf("a suspended tenant: %d %s", status, p.Detail)
	}
}

// A hook accepts max_per_minute deliveries at once, also if they are the first and arrive together. Unsigned ones do
// not count.
func TestHookRate(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	const most = 3
	made := s.hook("acme", "slow", strings.Replace(triage, `"verify"`, fmt.Sprintf(`"max_per_minute": %d, "verify"`, most), 1))
	for range most + 1 {
		if status, _, p := s.github(made.Path, "another secret", "d", opened(1)); status != http.StatusUnauthorized {
			t.Errorf("unsigned: %d %s", status, p.Detail)
		}
	}
	for i := range most {
		if status, _, p := s.github(made.Path, "a secret", fmt.Sprint("d-", i), opened(i)); status != http.StatusAccepted {
			t.Errorf("delivery %d of %d: %d %s", i+1, most, status, p.Detail)
		}
	}
	refused := 0
	for i := range 2 * most {
		status, _, p := s.github(made.Path, "a secret", fmt.Sprint("more-", i), opened(i))
		if status == http.StatusTooManyRequests && p.Code == api.CodeTooManyDeliveries && strings.Contains(p.Detail, "has accepted 3 deliveries within a minute") {
			refused++
		}
	}
	if refused != 2*most {
		t.Errorf("the hook refused %d of %d deliveries above its limit", refused, 2*most)
	}
}

// slack sends a delivery as Slack does.
func (s *guarded) slack(path, body, kind string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	at := fmt.Sprint(time.Now().Unix())
	req.Header.Set("X-Slack-Request-Timestamp", at)
	req.Header.Set("X-Slack-Signature", "v0="+sign("a secret", "v0:"+at+":"+body))
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return resp.StatusCode, b.String()
		}
	}
}

// The first message of a Slack thread starts a run, and each other message continues it, once.
func TestHookContinuesARun(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	made := s.hook("acme", "slack", `{"verify": "slack", "secret": "secret://HOOK", "filter": "event.event.type == 'message'",
		"run": {"agent": "a", "input": "event.event.text", "key": "has(event.event.thread_ts) ? event.event.thread_ts : event.event.ts", "metadata": {"user": "event.event.user"}},
		"signal": {"message": "event.event.text"}}`)
	if status, body := s.slack(made.Path, `{"type":"url_verification","challenge":"3eZbrw1aB"}`, "application/json"); status != 200 || strings.TrimSpace(body) != `{"challenge":"3eZbrw1aB"}` {
		t.Errorf("the challenge: %d %s", status, body)
	}
	send := func(id, ts, thread, text string) {
		t.Helper()
		event := map[string]any{"type": "message", "user": "U1", "ts": ts, "text": text}
		if thread != "" {
			event["thread_ts"] = thread
		}
		body, _ := json.Marshal(map[string]any{"type": "event_callback", "event_id": id, "event": event})
		if status, answer := s.slack(made.Path, string(body), "application/json"); status != 200 || answer != "" {
			t.Errorf("%s: %d %q", id, status, answer)
		}
	}
	for range 2 {
		send("Ev1", "1.0", "", "Hello.")
		send("Ev2", "1.1", "1.0", "One more thing.")
	}
	send("Ev1", "1.0", "", "Hello.") // repeated after the signal
	send("Ev3", "2.0", "", "Another thread.")
	page, err := s.client("acme", access.Viewer).List(t.Context(), nil)
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("runs: %+v, %v", page.Items, err)
	}
	first := page.Items[1]
	if first.Metadata["user"] != "U1" || first.Metadata["delivery"] != "Ev1" {
		t.Errorf("metadata: %v", first.Metadata)
	}
	pending, err := s.pending(first.ID)
	if err != nil || len(pending) != 1 || pending[0].Message == nil || pending[0].Message.Parts[0].Text != "One more thing." || pending[0].By.Principal != "hook:slack" {
		t.Errorf("the first run has the signals %+v, %v", pending, err)
	}
	if status, body := s.slack(made.Path, "command=%2Fask&text=x", "application/x-www-form-urlencoded"); status != 422 {
		t.Errorf("a command that the expressions ignore: %d %s", status, body)
	}
}

// pending returns the signals of a run that no turn has consumed.
func (s *guarded) pending(id string) ([]state.Signal, error) {
	st, err := s.store.Load(s.t.Context(), state.RunID(id))
	if err != nil {
		return nil, err
	}
	c, err := s.store.Claim(s.t.Context(), state.ClaimRequest{Run: st.ID, Version: st.Version, Token: "t", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Minute})
	return c.Signals, err
}

// A hook sends a signal to the run that its expression names, in its own tenant only.
func TestHookSignals(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	own, foreign := s.run("acme"), s.run("other")
	made := s.hook("acme", "say", `{"verify": "github", "secret": "secret://HOOK", "signal": {"run": "event.run", "message": "event.text"}}`)
	for range 2 {
		if status, out, p := s.github(made.Path, "a secret", "d-1", `{"run":"`+own.ID+`","text":"hi"}`); status != http.StatusAccepted || out.RunID != own.ID {
			t.Errorf("a signal: %d %s", status, p.Detail)
		}
	}
	if status, _, p := s.github(made.Path, "a secret", "d-2", `{"run":"`+foreign.ID+`","text":"hi"}`); status != http.StatusNotFound {
		t.Errorf("a signal to a run of another tenant: %d %s", status, p.Detail)
	}
	pending, err := s.pending(own.ID)
	if err != nil || len(pending) != 1 {
		t.Errorf("the run has the signals %+v, %v", pending, err)
	}
}

// Hook settings are validated when they are stored.
func TestHookSettings(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	author := s.key("acme", access.Author)
	with := func(change string) string {
		return `{"verify": "github", "secret": "secret://HOOK", ` + change + `}`
	}
	run := func(more string) string { return with(`"run": {"agent": "a"` + more + `}`) }
	for body, want := range map[string]string{
		`{"secret": "secret://HOOK", "run": {"agent": "a"}}`:                       "verify",
		`{"verify": "gitlab", "secret": "secret://HOOK", "run": {"agent": "a"}}`:   "github, stripe, slack, standard",
		`{"verify": "github", "run": {"agent": "a"}}`:                              "secret is missing",
		`{"verify": "github", "secret": "hunter2", "run": {"agent": "a"}}`:         "never the secret itself",
		`{"verify": "github", "secret": "secret://NOBODY", "run": {"agent": "a"}}`: "secret NOBODY is not declared",
		`{"verify": "github", "secret": 7, "run": {"agent": "a"}}`:                 "neither a string nor a list",
		with(`"filter": "true"`):                                    "run and signal are both missing",
		with(`"run": {}`):                                           "run.agent is missing",
		with(`"filter": "1 +", "run": {"agent": "a"}`):              "filter",
		with(`"filter": "nobody.x", "run": {"agent": "a"}`):         "filter",
		with(`"filter": "1 + 1", "run": {"agent": "a"}`):            "not a boolean: compare it with another value",
		run(`, "variables": {"a": "event.a"}`):                      `field "run.variables" must be a string, not object: write one CEL expression`,
		run(`, "key": "1"`):                                         "run.key",
		run(`, "priority": "urgent"`):                               "run.priority",
		run(`, "metadata": {"hook": "'x'"}`):                        "is reserved for Turnpike",
		run(`, "metadata": {"x": ""}`):                              "run.metadata.x",
		run(`, "nobody": "x"`):                                      "nobody",
		with(`"max_per_minute": 60001, "run": {"agent": "a"}`):      "max_per_minute",
		with(`"signal": {"message": "'x'"}`):                        "signal.run is missing",
		with(`"signal": {"run": "'x'"}`):                            "signal has neither message nor answer: give one of them",
		with(`"run": {"agent": "a"}, "signal": {"message": "'x'"}`): "run.key is missing",
		with(`"run": {"agent": "a", "key": "delivery"}, "signal": {"run": "'x'", "message": "'x'"}`): "both signal.run and run are given",
		with(`"signal": {"run": "'x'", "answer": "'x'", "mode": "interrupt"}`):                       "signal.mode applies to a message",
		with(`"signal": {"run": "'x'", "message": "'x'", "mode": "shout"}`):                          `signal.mode is "shout"`,
		with(`"signal": {"run": "'x'", "message": "'x'", "answer": "'x'"}`):                          "signal has both message and answer",
	} {
		if status, p := s.do("PUT", "/v1/hooks/x", author, "", body); status != http.StatusBadRequest || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %d %s, want %q", body, status, p.Detail, want)
		}
	}
	var settings api.HookSettings
	if err := api.Decode([]byte(run("")), &settings); err != nil {
		t.Fatal(err)
	}
	h, err := s.client("acme", access.Author).PutHook(t.Context(), "x", settings)
	if err != nil || len(h.Warnings) != 1 || h.Warnings[0].At != "run.agent" || h.Warnings[0].Kind != "agent" || h.Warnings[0].Name != "a" {
		t.Errorf("a hook with an agent that does not exist: %+v, %v", h.Warnings, err)
	}
	for _, role := range access.Roles() {
		may := role == access.Author
		if status, p := s.do("PUT", "/v1/hooks/x", s.key("acme", role), "", run("")); (status < 300) != may {
			t.Errorf("PUT as %s: %d %s", role, status, p.Detail)
		}
		if status, p := s.do("GET", "/v1/hooks", s.key("acme", role), "", ""); status != http.StatusOK {
			t.Errorf("GET as %s: %d %s", role, status, p.Detail)
		}
		if status, p := s.do("DELETE", "/v1/hooks/nobody", s.key("acme", role), "", ""); status != http.StatusNotFound && may || status != http.StatusForbidden && !may {
			t.Errorf("DELETE as %s: %d %s", role, status, p.Detail)
		}
	}
	if hooks, err := s.client("acme", access.Viewer).Hooks(t.Context(), "", 0); err != nil || len(hooks.Items) != 1 || hooks.Items[0].Secret[0] != "secret://HOOK" {
		t.Errorf("hooks: %+v, %v", hooks, err)
	}
	if hooks, err := s.client("other", access.Viewer).Hooks(t.Context(), "", 0); err != nil || len(hooks.Items) != 0 {
		t.Errorf("hooks of another tenant: %+v, %v", hooks, err)
	}
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Secrets: []api.TenantSecret{}}); err != nil {
		t.Fatal(err)
	}
	if status, p := s.do("PUT", "/v1/hooks/other-name", author, "", run("")); status != http.StatusBadRequest && status != http.StatusCreated {
		t.Errorf("a secret that the tenant may not name: %d %s", status, p.Detail)
	}
	if err := s.client("acme", access.Author).DeleteHook(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if status, _, p := s.github("/v1/hooks/acme/x", "a secret", "d", opened(1)); status != http.StatusUnauthorized {
		t.Errorf("a delivery to a hook that was removed: %d %s", status, p.Detail)
	}
}
