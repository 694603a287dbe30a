package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

const (
	sessionCookie = "__Host-turnpike"
	loginCookie   = "__Host-turnpike-login"
)

// paged is a gateway over TLS with browser login through a real OpenID provider.
type paged struct {
	*guarded

	server *httptest.Server
	url    string // of server; the URL of guarded is without TLS
	issuer string
}

func newPaged(t *testing.T) *paged {
	t.Helper()
	var provider, front http.Handler
	op := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { provider.ServeHTTP(w, r) }))
	t.Cleanup(op.Close)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { front.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	issuer := strings.Replace(op.URL, "127.0.0.1", "localhost", 1) // the provider requires TLS or localhost
	storage.RegisterClients(storage.WebClient("turnpike", "secret", server.URL+"/auth/callback"))
	provider = exampleop.SetupServer(issuer, storage.NewStorage(storage.NewUserStore(issuer)), slog.New(slog.DiscardHandler), false)
	check, err := access.NewOIDC(access.OIDCConfig{
		Issuer: issuer, Audience: "turnpike", Claims: `{"tenant": "acme", "roles": claims.sub == "id2" ? ["submitter", "author"] : []}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	store, b := &countingStore{Store: memstore.New(memstore.Config{})}, membus.New()
	keys := access.NewKeys(store)
	login := access.NewLogin(store, access.LoginConfig{Keys: keys, OIDC: check, ClientSecret: "secret"})
	g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: keys, OIDC: check}, Login: login, PublicURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	front = g.Handler()
	plain := httptest.NewServer(front)
	t.Cleanup(plain.Close)
	return &paged{&guarded{t, plain.URL, store, keys, b}, server, server.URL, issuer}
}

// browser returns a client with its own cookies. It stops before a redirect to a path with the prefix stop.
func (p *paged) browser(stop string) *http.Client {
	p.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return &http.Client{Jar: jar, Transport: p.server.Client().Transport, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if stop != "" && strings.HasPrefix(r.URL.String(), p.url+stop) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

// answered is the head of a response.
type answered struct {
	Status     string
	StatusCode int
	Header     http.Header
	at         *url.URL // the final URL
	cookies    []*http.Cookie
}

// ask sends a request and returns the response and its body.
func (p *paged) ask(b *http.Client, method, address, body string, headers ...string) (answered, string) {
	p.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = p.url + address
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := b.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answered{resp.Status, resp.StatusCode, resp.Header, resp.Request.URL, resp.Cookies()}, string(text)
}

// logIn goes to the provider and submits the user's credentials. It returns the response at which the browser
// stops.
func (p *paged) logIn(b *http.Client, back string) (answered, string) {
	p.t.Helper()
	at, body := p.ask(b, "GET", "/auth/login?return="+url.QueryEscape(back), "")
	id := at.at.Query().Get("authRequestID")
	if id == "" {
		p.t.Fatalf("the login went to %s instead of the provider: %s", at.at, body)
	}
	form := url.Values{"username": {"test-user2"}, "password": {"verysecure"}, "id": {id}}
	return p.ask(b, "POST", p.issuer+"/login/username", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

func (p *paged) cookie(b *http.Client, name string) string {
	p.t.Helper()
	at, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range b.Jar.Cookies(at) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

// setCookie returns the cookie of a response. It fails unless scripts and other origins cannot access the
// cookie.
func setCookie(t *testing.T, resp answered, name string) *http.Cookie {
	t.Helper()
	for _, c := range resp.cookies {
		if c.Name == name {
			if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
				t.Errorf("the cookie is %q", c.Raw)
			}
			return c
		}
	}
	t.Fatalf("%s: no cookie %s in %v", resp.Status, name, resp.Header)
	return nil
}

// sessionUnder checks that a session is valid as long as the deployment has the provider of the login, and no longer.
func (p *paged) sessionUnder(id string) {
	p.t.Helper()
	provider := func(issuer string) *access.OIDC {
		o, err := access.NewOIDC(access.OIDCConfig{Issuer: issuer, Audience: "turnpike"})
		if err != nil {
			p.t.Fatal(err)
		}
		return o
	}
	for name, test := range map[string]struct {
		cfg   access.LoginConfig
		valid bool
	}{
		"the same provider": {access.LoginConfig{Keys: p.keys, OIDC: provider(p.issuer)}, true},
		"another provider":  {access.LoginConfig{Keys: p.keys, OIDC: provider(p.issuer + "/other")}, false},
		"no provider":       {access.LoginConfig{Keys: p.keys}, false},
	} {
		who, _, err := access.NewLogin(p.store, test.cfg).Authenticate(p.t.Context(), id)
		if valid := err == nil; valid != test.valid || !valid && !errors.Is(err, access.ErrUnauthenticated) {
			p.t.Errorf("a restart with %s: %+v, %v; want the session to be valid: %t", name, who, err, test.valid)
		}
	}
}

// A user logs in at the provider, reads runs and their events, submits one, and logs out.
func TestLogInWithProvider(t *testing.T) {
	p := newPaged(t)
	foreign := p.run("other")
	b := p.browser("/auth/callback")
	back := "/ui/?a=b#run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	answer, body := p.logIn(b, back)
	callback := answer.Header.Get("Location")
	if !strings.HasPrefix(callback, p.url+"/auth/callback?") {
		t.Fatalf("the provider returns %s %s", answer.Status, body)
	}
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, body = p.ask(b, "GET", callback, "")
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != back {
		t.Fatalf("the callback returns %s %v %s", answer.Status, answer.Header, body)
	}
	c := setCookie(t, answer, sessionCookie)
	if c.MaxAge < 8*3600-60 || c.MaxAge > 8*3600 {
		t.Errorf("the session lasts %d s", c.MaxAge)
	}
	stored, err := p.store.Documents(t.Context(), state.SessionDocument)
	if err != nil || len(stored) != 1 {
		t.Fatalf("sessions in the store: %v, %v", stored, err)
	}
	for name, data := range stored {
		if strings.Contains(name+string(data), c.Value) {
			t.Errorf("the store contains a session id in clear text: %s %s", name, data)
		}
	}
	answer, body = p.ask(b, "GET", "/v1/whoami", "")
	var who api.Identity
	if err := json.Unmarshal([]byte(body), &who); err != nil || who.Principal != "oidc:id2" || who.Tenant != "acme" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("whoami: %s %s %v", answer.Status, body, answer.Header)
	}
	if _, body = p.ask(b, "GET", "/v1/session", ""); !strings.Contains(body, `"principal":"oidc:id2"`) || !strings.Contains(body, `"ways":["key","oidc"]`) {
		t.Errorf("session: %s", body)
	}
	if answer, body = p.ask(b, "PUT", "/v1/agents/a", talker); answer.StatusCode >= 300 {
		t.Fatalf("define an agent: %s %s", answer.Status, body)
	}
	const submit = `{"agent":"a","input":"x"}`
	for name, headers := range map[string][]string{
		"a foreign origin":      {"Origin", "https://evil.example"},
		"the origin null":       {"Origin", "null"},
		"another port":          {"Origin", "https://127.0.0.1:1"},
		"a browser that says":   {"Sec-Fetch-Site", "cross-site"},
		"a sibling of the site": {"Sec-Fetch-Site", "same-site"},
	} {
		if answer, body = p.ask(b, "POST", "/v1/runs", submit, headers...); answer.StatusCode != http.StatusForbidden || !strings.Contains(body, "a page of another origin") {
			t.Errorf("a write from %s: %s %s", name, answer.Status, body)
		}
	}
	answer, body = p.ask(b, "POST", "/v1/runs", submit, "Origin", p.url, "Sec-Fetch-Site", "same-origin")
	var run api.Run
	if err := json.Unmarshal([]byte(body), &run); err != nil || answer.StatusCode != http.StatusAccepted {
		t.Fatalf("submit: %s %s", answer.Status, body)
	}
	if answer, body = p.ask(b, "GET", "/v1/runs/"+run.ID+"/events?tenant=acme", "", "Accept", "application/json"); answer.StatusCode != http.StatusOK || !strings.Contains(body, `"principal":"oidc:id2"`) {
		t.Errorf("events: %s %s", answer.Status, body)
	}
	for _, path := range []string{"/v1/runs/" + foreign.ID, "/v1/runs/" + foreign.ID + "/events"} {
		if answer, _ = p.ask(b, "GET", path, ""); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s of another tenant: %s", path, answer.Status)
		}
	}
	if answer, _ = p.ask(b, "GET", "/v1/runs?tenant=other", ""); answer.StatusCode != http.StatusForbidden {
		t.Errorf("runs of another tenant: %s", answer.Status)
	}
	p.sessionUnder(c.Value)
	answer, _ = p.ask(b, "DELETE", "/v1/session", "", "Origin", p.url)
	if setCookie(t, answer, sessionCookie); p.cookie(b, sessionCookie) != "" {
		t.Error("the browser keeps the ended session")
	}
	if answer, _ = p.ask(b, "GET", "/v1/whoami", "", "Cookie", sessionCookie+"="+c.Value); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the ended session: %s", answer.Status)
	}
}

// A provider response is valid once, in the browser that started the login.
func TestForgedCallback(t *testing.T) {
	p := newPaged(t)
	victim := p.browser("/auth/callback")
	answer, _ := p.logIn(victim, "/ui/#runs")
	callback := answer.Header.Get("Location")
	begun := p.cookie(victim, loginCookie)
	at, err := url.Parse(callback)
	if err != nil || begun == "" {
		t.Fatalf("callback %q, started %q: %v", callback, begun, err)
	}
	with := func(key, value string) string {
		q := at.Query()
		q.Set(key, value)
		return "/auth/callback?" + q.Encode()
	}
	forged := func(field string) string {
		var a map[string]string
		data, err := base64.RawURLEncoding.DecodeString(begun)
		if err == nil {
			err = json.Unmarshal(data, &a)
		}
		if err != nil || a[field] == "" {
			t.Fatalf("begun is %s: %v", data, err)
		}
		a[field] = strings.Repeat("A", 43)
		data, err = json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	refused := func(name, cookie, address string) {
		t.Helper()
		b := p.browser("/ui/")
		var headers []string
		if cookie != "" {
			headers = []string{"Cookie", loginCookie + "=" + cookie}
		}
		answer, body := p.ask(b, "GET", address, "", headers...)
		if answer.StatusCode != http.StatusUnauthorized || p.cookie(b, sessionCookie) != "" {
			t.Errorf("%s: %s %s", name, answer.Status, body)
		}
	}
	refused("the answer in another browser", "", callback)
	refused("no state", begun, with("state", ""))
	refused("a forged state", begun, with("state", "x"))
	refused("no state on both sides", base64.RawURLEncoding.EncodeToString([]byte(`{}`)), with("state", ""))
	refused("no base64", "{", callback)
	refused("an answer of another provider", begun, with("iss", "https://evil.example"))
	refused("an error of the provider", begun, with("error", "access_denied"))
	// The browser shows an error page that escapes all text from the provider.
	told, page := p.ask(p.browser("/ui/"), "GET", with("error", `<script>"'`), "", "Cookie", loginCookie+"="+begun, "Accept", "text/html,*/*;q=0.8")
	if told.StatusCode != http.StatusUnauthorized || told.Header.Get("Content-Type") != "text/html; charset=utf-8" || told.Header.Get("Cache-Control") != "no-store" ||
		!strings.HasPrefix(told.Header.Get("Content-Security-Policy"), "default-src 'self'") || !strings.Contains(page, "You are not logged in") ||
		!strings.Contains(page, "&lt;script&gt;") || strings.Contains(page, "<script") || !strings.Contains(page, `href="/ui/#runs"`) || !strings.Contains(page, told.Header.Get("X-Request-Id")) {
		t.Errorf("a browser with a refused login: %s %v %s", told.Status, told.Header, page)
	}
	refused("a code that is none", begun, with("code", "x"))
	refused("another verifier", forged("verifier"), callback)

	// None of these used up the code, or the provider no longer accepts it: start again.
	second := p.browser("/auth/callback")
	answer, _ = p.logIn(second, "/ui/")
	callback, begun = answer.Header.Get("Location"), p.cookie(second, loginCookie)
	refused("another nonce", forged("nonce"), callback)
	third := p.browser("/auth/callback")
	answer, _ = p.logIn(third, "/ui/")
	callback, begun = answer.Header.Get("Location"), p.cookie(third, loginCookie)
	third = &http.Client{Jar: third.Jar, Transport: third.Transport, CheckRedirect: p.browser("/ui/").CheckRedirect}
	if answer, body := p.ask(third, "GET", callback, ""); answer.StatusCode != http.StatusSeeOther || p.cookie(third, sessionCookie) == "" {
		t.Fatalf("log in: %s %s", answer.Status, body)
	}
	if p.cookie(third, loginCookie) != "" {
		t.Error("the browser keeps the finished login")
	}
	refused("the answer once more", begun, callback)
}

// The login request has the parameters that make its response useless to others (state, nonce, PKCE).
func TestLoginRequest(t *testing.T) {
	p := newPaged(t)
	b := p.browser("")
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, body := p.ask(b, "GET", "/auth/login", "")
	to, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), p.issuer+"/") {
		t.Fatalf("login: %s %v %s", answer.Status, answer.Header, body)
	}
	setCookie(t, answer, loginCookie)
	q := to.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 22 || len(q.Get("nonce")) < 22 ||
		q.Get("redirect_uri") != p.url+"/auth/callback" || !strings.Contains(q.Get("scope"), "openid") {
		t.Errorf("the login request has %v", q)
	}
}

// After a login, the browser goes to the page, even if the return address is forged.
func TestReturnAddress(t *testing.T) {
	p := newPaged(t)
	b := p.browser("")
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for back, want := range map[string]int{
		"": 303, "/ui/": 303, "/ui/#run_1": 303, "/ui/runs/run_1?x=//y": 303,
		"//evil.example": 400, `\\evil.example`: 400, `/\evil.example`: 400, `/ui/\evil.example`: 400, "https://evil.example/ui/": 400, "https:evil.example": 400,
		"/ui/..//evil.example": 400, "/ui/%2e%2e//evil.example": 400, "/ui/../v1/keys": 400, "/ui//evil.example": 400, "/uix": 400, "/": 400, "javascript:alert(1)": 400,
		"/ui/\r\nSet-Cookie: a=b": 400, "/ui/\t/evil.example": 400, " //evil.example": 400, "/%5cevil.example/ui/": 400, "///evil.example/ui/": 400, "/ui/%5c%5cevil.example": 400, "ui/": 400,
	} {
		if answer, body := p.ask(b, "GET", "/auth/login?return="+url.QueryEscape(back), ""); answer.StatusCode != want {
			t.Errorf("return=%q: %s %s", back, answer.Status, body)
		}
	}
	// A forged cookie does not change that.
	for _, evil := range []string{"//evil.example", "https://evil.example/"} {
		b := p.browser("/auth/callback")
		answer, _ := p.logIn(b, "/ui/")
		data, err := base64.RawURLEncoding.DecodeString(p.cookie(b, loginCookie))
		if err != nil {
			t.Fatal(err)
		}
		forged := strings.Replace(string(data), `"/ui/"`, `"`+evil+`"`, 1)
		fresh := &http.Client{Transport: b.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		end, body := p.ask(fresh, "GET", answer.Header.Get("Location"), "", "Cookie", loginCookie+"="+base64.RawURLEncoding.EncodeToString([]byte(forged)))
		if end.StatusCode != http.StatusBadRequest || end.Header.Get("Location") != "" {
			t.Errorf("return address %s: %s %v %s", evil, end.Status, end.Header, body)
		}
	}
}

// Logging in with a key creates a session with a fresh id, and ends the browser's previous session.
func TestLogInWithKey(t *testing.T) {
	p := newPaged(t)
	b := p.browser("")
	post := func(key string, headers ...string) (answered, string) {
		return p.ask(b, "POST", "/v1/session", `{"key":"`+key+`"}`, headers...)
	}
	key := p.key("acme", access.Viewer)
	for name, bad := range map[string]string{"no key": "x", "another secret": key[:len(key)-4] + "aaaa", "a token": "a.b.c"} {
		if answer, body := post(bad); answer.StatusCode != http.StatusUnauthorized || len(answer.cookies) > 0 {
			t.Errorf("%s: %s %s", name, answer.Status, body)
		}
	}
	if answer, body := post(key, "Origin", "https://evil.example"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("another origin logs a user in: %s %s", answer.Status, body)
	}
	planted := strings.Repeat("a", 52)
	answer, body := post(key, "Cookie", sessionCookie+"="+planted)
	if answer.StatusCode != http.StatusCreated || strings.Contains(body, key) {
		t.Fatalf("log in: %s %s", answer.Status, body)
	}
	first := setCookie(t, answer, sessionCookie).Value
	if first == planted || !regexp.MustCompile(`^[a-z2-7]{52}$`).MatchString(first) {
		t.Errorf("the session has the id %q", first)
	}
	as := func(id string) int {
		answer, _ := p.ask(&http.Client{Transport: b.Transport}, "GET", "/v1/whoami", "", "Cookie", sessionCookie+"="+id)
		return answer.StatusCode
	}
	if as(first) != http.StatusOK || as(planted) != http.StatusUnauthorized {
		t.Errorf("the session: %d, the planted one: %d", as(first), as(planted))
	}
	answer, _ = post(key)
	if second := setCookie(t, answer, sessionCookie).Value; second == first || as(first) != http.StatusUnauthorized || as(second) != http.StatusOK {
		t.Errorf("logged in again: the previous session %d, the new one %d", as(first), as(second))
	}
	for _, id := range []string{"", "x", strings.Repeat("A", 52), strings.Repeat("a", 51), strings.Repeat("a", 10_000), "../key/x"} {
		if got := as(id); got != http.StatusUnauthorized {
			t.Errorf("the session %.20q: %d", id, got)
		}
	}
	// A token takes precedence over any cookie, and its sender does not count as a cross-site browser.
	for token, want := range map[string]int{p.key("acme", access.Submitter): http.StatusNotFound, "tp_x": http.StatusUnauthorized} {
		answer, body := p.ask(b, "POST", "/v1/runs", `{"agent":"none","input":"x"}`, "Authorization", "Bearer "+token, "Origin", "https://other.example")
		if answer.StatusCode != want {
			t.Errorf("with the token %.5s: %s %s", token, answer.Status, body)
		}
	}
	if answer, _ := p.ask(b, "POST", "/v1/runs", `{"agent":"a","input":"x"}`); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer submits: %s", answer.Status)
	}
}

// A session ends with its key: within five seconds, requests are refused and streams end. A role that the key
// has lost no longer counts.
func TestSessionOfRevokedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(memstore.Config{}), membus.New()
		keys := access.NewKeys(store)
		g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: keys}, Login: access.NewLogin(store, access.LoginConfig{Keys: keys})})
		if err != nil {
			t.Fatal(err)
		}
		text, key, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Submitter, access.Author}})
		if err != nil {
			t.Fatal(err)
		}
		session := ""
		ask := func(method, path, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.AddCookie(&http.Cookie{Name: sessionCookie, Value: session})
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, r)
			return w
		}
		in := ask("POST", "/v1/session", `{"key":"`+text+`"}`)
		if in.Code != http.StatusCreated {
			t.Fatalf("log in: %s", in.Body)
		}
		session = in.Result().Cookies()[0].Value
		ask("PUT", "/v1/agents/a", talker)
		var run api.Run
		if w := ask("POST", "/v1/runs", `{"agent":"a","input":"x"}`); json.Unmarshal(w.Body.Bytes(), &run) != nil || run.ID == "" {
			t.Fatalf("submit: %s", w.Body)
		}
		ended := make(chan time.Time, 1)
		go func() {
			ask("GET", "/v1/runs/"+run.ID+"/events", "")
			ended <- time.Now()
		}()
		time.Sleep(time.Second) // of simulated time: the stream is open
		revoked := time.Now()
		if _, err := access.NewKeys(store).Revoke(t.Context(), "acme", key.ID); err != nil { // by another gateway
			t.Fatal(err)
		}
		if took := (<-ended).Sub(revoked); took > 5*time.Second {
			t.Errorf("a stream continued for %s after the key of its session was revoked", took)
		}
		if w := ask("GET", "/v1/runs", ""); w.Code != http.StatusUnauthorized {
			t.Errorf("the session of a revoked key: %d %s", w.Code, w.Body)
		}
	})
}

// At its start, a gateway warns that browsers would not keep a session.
func TestPublicURL(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"": true, "https://turnpike.example": true, "https://turnpike.example:8443": true, "http://localhost:7070": true, "http://127.0.0.1:7070": true, "http://[::1]:7070": true, "http://127.9.9.9": true, "http://app.localhost.:80": true, "http://LOCALHOST": true,
		"http://192.0.2.1": false, "http://192.0.2.1:7070": false, "http://[2001:db8::1]:7070": false, "http://notlocalhost": false, "http://localhost.example": false,
		"https://turnpike.example?a=b": false, "https://turnpike.example#a": false, "https://turnpike.example:x": false,
		"http://turnpike.example": false, "turnpike.example": false, "https://turnpike.example/path": false, "https://a@turnpike.example": false, "ftp://localhost": false, "https://": false,
	} {
		if _, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{PublicURL: address}); (err == nil) != good {
			t.Errorf("PublicURL %q: %v", address, err)
		}
	}
}
