package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// guarded is a gateway that requires authentication.
type guarded struct {
	t     *testing.T
	url   string
	store *countingStore
	keys  *access.Keys
	bus   *membus.Bus
}

// countingStore records the calls of a store.
type countingStore struct {
	state.Store

	mu      sync.Mutex
	calls   []string
	aborted []string
}

func (c *countingStore) count(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

// since returns the calls of the store since the last time.
func (c *countingStore) since() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (c *countingStore) Abort(ctx context.Context, id state.RunID, a state.Abort, d time.Duration) (state.Wake, error) {
	c.mu.Lock()
	c.aborted = append(c.aborted, string(id))
	c.mu.Unlock()
	return c.Store.Abort(ctx, id, a, d)
}

func (c *countingStore) Load(ctx context.Context, id state.RunID) (state.State, error) {
	c.count("load")
	return c.Store.Load(ctx, id)
}

func (c *countingStore) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	c.count("log")
	return c.Store.Log(ctx, id, after, limit)
}

func (c *countingStore) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	c.count("log")
	return c.Store.LogPage(ctx, id, after, limit, bytes)
}

func (c *countingStore) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	c.count("agent")
	return c.Store.Agent(ctx, tenant, name, version)
}

func (c *countingStore) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	c.count("list")
	return c.Store.List(ctx, f)
}

func (c *countingStore) Signal(ctx context.Context, id state.RunID, s state.Signal, d time.Duration) (state.Wake, error) {
	c.count("signal")
	return c.Store.Signal(ctx, id, s, d)
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	return newGuardedOn(t, memstore.New(memstore.Config{}))
}

// newGuardedOn is newGuarded with the given store.
func newGuardedOn(t *testing.T, in state.Store) *guarded {
	t.Helper()
	store, b := &countingStore{Store: in}, membus.New()
	keys := access.NewKeys(store)
	g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: keys}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return &guarded{t, server.URL, store, keys, b}
}

// key creates a key and returns its text.
func (s *guarded) key(tenant string, roles ...access.Role) string {
	s.t.Helper()
	text, _, err := s.keys.Create(s.t.Context(), access.KeySpec{Tenant: tenant, Roles: roles})
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func (s *guarded) client(tenant string, roles ...access.Role) *api.Client {
	s.t.Helper()
	return api.New(s.url, api.WithToken(s.key(tenant, roles...)))
}

const talker = `{"model":{"provider":"scripted","responses":[{"text":"x"}]}}`

// run defines an agent in a tenant and submits a run of it.
func (s *guarded) run(tenant string) api.Run {
	s.t.Helper()
	c := s.client(tenant, access.Author, access.Submitter)
	if _, err := c.PutAgent(s.t.Context(), "a", []byte(talker)); err != nil {
		s.t.Fatal(err)
	}
	run, err := c.Submit(s.t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

func (s *guarded) do(method, path, token, tenant, body string) (int, api.Problem) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if tenant != "" {
		req.Header.Set("Turnpike-Tenant", tenant)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var p api.Problem
	if resp.StatusCode >= http.StatusBadRequest {
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			s.t.Fatalf("%s %s returned %d without a problem: %v", method, path, resp.StatusCode, err)
		}
	}
	if resp.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
		s.t.Errorf("%s %s: 401 without WWW-Authenticate", method, path)
	}
	return resp.StatusCode, p
}

var variable = regexp.MustCompile(`\{\w+(\.\.\.)?\}`)

// Every non-public route requires authentication, whatever the request contains.
func TestEveryRouteWantsACaller(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	key := s.key("acme", access.Roles()...)
	secret := key[:len(key)-4] + "aaaa"
	for _, pattern := range gateway.Routes(t) {
		method, path, _ := strings.Cut(pattern, " ")
		open := slices.Contains([]string{"/healthz", "/readyz", "/openapi.json", "/v1/session", "/auth/login", "/auth/callback"}, path)
		path = variable.ReplaceAllString(path, "x")
		for name, token := range map[string]string{"none": "", "other words": "tp_", "unknown": "tp_aaaaaaaaaaaaaaaa_b", "another secret": secret, "no key": "eyJhbGciOiJub25lIn0.e30."} {
			status, p := s.do(method, path, token, "", "{}")
			if want := status == http.StatusUnauthorized && p.Code == api.CodeUnauthenticated; want == open {
				t.Errorf("%s with the token %q: %d %s", pattern, name, status, p.Code)
			}
		}
	}
}

// Objects of another tenant are indistinguishable from missing ones: each route answers the same, after the
// same store calls.
func TestForeignIsAsIfItWereNot(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	foreign := s.run("other")
	if _, err := s.client("other", access.Submitter).SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{{Agent: "a", Input: api.Text("x")}}}, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.bus.DeadLetter(t.Context(), deadOf("other")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "other", api.TenantSettings{}); err != nil {
		t.Fatal(err)
	}
	foreignKey, err := s.client("other", access.Admin).CreateKey(t.Context(), api.KeyRequest{Roles: []string{"viewer"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.PutDocument(t.Context(), state.HooksOf("other"), "theirs", json.RawMessage(`{"verify":"github","secret":"secret://GITHUB"}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.store.PutDocument(t.Context(), state.TriggersOf("other"), "theirs", json.RawMessage(`{"stream":"ORDERS","run":{"agent":"a"},"id":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.store.PutDocument(t.Context(), state.SchedulesOf("other"), "theirs", json.RawMessage(`{"cron":"@daily","run":{"agent":"a","input":"x"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.store.PutDocument(t.Context(), state.MemoriesOf("other"), "tenant", json.RawMessage(`{"version":1,"files":{"/memories/theirs":{"content":"x","version":1}}}`)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []state.DocumentKind{state.EvaluationsOf("other"), state.EvaluationSummariesOf("other")} {
		if err := s.store.PutDocument(t.Context(), kind, "theirs", json.RawMessage(`{"id":"theirs","versions":[]}`)); err != nil {
			t.Fatal(err)
		}
	}
	foreignFile, err := s.client("other", access.Submitter).PutFile(t.Context(), api.FileUpload{Name: "theirs.txt", Content: strings.NewReader("x")})
	if err != nil {
		t.Fatal(err)
	}
	foreignTest, err := s.client("other", access.Submitter).TestWebhook(t.Context(), api.WebhookTestRequest{URL: "https://example.com", Secret: api.SecretReferences{"secret://X"}})
	if err != nil {
		t.Fatal(err)
	}
	nobody := "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	ids := map[string][2]string{ // an id of the other tenant, and an id that does not exist
		"/v1/runs/{id}":      {foreign.ID, nobody},
		"/v1/batches/{id}":   {"batch_" + foreign.ID[4:], "batch_" + nobody[4:]},
		"/v1/agents/{name}":  {"a", "b"},
		"/v1/dead/{seq}":     {"1", "99"},
		"/v1/keys/{id}":      {foreignKey.ID, "aaaaaaaaaaaaaaaa"},
		"/v1/tenants/{name}": {"other", "nobody"},
		"/v1/hooks/{name}":   {"theirs", "nobody"},

		"/v1/triggers/{name}":  {"theirs", "nobody"},
		"/v1/schedules/{name}": {"theirs", "nobody"},

		"/v1/webhooks/tests/{id}": {foreignTest.ID, "test_01ARZ3NDEKTSV4RRFFQ69G5FAV"},
		"/v1/evaluations/{id}":    {"theirs", "nobody"},

		"/v1/files/{id}": {foreignFile.ID, "file_" + nobody[4:]},

		"/v1/memory/{path...}": {"theirs?scope=tenant", "nobody?scope=tenant"},
	}
	bodies := map[string]string{"cancel": "{}", "signals": `{"message":"x"}`, "fork": `{"turn":0,"input":"x"}`, "publish": `{"hash":"x"}`}
	for _, role := range access.Roles() {
		key := s.key("acme", role)
		for _, pattern := range gateway.Routes(t) {
			method, path, _ := strings.Cut(pattern, " ")
			for prefix, id := range ids {
				rest, ok := strings.CutPrefix(path, prefix)
				if !ok || method == http.MethodPut || strings.HasPrefix(pattern, "POST /v1/hooks/") {
					continue
				}
				at := func(id string) (int, string, []string) {
					s.store.since()
					status, p := s.do(method, variable.ReplaceAllString(prefix, id)+rest, key, "", bodies[strings.Trim(rest, "/")])
					calls := s.store.since()
					slices.Sort(calls) // some are concurrent
					return status, p.Code, calls
				}
				status, code, calls := at(id[0])
				wantStatus, wantCode, wantCalls := at(id[1])
				if status != wantStatus || code != wantCode || !slices.Equal(calls, wantCalls) {
					t.Errorf("%s as %s for another tenant's object: %d %s, %v; for a missing one: %d %s, %v", pattern, role, status, code, calls, wantStatus, wantCode, wantCalls)
				}
				if status != http.StatusNotFound && status != http.StatusForbidden {
					t.Errorf("%s as %s for another tenant's object: %d", pattern, role, status)
				}
			}
		}
	}
	c := s.client("acme", access.Roles()...)
	if page, err := c.List(t.Context(), nil); err != nil || len(page.Items) != 0 {
		t.Errorf("runs of another tenant are listed: %+v, %v", page, err)
	}
	if page, err := c.Batches(t.Context(), "", 0); err != nil || len(page.Items) != 0 {
		t.Errorf("batches of another tenant are listed: %+v, %v", page, err)
	}
	if agents, err := c.Agents(t.Context()); err != nil || len(agents) != 0 {
		t.Errorf("agents of another tenant are listed: %+v, %v", agents, err)
	}
	if dead, err := c.Dead(t.Context(), 0, 0); err != nil || len(dead.Items) != 0 {
		t.Errorf("dead letters of another tenant are listed: %+v, %v", dead, err)
	}
	if files, err := c.Files(t.Context(), "", 0); err != nil || len(files.Items) != 0 {
		t.Errorf("files of another tenant are listed: %+v, %v", files, err)
	}
	if evaluations, err := c.Evaluations(t.Context(), "", "", 0); err != nil || len(evaluations.Items) != 0 {
		t.Errorf("evaluations of another tenant are listed: %+v, %v", evaluations, err)
	}
	if keys, err := c.Keys(t.Context()); err != nil || slices.ContainsFunc(keys, func(k api.APIKey) bool { return k.Tenant != "acme" }) {
		t.Errorf("keys of another tenant are listed: %+v, %v", keys, err)
	}
	if audit, err := c.Audit(t.Context(), "", 0); err != nil || slices.ContainsFunc(audit.Items, func(a api.AuditEntry) bool { return a.By.Tenant != "acme" }) {
		t.Errorf("the audit of another tenant is readable: %+v, %v", audit, err)
	}
}

// Each role allows its own actions and no others.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	run := s.run("acme")
	path := "/v1/runs/" + run.ID
	asked := []struct {
		method, path, body string
		roles              []access.Role
	}{
		{"GET", path, "", access.Roles()},
		{"GET", "/v1/runs", "", access.Roles()},
		{"POST", "/v1/runs", `{"agent":"a","input":"x"}`, []access.Role{access.Submitter}},
		{"POST", "/v1/runs:batch", `{"runs":[{"agent":"a","input":"x"}]}`, []access.Role{access.Submitter}},
		{"POST", path + "/signals", `{"message":"x"}`, []access.Role{access.Submitter}},
		{"POST", path + "/signals", `{"approvals":[{"call_id":"c","decision":"approve"}]}`, []access.Role{access.Approver}},
		{"POST", path + "/signals", `{"answer":"x"}`, []access.Role{access.Submitter, access.Approver}},
		{"PUT", "/v1/agents/b", talker, []access.Role{access.Author}},
		{"DELETE", "/v1/agents/nobody", "", []access.Role{access.Author}},
		{"POST", "/v1/dead/9/replay", "", []access.Role{access.Operator}},
		{"POST", "/v1/webhooks/tests", "{}", []access.Role{access.Submitter, access.Author, access.Admin}},
		{"DELETE", path, "", []access.Role{access.Operator}},
		{"POST", "/v1/files", "x", []access.Role{access.Submitter, access.Author}},
		{"DELETE", "/v1/files/file_x", "", []access.Role{access.Submitter, access.Author, access.Operator}},
		{"PUT", "/v1/evaluations/x", "{}", []access.Role{access.Author}},
		{"DELETE", "/v1/evaluations/x", "", []access.Role{access.Author}},
		{"GET", "/v1/evaluations", "", access.Roles()},
		{"GET", "/v1/keys", "", []access.Role{access.Admin}},
		{"GET", "/v1/audit", "", []access.Role{access.Admin}},
		{"POST", path + "/cancel", "", []access.Role{access.Operator}}, // submitters cancel their own runs: below
	}
	for _, a := range asked {
		for _, role := range access.Roles() {
			status, p := s.do(a.method, a.path, s.key("acme", role), "", a.body)
			refused := status == http.StatusForbidden && p.Code == api.CodeForbidden
			if refused == slices.Contains(a.roles, role) {
				t.Errorf("%s %s as %s: %d %s", a.method, a.path, role, status, p.Detail)
			}
		}
	}
	own := s.client("acme", access.Submitter)
	mine, err := own.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Cancel(t.Context(), mine.ID, "mine"); err != nil {
		t.Errorf("a submitter cancels its own run: %v", err)
	}
}

// A request with two tokens has no caller, and one with two tenant headers is refused.
func TestTwice(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	one, two := s.key("acme", access.Viewer), s.key("other", access.Viewer)
	for name, c := range map[string]struct {
		header http.Header
		path   string
		want   int
	}{
		"two tokens":             {http.Header{"Authorization": {"Bearer " + one, "Bearer " + two}}, "/v1/runs", http.StatusUnauthorized},
		"one token twice":        {http.Header{"Authorization": {"Bearer " + one, "Bearer " + one}}, "/v1/runs", http.StatusUnauthorized},
		"two tenants":            {http.Header{"Authorization": {"Bearer " + one}, "Turnpike-Tenant": {"acme", "other"}}, "/v1/runs", http.StatusBadRequest},
		"a tenant twice":         {http.Header{"Authorization": {"Bearer " + one}, "Turnpike-Tenant": {"acme", "acme"}}, "/v1/runs", http.StatusOK},
		"another as a parameter": {http.Header{"Authorization": {"Bearer " + one}, "Turnpike-Tenant": {"acme"}}, "/v1/runs?tenant=other", http.StatusBadRequest},
		"two parameters":         {http.Header{"Authorization": {"Bearer " + one}}, "/v1/whoami?tenant=acme&tenant=other", http.StatusBadRequest},
		"the own as a parameter": {http.Header{"Authorization": {"Bearer " + one}}, "/v1/whoami?tenant=acme", http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = c.header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", name, resp.Status, c.want)
		}
	}
}

// A principal of the deployment chooses a tenant; a principal of a tenant cannot choose another one.
func TestTenantHeader(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	s.run("acme")
	operator := api.New(s.url, api.WithToken(s.key("*", access.Viewer)), api.WithTenant("acme"))
	if page, err := operator.List(t.Context(), nil); err != nil || len(page.Items) != 1 {
		t.Errorf("a viewer of the deployment reads %+v, %v", page.Items, err)
	}
	for _, tenant := range []string{"other", "*", "Acme", "acme/../other"} {
		if status, p := s.do("GET", "/v1/runs", s.key("acme", access.Viewer), tenant, ""); status != http.StatusForbidden {
			t.Errorf("a viewer of acme requests tenant %q: %d %s", tenant, status, p.Detail)
		}
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, s.key("acme", access.Roles()...): http.StatusForbidden, s.key("*", access.Viewer): http.StatusOK} {
		if status, _ := s.do("GET", "/metrics", token, "", ""); status != want {
			t.Errorf("metrics: %d, want %d", status, want)
		}
	}
	if status, _ := s.do("POST", "/v1/keys", s.key("acme", access.Admin), "", `{"tenant":"other","roles":["viewer"]}`); status != http.StatusForbidden {
		t.Errorf("an admin of acme makes a key for another tenant: %d", status)
	}
	if status, _ := s.do("PUT", "/v1/tenants/acme", s.key("acme", access.Admin), "", `{}`); status != http.StatusForbidden {
		t.Errorf("an admin of acme changes the settings of acme: %d", status)
	}
}

// A revoked key is refused by every gateway within five seconds, and open streams end.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(memstore.Config{}), membus.New()
		keys := access.NewKeys(store)
		g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: keys}})
		if err != nil {
			t.Fatal(err)
		}
		text, key, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Submitter, access.Author}})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(method, path, body string, w http.ResponseWriter) {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+text)
			g.Handler().ServeHTTP(w, r)
		}
		ask("PUT", "/v1/agents/a", talker, httptest.NewRecorder())
		rec := httptest.NewRecorder()
		ask("POST", "/v1/runs", `{"agent":"a","input":"x"}`, rec)
		var run api.Run
		if err := json.Unmarshal(rec.Body.Bytes(), &run); err != nil || run.ID == "" {
			t.Fatalf("submit: %s", rec.Body)
		}
		ended := make(chan time.Time, 2)
		for _, path := range []string{"/v1/runs/" + run.ID + "/events", "/v1/runs?wait=10m"} {
			go func() {
				if strings.HasSuffix(path, "events") {
					ask("GET", path, "", httptest.NewRecorder())
				} else {
					ask("POST", path, `{"agent":"a","input":"x"}`, httptest.NewRecorder())
				}
				ended <- time.Now()
			}()
		}
		time.Sleep(time.Second) // of simulated time: both streams are open
		revoked := time.Now()
		if _, err := access.NewKeys(store).Revoke(t.Context(), "acme", key.ID); err != nil { // by another gateway
			t.Fatal(err)
		}
		for range 2 {
			if took := (<-ended).Sub(revoked); took > 5*time.Second {
				t.Errorf("a stream continued for %s after its key was revoked", took)
			}
		}
		rec = httptest.NewRecorder()
		ask("GET", "/v1/runs", "", rec)
		if rec.Code != http.StatusUnauthorized {
			t.Errorf("a revoked key: %d %s", rec.Code, rec.Body)
		}
	})
}

// In a tenant with four eyes, submitters cannot approve calls of their own runs. A suspended tenant can only
// read and cancel.
func TestTenantSettings(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	admin := s.client("*", access.Admin)
	c := s.client("acme", access.Author, access.Submitter, access.Approver)
	if _, err := c.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.PutTenant(t.Context(), "acme", api.TenantSettings{FourEyes: true}); err != nil {
		t.Fatal(err)
	}
	code := func(err error) string {
		p, _ := errors.AsType[*api.Problem](err)
		if p == nil {
			return fmt.Sprint(err)
		}
		return p.Code
	}
	approval := api.SignalRequest{Approvals: []api.Approval{{CallID: "c", Decision: "approve"}}}
	awaitSetting(t, func() bool {
		_, err := c.Signal(t.Context(), run.ID, approval)
		return code(err) == api.CodeForbidden
	})
	if _, err := s.client("acme", access.Approver).Signal(t.Context(), run.ID, approval); code(err) != api.CodeNotWaiting {
		t.Errorf("another principal approves: %v, want an error that no call waits", err)
	}
	if _, err := admin.PutTenant(t.Context(), "acme", api.TenantSettings{Suspended: true}); err != nil {
		t.Fatal(err)
	}
	awaitSetting(t, func() bool {
		_, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
		return code(err) == api.CodeTenantSuspended
	})
	if _, err := c.Get(t.Context(), run.ID); err != nil {
		t.Errorf("a suspended tenant reads: %v", err)
	}
	if _, err := c.Cancel(t.Context(), run.ID, ""); err != nil {
		t.Errorf("a suspended tenant cancels: %v", err)
	}
}

// The log of the run and the audit record the principal of each action.
func TestBy(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	c := s.client("acme", access.Author, access.Submitter, access.Admin)
	who, err := c.WhoAmI(t.Context())
	if err != nil || who.Tenant != "acme" || who.Via != "key" {
		t.Fatalf("WhoAmI = %+v, %v", who, err)
	}
	if _, err := c.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := state.ParseRunID(run.ID)
	if err != nil {
		t.Fatal(err)
	}
	log, err := s.store.Store.Log(t.Context(), id, 0, 0)
	want := state.By{Principal: who.Principal, Tenant: "acme", Via: "key"}
	if err != nil || log[0].By == nil || *log[0].By != want {
		t.Errorf("run.submitted is by %+v, want %+v (%v)", log[0].By, want, err)
	}
	audit, err := c.Audit(t.Context(), "", 10)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, a := range audit.Items {
		if a.By != want || a.At.IsZero() {
			t.Errorf("the audit says %+v", a)
		}
		actions = append(actions, a.Action+" "+a.Target)
	}
	if want := []string{"run.submit " + run.ID, "agent.put a"}; !slices.Equal(actions, want) {
		t.Errorf("the audit has %q, want %q", actions, want)
	}
}

// awaitSetting waits until a tenant's settings take effect: gateways cache them for a moment.
func awaitSetting(t *testing.T, counts func() bool) {
	t.Helper()
	eventually(t, "the settings of the tenant count", counts)
}

func deadOf(tenant string) bus.DeadLetter {
	return bus.DeadLetter{Kind: bus.DeadSubmission, Tenant: tenant, Agent: "a", Cause: "x", Data: "{}"}
}
