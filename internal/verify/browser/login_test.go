//go:build browser

package browser

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	people "github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// provider is a real OpenID provider. It answers nothing until its client is registered.
type provider struct {
	issuer string
	now    atomic.Pointer[http.Handler]
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := p.now.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	p.issuer = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) // it requires TLS or localhost
	return p
}

// serve registers a callback for users who have logged in.
func (p *provider) serve(callback string) {
	people.RegisterClients(people.WebClient("turnpike", "secret", callback))
	var h http.Handler = exampleop.SetupServer(p.issuer, people.NewStorage(people.NewUserStore(p.issuer)), slog.New(slog.DiscardHandler), false)
	p.now.Store(&h)
}

// atProvider enters a name and the password on the provider's page.
func (b *browser) atProvider(name string) {
	b.t.Helper()
	b.write("input[name=username]", name)
	b.write("input[name=password]", "verysecure")
	b.press("form", "Login")
}

// follow clicks a link once it exists.
func (b *browser) follow(within, text string) {
	b.t.Helper()
	b.shows("the link "+text, `(() => { const e = [...document.querySelectorAll(`+quoted(within+" a")+`)].find(a => a.textContent.trim() === `+quoted(text)+`); e?.click(); return !!e })()`)
}

// another opens a second tab of the same browser.
func (b *browser) another() *browser {
	b.t.Helper()
	tab := &browser{t: b.t, ctx: b.tab(b.ctx, false), url: b.url, profile: b.profile}
	tab.run(network.Enable(), runtime.Enable(), page.Enable())
	return tab
}

// A user logs in at an OpenID provider, chooses a tenant, and sees only its runs. When the session ends, the
// page says what to do.
func TestLogInThroughProvider(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s, address := start(t, "TURNPIKE_AUTH=keys,oidc", "TURNPIKE_OIDC_ISSUER="+p.issuer, "TURNPIKE_OIDC_AUDIENCE=turnpike", "TURNPIKE_OIDC_CLIENT_SECRET=secret",
		`TURNPIKE_OIDC_CLAIMS={"grants": claims.sub == "id2" ? [{"tenant": "acme", "roles": ["submitter"]}, {"tenant": "globex", "roles": ["viewer"]}] : []}`)
	admin := firstKey(t, address)
	const agent = "model: {provider: scripted, responses: [{text: Done.}]}\n"
	for _, tenant := range []string{"acme", "globex"} {
		c := api.New(s.url, api.WithToken(admin), api.WithTenant(tenant))
		if _, err := c.PutAgent(t.Context(), "of-"+tenant, []byte(agent)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "of-" + tenant, Input: []byte(`"x"`)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	b.others = []string{p.issuer}

	// If the provider does not answer, a page says so, with a link back.
	b.goTo("#/runs?status=completed")
	b.follow(".login", "Log in through your organization")
	b.text("main [role=alert]", "the OpenID provider does not answer")
	b.picture("login-failed")
	p.serve(b.url + "/auth/callback")

	// A user without any role gets a page that says so. The gateway does not retry an unresponsive provider for
	// a moment.
	b.shows("the form of the provider", `(() => {
		const e = [...document.querySelectorAll("main a.button")].find(a => ["Back to the page", "Log in through your organization"].includes(a.textContent.trim()));
		e?.click(); return document.querySelector("input[name=username]") })()`)
	b.atProvider("test-user@localhost")
	b.text("main [role=alert]", "grant no tenant and roles")
	b.follow("main", "Back to the page")

	// A user with two tenants chooses one, and continues to the requested page.
	b.text(".login", "API key")
	b.follow(".login", "Log in through your organization")
	b.atProvider("test-user2")
	b.text("main", "Choose a tenant")
	b.picture("choose-tenant")
	b.press("main", "acme")
	b.text(".row", "of-acme")
	b.shows("the address that was asked for", `location.hash === "#/runs?status=completed"`)
	b.shows("the run of this tenant only", `document.querySelectorAll(".row").length === 1`)
	b.shows("nothing of the session in what scripts read", `document.cookie === "" && localStorage.length + sessionStorage.length <= 2 && !JSON.stringify({...localStorage, ...sessionStorage}).includes("eyJ")`)
	b.shows("the other tenant", `(() => { const e = document.querySelector("#who select"); e.value = "globex"; e.dispatchEvent(new Event("change", {bubbles: true})); return true })()`)
	b.text(".row", "of-globex")
	b.shows("the run of this tenant only", `document.querySelectorAll(".row").length === 1`)
	b.goTo("#/new-agent")
	b.text("main", "You may look, not change")

	// After a logout in another tab, this tab says so, and continues in the same place after a login.
	b.goTo("#/runs?agent=of-globex")
	b.text(".row", "of-globex")
	tab := b.another()
	tab.goTo("#/agents")
	tab.text("main", "Choose a tenant")
	tab.press("#who", "Log out")
	tab.text("main h1", "Log in")
	tab.shows("no complaint", `!document.querySelector("[role=alert]")`)
	b.text(".login [role=alert]", "Your session has ended")
	b.picture("session-ended")
	b.follow(".login", "Log in through your organization")
	b.atProvider("test-user2")
	b.text(".row", "of-globex")
	b.shows("where it was", `location.hash === "#/runs?agent=of-globex"`)

	// A browser deletes the cookie of an expired session.
	b.run(chromedp.ActionFunc(func(ctx context.Context) error { return network.ClearBrowserCookies().Do(ctx) }))
	b.follow("nav", "Agents")
	b.text(".login [role=alert]", "Your session has ended")
	b.follow(".login", "Log in through your organization")
	b.atProvider("test-user2")
	b.text("[data-agent]", "of-globex")
	b.press("#who", "Log out")
	b.text("main h1", "Log in")
	b.shows("no complaint", `!document.querySelector("[role=alert]")`)
}

// A session ends with its key while the page is open. A key of one tenant needs no choice, whatever the tab
// showed before.
func TestRevokedKey(t *testing.T) {
	s, address := start(t, "TURNPIKE_AUTH=keys")
	admin := api.New(s.url, api.WithToken(firstKey(t, address)))
	key := func(tenant string) api.NewKey {
		t.Helper()
		made, err := admin.CreateKey(t.Context(), api.KeyRequest{Name: "ann", Tenant: tenant, Roles: []string{"viewer"}})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	first, second := key("acme"), key("globex")
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	b.goTo("#/runs")
	b.write("input[name=key]", first.Key)
	b.press(".login", "Log in with an API key")
	b.text("main", "No runs")
	if err := admin.RevokeKey(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	b.text(".login [role=alert]", "Your session has ended")
	b.write("input[name=key]", first.Key)
	b.press(".login", "Log in with an API key")
	b.text(".login [role=alert]", "was revoked")
	eval[bool](b, `(sessionStorage.setItem("tenant", "acme"), true)`)
	b.goTo("#/runs")
	b.write("input[name=key]", second.Key)
	b.press(".login", "Log in with an API key")
	b.text("main", "No runs")
	b.goTo("#/new-agent")
	b.text("main", "You may look, not change")
}
