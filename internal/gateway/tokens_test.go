package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// token issues a token and returns its text.
func (s *guarded) token(tenant string, r api.TokenRequest) string {
	s.t.Helper()
	made, err := s.client(tenant, access.Issuer).CreateToken(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return made.Text
}

var userRoles = []string{"viewer", "submitter", "approver"}

// submit starts a run with a token or a key, and returns its id.
func (s *guarded) submit(token string, r api.SubmitRequest, key string) api.Run {
	s.t.Helper()
	r.Input = api.Text("x")
	run, err := api.New(s.url, api.WithToken(token)).Submit(s.t.Context(), r, key)
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// A token reaches only the runs to which it is bound. On every route, all others do not exist for it.
func TestTokenIsBound(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	of := s.run("acme") // of the backend
	foreign := s.run("other")
	if _, err := s.client("acme", access.Author).PutAgent(t.Context(), "b", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	ada := s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles, Agents: []string{"a"}})
	bob := s.token("acme", api.TokenRequest{User: "bob", Roles: userRoles})
	own, bobs := s.submit(ada, api.SubmitRequest{Agent: "a"}, ""), s.submit(bob, api.SubmitRequest{Agent: "b"}, "")
	if own.Metadata["user"] != "ada" {
		t.Errorf("the run of a user has metadata %v", own.Metadata)
	}
	given := s.submit(s.key("acme", access.Submitter), api.SubmitRequest{Agent: "a", Metadata: map[string]string{"user": "ada"}}, "")
	one := s.token("acme", api.TokenRequest{User: "boss", Roles: userRoles, Run: bobs.ID})
	for name, c := range map[string]struct {
		token    string
		run      api.Run
		reaches  bool
		mayStart bool
	}{
		"own":                        {ada, own, true, true},
		"that the backend started":   {ada, given, true, true},
		"of another user":            {ada, bobs, false, false},
		"of nobody":                  {ada, of, false, false},
		"of another tenant":          {ada, foreign, false, false},
		"own, without agents":        {bob, bobs, true, true},
		"the one":                    {one, bobs, true, false},
		"own, of a token for one":    {one, own, false, false},
		"another agent of the token": {s.token("acme", api.TokenRequest{User: "bob", Roles: userRoles, Agents: []string{"a"}}), bobs, false, false},
	} {
		path := "/v1/runs/" + c.run.ID
		for _, r := range []struct{ method, path, body string }{
			{"GET", path, ""},
			{"GET", path + "/messages", ""},
			{"GET", path + "/turns", ""},
			{"GET", path + "/events?limit=1", ""},
			{"GET", "/v1/runs?parent=" + c.run.ID, ""},
			{"POST", path + "/signals", `{"approvals":[{"call_id":"c","decision":"approve"}]}`},
			{"POST", path + "/fork", `{"turn":0,"input":"x"}`},
			{"POST", path + "/cancel", `{}`},
		} {
			status, p := s.doJSON(r.method, r.path, c.token, r.body)
			hidden := status == http.StatusNotFound && p.Code == api.CodeRunNotFound
			if hidden == c.reaches {
				t.Errorf("run %s: %s %s returns %d %s %s", name, r.method, r.path, status, p.Code, p.Detail)
			}
			if c.reaches && strings.HasSuffix(r.path, "/fork") && (status < http.StatusBadRequest) != c.mayStart {
				t.Errorf("run %s: fork returns %d %s", name, status, p.Detail)
			}
		}
	}
}

// A token for a child run reaches this run and those below it, but not the run above it.
func TestTokenOfAChildRun(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	root := s.run("acme")
	child := func(above string, depth int) string {
		t.Helper()
		st := state.State{
			ID: state.RunID(above).Plus(1), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal, Limits: state.Limits{MaxTurns: 9},
			Parent: &state.Parent{RunID: state.RunID(above), CallID: "c", Depth: depth},
		}
		st, err := st.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
		if err == nil {
			_, err = s.store.Create(t.Context(), state.NewRun{State: st, RedeliveryDelay: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(st.ID)
	}
	first := child(root.ID, 1)
	second := child(first, 2)
	one := s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles, Run: first})
	for run, want := range map[string]int{root.ID: http.StatusNotFound, first: http.StatusOK, second: http.StatusOK} {
		if status, p := s.doJSON("GET", "/v1/runs/"+run, one, ""); status != want {
			t.Errorf("run %s of the token's run %s: %d %s, want %d", run, first, status, p.Detail, want)
		}
	}
}

// The idempotency keys of a user's forks are that user's own.
func TestForkKeysOfUsers(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	s.run("acme") // stores the agent
	source := s.submit(s.key("acme", access.Submitter), api.SubmitRequest{Agent: "a", Metadata: map[string]string{"user": "ada"}}, "")
	forks := map[string]bool{}
	for _, token := range []string{s.key("acme", access.Submitter), s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles})} {
		run, err := api.New(s.url, api.WithToken(token)).ForkWithKey(t.Context(), source.ID, api.ForkRequest{Turn: new(int), Input: []byte(`"x"`)}, "k")
		if err != nil {
			t.Fatal(err)
		}
		forks[run.ID] = true
	}
	if len(forks) != 2 {
		t.Errorf("a backend and a user forked with one key: %d runs, want 2", len(forks))
	}
}

// A token for some agents forks a run at a turn of one of them, and not at a turn of the agent to which it was handed.
func TestTokenForksItsAgentsOnly(t *testing.T) {
	t.Parallel()
	s := newWorked(t)
	author := s.client("acme", access.Author)
	for name, definition := range map[string]string{
		"front": `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"id": "c1", "name": "over", "arguments": {}}]}]}, "tools": [{"name": "over", "kind": "handoff", "agent": "back"}]}`,
		"back":  `{"model": {"provider": "scripted", "responses": [{"text": "0"}, {"text": "back"}]}}`,
	} {
		if _, err := author.PutAgent(t.Context(), name, []byte(definition)); err != nil {
			t.Fatal(err)
		}
	}
	ada := s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles, Agents: []string{"front"}})
	run := s.submit(ada, api.SubmitRequest{Agent: "front"}, "")
	s.await(author, run.ID, "completed")
	for turn, want := range []int{http.StatusAccepted, http.StatusForbidden, http.StatusForbidden} {
		if status, p := s.do("POST", "/v1/runs/"+run.ID+"/fork", ada, "", fmt.Sprintf(`{"turn":%d,"input":"again"}`, turn)); status != want {
			t.Errorf("fork at turn %d: %d %s, want %d", turn, status, p.Detail, want)
		}
	}
}

// doJSON is do for a client that accepts JSON only.
func (s *guarded) doJSON(method, path, token, body string) (int, api.Problem) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var p api.Problem
	_ = json.NewDecoder(resp.Body).Decode(&p)
	return resp.StatusCode, p
}

// A token may use routes about its user's runs and no others, whatever its roles.
func TestTokenRoutes(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	s.run("acme")
	token := s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles})
	allowed := []string{
		"POST /v1/runs", "GET /v1/runs", "GET /v1/runs/{id}", "GET /v1/runs/{id}/messages", "GET /v1/runs/{id}/turns", "GET /v1/runs/{id}/events",
		"POST /v1/runs/{id}/cancel", "POST /v1/runs/{id}/signals", "POST /v1/runs/{id}/fork", "GET /v1/whoami",
	}
	for _, pattern := range gateway.Routes(t) {
		method, path, _ := strings.Cut(pattern, " ")
		if pattern == "GET /v1/events" || slices.Contains([]string{"/healthz", "/readyz", "/openapi.json", "/v1/session", "/auth/login", "/auth/callback"}, path) || strings.HasPrefix(path, "/v1/hooks") && method == "POST" {
			continue
		}
		status, p := s.do(method, variable.ReplaceAllString(path, "x"), token, "", "{}")
		refused := status == http.StatusForbidden && p.Code == api.CodeForbidden
		if refused == slices.Contains(allowed, pattern) {
			t.Errorf("%s with a token of a user: %d %s", pattern, status, p.Detail)
		}
	}
	who, err := api.New(s.url, api.WithToken(token)).WhoAmI(t.Context())
	if err != nil || who.Principal != "user:ada" || who.Via != "token" || who.Tenant != "acme" || !slices.Equal(who.Roles, userRoles) {
		t.Errorf("whoami: %+v, %v", who, err)
	}
}

// Lists, keys and submissions of a token are limited to its user.
func TestTokenOfUser(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	s.run("acme")
	ada, bob := s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles}), s.token("acme", api.TokenRequest{User: "bob", Roles: userRoles})
	first, second := s.submit(ada, api.SubmitRequest{Agent: "a"}, "k"), s.submit(bob, api.SubmitRequest{Agent: "a"}, "k")
	if first.ID == second.ID || s.submit(ada, api.SubmitRequest{Agent: "a"}, "k").ID != first.ID {
		t.Error("an idempotency key of one user returns the run of another")
	}
	list := func(token string, query url.Values) []string {
		page, err := api.New(s.url, api.WithToken(token)).List(t.Context(), query)
		if err != nil {
			return []string{err.Error()}
		}
		ids := []string{}
		for _, run := range page.Items {
			ids = append(ids, run.ID)
		}
		return ids
	}
	if got := list(ada, nil); !slices.Equal(got, []string{first.ID}) {
		t.Errorf("a user lists %v, want %s", got, first.ID)
	}
	if got := list(ada, url.Values{"text": {"x"}}); !slices.Equal(got, []string{first.ID}) {
		t.Errorf("a user finds %v, want %s", got, first.ID)
	}
	one := s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles, Run: first.ID})
	two := s.token("acme", api.TokenRequest{User: "ada", Roles: userRoles, Agents: []string{"b", "c"}})
	for name, c := range map[string]struct {
		token, method, path, body string
		status                    int
	}{
		"list of another user":            {ada, "GET", "/v1/runs?metadata.user=bob", "", 403},
		"list with a token for a run":     {one, "GET", "/v1/runs", "", 403},
		"list of several agents":          {two, "GET", "/v1/runs", "", 400},
		"list of another agent":           {two, "GET", "/v1/runs?agent=a", "", 403},
		"run of another user":             {ada, "POST", "/v1/runs", `{"agent":"a","input":"x","metadata":{"user":"bob"}}`, 403},
		"run as if of a hook":             {ada, "POST", "/v1/runs", `{"agent":"a","input":"x","metadata":{"hook":"h"}}`, 403},
		"run as if of a trigger":          {ada, "POST", "/v1/runs", `{"agent":"a","input":"x","metadata":{"trigger":""}}`, 403},
		"run as if of a delivery":         {ada, "POST", "/v1/runs", `{"agent":"a","input":"x","metadata":{"delivery":"d"}}`, 403},
		"run as if of a schedule":         {ada, "POST", "/v1/runs", `{"agent":"a","input":"x","metadata":{"schedule":"s"}}`, 403},
		"run as if of an instant":         {ada, "POST", "/v1/runs", `{"agent":"a","input":"x","metadata":{"scheduled_at":"t"}}`, 403},
		"batch as if of a trigger":        {ada, "POST", "/v1/runs:batch", `{"runs":[{"agent":"a","input":"x","metadata":{"trigger":"t"}}]}`, 403},
		"run of another agent":            {two, "POST", "/v1/runs", `{"agent":"a","input":"x"}`, 403},
		"run with a token for a run":      {one, "POST", "/v1/runs", `{"agent":"a","input":"x"}`, 403},
		"run with a webhook":              {ada, "POST", "/v1/runs", `{"agent":"a","input":"x","webhook":{"url":"https://example.com"}}`, 403},
		"another tenant":                  {ada, "GET", "/v1/runs?tenant=other", "", 403},
		"stream with a token for a run":   {one, "GET", "/v1/events", "", 403},
		"stream of another user":          {ada, "GET", "/v1/events?metadata.user=bob", "", 403},
		"stream of what is below a run":   {bob, "GET", "/v1/events?parent=" + first.ID, "", 404},
		"an agent, with its instructions": {ada, "GET", "/v1/agents/a", "", 403},
		"a token from a token":            {ada, "POST", "/v1/tokens", `{"user":"eve","roles":["viewer"]}`, 403},
	} {
		if status, p := s.do(c.method, c.path, c.token, "", c.body); status != c.status {
			t.Errorf("%s: %d %s, want %d", name, status, p.Detail, c.status)
		}
	}
	// A fork keeps the metadata of a run, except the fields that say who started it.
	triggered := s.submit(s.key("acme", access.Submitter), api.SubmitRequest{Agent: "a", Metadata: map[string]string{
		"user": "ada", "trigger": "t", "hook": "h", "delivery": "d", "schedule": "s", "scheduled_at": "t", "order": "17",
	}}, "")
	turn := 0
	fork, err := api.New(s.url, api.WithToken(ada)).Fork(t.Context(), triggered.ID, api.ForkRequest{Turn: &turn, Input: api.Text("y")})
	if want := map[string]string{"user": "ada", "order": "17"}; err != nil || !maps.Equal(fork.Metadata, want) {
		t.Errorf("the fork of a user has metadata %v, %v, want %v", fork.Metadata, err, want)
	}
	log, err := s.store.Log(t.Context(), state.RunID(first.ID), 0, 1)
	if err != nil || len(log) != 1 || log[0].By == nil || log[0].By.Principal != "user:ada" || log[0].By.Via != "token" {
		t.Errorf("the log attributes a user's run to %+v, %v", log, err)
	}
	audit, err := s.client("acme", access.Admin).Audit(t.Context(), "", 0)
	if err != nil || !slices.ContainsFunc(audit.Items, func(a api.AuditEntry) bool {
		return a.Action == "token.create" && strings.HasPrefix(a.Target, "user:bob ")
	}) {
		t.Errorf("the audit lacks the token: %+v, %v", audit, err)
	}
}

// Token requests are validated.
func TestTokenRequests(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	foreign := s.run("other")
	issuer := s.key("acme", access.Issuer)
	many := `["` + strings.Repeat(`a","`, 32) + `a"]`
	for body, want := range map[string]string{
		`{"roles":["viewer"]}`:                                                        "user is missing",
		`{"user":"a b","roles":["viewer"]}`:                                           "spaces",
		`{"user":"a\u0000","roles":["viewer"]}`:                                       "control characters",
		`{"user":"` + strings.Repeat("a", 129) + `","roles":["viewer"]}`:              "at most 128",
		`{"user":"ada"}`:                                                              "roles: no role is given: give one or more of viewer, submitter, approver",
		`{"user":"ada","roles":[]}`:                                                   "roles: no role is given: give one or more of viewer, submitter, approver",
		`{"user":"ada","roles":["wizard"]}`:                                           `role is "wizard": use one of viewer, submitter, approver`,
		`{"user":"ada","roles":["operator"]}`:                                         "a token cannot have the role operator",
		`{"user":"ada","roles":["issuer"]}`:                                           "a token cannot have the role issuer",
		`{"user":"ada","roles":["viewer"],"expires_in":"25h"}`:                        "at most",
		`{"user":"ada","roles":["viewer"],"expires_in":"-1s"}`:                        "expires_in",
		`{"user":"ada","roles":["viewer"],"expires_in":"0s"}`:                         "expires_in is 0s",
		`{"user":"ada","roles":["viewer"],"agents":` + many + `}`:                     "at most 32",
		`{"user":"ada","roles":["viewer"],"agents":[""]}`:                             "1 to 128",
		`{"user":"ada","roles":["viewer"],"agents":[]}`:                               "agents is an empty list",
		`{"user":"ada","roles":["viewer"],"run":"` + foreign.ID + `"}`:                "not found",
		`{"user":"ada","roles":["viewer"],"run":"nonsense"}`:                          "nonsense",
		`{"user":"ada","roles":["viewer"],"agents":["a"],"run":"` + foreign.ID + `"}`: "agents and run are both given",
		`{"user":"ada","roles":["viewer"],"tenant":"other"}`:                          "tenant",
	} {
		status, p := s.do("POST", "/v1/tokens", issuer, "", body)
		if status < 400 || status >= 500 || !strings.Contains(p.Detail, want) && !(want == "at most" && strings.Contains(p.Detail, "24h0m0s")) {
			t.Errorf("%s: %d %s, want %q", body, status, p.Detail, want)
		}
	}
	for _, role := range access.Roles() {
		if status, p := s.do("POST", "/v1/tokens", s.key("acme", role), "", `{"user":"ada","roles":["viewer"]}`); (status == http.StatusCreated) != (role == access.Issuer) {
			t.Errorf("a token from a key with role %s: %d %s", role, status, p.Detail)
		}
		if status, p := s.do("POST", "/v1/tokens:rotate", s.key("acme", role), "", ""); (status == http.StatusOK) != (role == access.Admin) {
			t.Errorf("rotation by a key with role %s: %d %s", role, status, p.Detail)
		}
	}
}

// A token is valid only with the signature of the tenant's key, by the one supported algorithm.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	text := s.token("acme", api.TokenRequest{User: "ada", Roles: []string{"viewer"}})
	s.token("other", api.TokenRequest{User: "ada", Roles: []string{"viewer"}})
	parts := strings.Split(strings.TrimPrefix(text, "tpt_"), ".")
	decode := func(part string) string {
		b, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	header, claims := decode(parts[0]), decode(parts[1])
	for name, forged := range map[string]string{
		"another user":      parts[0] + "." + encode(strings.Replace(claims, "ada", "eve", 1)) + "." + parts[2],
		"no signature":      parts[0] + "." + parts[1] + ".",
		"no algorithm":      encode(strings.Replace(header, "HS256", "none", 1)) + "." + parts[1] + ".",
		"another algorithm": encode(strings.Replace(header, "HS256", "HS512", 1)) + "." + parts[1] + "." + parts[2],
		"another tenant":    encode(strings.Replace(header, "acme.", "other.", 1)) + "." + parts[1] + "." + parts[2],
		"an unknown key":    encode(strings.Replace(header, `"acme.`, `"acme.x`, 1)) + "." + parts[1] + "." + parts[2],
		"no tenant":         encode(strings.Replace(header, "acme.", "", 1)) + "." + parts[1] + "." + parts[2],
		"long":              parts[0] + "." + strings.Repeat("a", 9000) + "." + parts[2],
		"nothing":           "",
	} {
		if status, p := s.do("GET", "/v1/runs", "tpt_"+forged, "", ""); status != http.StatusUnauthorized || !strings.Contains(p.Detail, "the token is not valid") {
			t.Errorf("%s: %d %s", name, status, p.Detail)
		}
	}
	if status, p := s.do("GET", "/v1/runs", text, "", ""); status != http.StatusOK {
		t.Errorf("the token itself: %d %s", status, p.Detail)
	}
	if status, _ := s.do("GET", "/v1/runs", strings.TrimPrefix(text, "tpt_"), "", ""); status != http.StatusUnauthorized {
		t.Errorf("a token without its prefix: %d", status)
	}
}

// A token ends when it expires. It also ends within five seconds when its issuer's key is revoked, its tenant
// is suspended, or its signing key is rotated twice. This holds on every gateway, and open streams end with it.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(t *testing.T, keys *access.Keys, key api.APIKey, tenants *access.Tenants, tokens *access.Tokens) time.Duration{
		"expired": func(*testing.T, *access.Keys, api.APIKey, *access.Tenants, *access.Tokens) time.Duration {
			return 10 * time.Minute
		},
		"revoked": func(t *testing.T, keys *access.Keys, key api.APIKey, _ *access.Tenants, _ *access.Tokens) time.Duration {
			if _, err := keys.Revoke(t.Context(), "acme", key.ID); err != nil {
				t.Error(err)
			}
			return 0
		},
		"suspended": func(t *testing.T, _ *access.Keys, _ api.APIKey, tenants *access.Tenants, _ *access.Tokens) time.Duration {
			if err := tenants.Put(t.Context(), "acme", api.TenantSettings{Suspended: true}, time.Now()); err != nil {
				t.Error(err)
			}
			return 0
		},
		"rotated twice": func(t *testing.T, _ *access.Keys, _ api.APIKey, _ *access.Tenants, tokens *access.Tokens) time.Duration {
			for range 2 {
				if _, err := tokens.Rotate(t.Context(), "acme"); err != nil {
					t.Error(err)
				}
			}
			return 0
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, b := memstore.New(memstore.Config{}), membus.New()
				// Another process makes the changes.
				keys, tenants := access.NewKeys(store), access.NewTenants(store, "default")
				tokens := access.NewTokens(store, keys, tenants)
				g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: access.NewKeys(store)}})
				if err != nil {
					t.Fatal(err)
				}
				text, key, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Issuer, access.Author}})
				if err != nil {
					t.Fatal(err)
				}
				ask := func(token, method, path, body string) *httptest.ResponseRecorder {
					w := httptest.NewRecorder()
					r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
					r.Header.Set("Authorization", "Bearer "+token)
					g.Handler().ServeHTTP(w, r)
					return w
				}
				ask(text, "PUT", "/v1/agents/a", talker)
				var token api.NewToken
				if w := ask(text, "POST", "/v1/tokens", `{"user":"ada","roles":["submitter"],"expires_in":"10m"}`); json.Unmarshal(w.Body.Bytes(), &token) != nil || token.Text == "" {
					t.Fatalf("token: %s", w.Body)
				}
				var run api.Run
				if w := ask(token.Text, "POST", "/v1/runs", `{"agent":"a","input":"x"}`); json.Unmarshal(w.Body.Bytes(), &run) != nil || run.ID == "" {
					t.Fatalf("submit: %s", w.Body)
				}
				began, ended := time.Now(), make(chan time.Time, 1)
				go func() {
					ask(token.Text, "GET", "/v1/runs/"+run.ID+"/events", "")
					ended <- time.Now()
				}()
				after := end(t, keys, key, tenants, tokens)
				at := <-ended
				if took := at.Sub(began); took < after || took > after+5*time.Second {
					t.Errorf("the stream ended after %s, want %s and up to 5s", took, after)
				}
				if w := ask(token.Text, "GET", "/v1/runs", ""); w.Code != http.StatusUnauthorized {
					t.Errorf("after its end the token gets %d: %s", w.Code, w.Body)
				}
			})
		})
	}
}

// After a rotation two keys are valid. A gateway that has cached the old keys accepts a token of the new one at
// once.
func TestTokenKeysRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		keys := access.NewKeys(store)
		_, key, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Issuer}})
		if err != nil {
			t.Fatal(err)
		}
		one := access.NewTokens(store, keys, access.NewTenants(store, "default"))
		two := access.NewTokens(store, keys, access.NewTenants(store, "default"))
		issue := func(from *access.Tokens) string {
			text, _, err := from.Create(t.Context(), access.TokenSpec{Tenant: "acme", Bound: access.Bound{User: "ada"}, Roles: []access.Role{access.Viewer}, Key: key.ID})
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		accepts := func(want bool, text string) {
			t.Helper()
			for _, tokens := range []*access.Tokens{one, two} {
				if _, err := tokens.Authenticate(t.Context(), text); (err == nil) != want {
					t.Errorf("authenticate: %v, want success %t", err, want)
				}
			}
		}
		first := issue(one)
		accepts(true, first)
		time.Sleep(time.Second) // let the caches age
		if rotated, err := one.Rotate(t.Context(), "acme"); err != nil || len(rotated) != 2 {
			t.Fatalf("rotate: %v, %v", rotated, err)
		}
		second := issue(one)
		accepts(true, first)
		accepts(true, second)
		if _, err := two.Rotate(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		accepts(false, first)
		accepts(true, second)
		accepts(true, issue(two))
	})
}

// Pages of the allowed origins may send tokens and read responses, other origins may not. A session cookie
// never works across origins.
func TestCORS(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	g, err := gateway.New(store, membus.New(), gateway.Config{Origins: []string{"https://app.example.com"}, Auth: access.Chain{Keys: access.NewKeys(store)}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, origin string, header map[string]string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, "/v1/runs", strings.NewReader("{}"))
		r.Header.Set("Origin", origin)
		for name, value := range header {
			r.Header.Set(name, value)
		}
		g.Handler().ServeHTTP(w, r)
		return w
	}
	preflight := map[string]string{"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type,idempotency-key"}
	ok := ask("OPTIONS", "https://app.example.com", preflight)
	if ok.Code != http.StatusNoContent || ok.Header().Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(strings.ToLower(ok.Header().Get("Access-Control-Allow-Headers")), "authorization") {
		t.Errorf("preflight: %d %v", ok.Code, ok.Header())
	}
	if ok.Header().Get("Access-Control-Allow-Credentials") != "" || !slices.Contains(ok.Header().Values("Vary"), "Origin, Access-Control-Request-Method, Access-Control-Request-Headers") {
		t.Errorf("preflight: %v", ok.Header())
	}
	refused := ask("POST", "https://app.example.com", map[string]string{"Authorization": "Bearer tpt_x"})
	if refused.Code != http.StatusUnauthorized || refused.Header().Get("Access-Control-Allow-Origin") != "https://app.example.com" {
		t.Errorf("the page cannot read the problem: %d %v", refused.Code, refused.Header())
	}
	session := ask("POST", "https://app.example.com", map[string]string{"Cookie": "__Host-turnpike=x", "Sec-Fetch-Site": "cross-site"})
	if session.Code != http.StatusForbidden {
		t.Errorf("a request of an allowed origin with a session: %d", session.Code)
	}
	for _, origin := range []string{"https://evil.example", "https://app.example.com.evil.example", "http://app.example.com", "null", "https://app.example.com:8443"} {
		if got := ask("OPTIONS", origin, preflight).Header().Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("origin %s is allowed: %s", origin, got)
		}
	}
	for _, bad := range []string{"*", "https://*.example.com", "https://app.example.com/", "app.example.com", "https://App.example.com", "null", ""} {
		if _, err := gateway.New(store, membus.New(), gateway.Config{Origins: []string{bad}}); err == nil || !strings.Contains(err.Error(), "TURNPIKE_CORS_ORIGINS") {
			t.Errorf("origin %q: %v", bad, err)
		}
	}
}
