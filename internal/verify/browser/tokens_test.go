//go:build browser

package browser

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A key with the role issuer issues tokens on the page, which shows each token once, or the reason of a
// refusal. Other callers see the role that they lack. An admin rotates the signing key.
func TestTokens(t *testing.T) {
	s, address := start(t, "TURNPIKE_AUTH=keys")
	s.client = api.New(s.url, api.WithToken(firstKey(t, address)))
	for _, name := range []string{"clerk", "guide"} {
		if _, err := s.client.PutAgent(t.Context(), name, []byte("model: {provider: scripted, responses: [{text: Done.}]}\n")); err != nil {
			t.Fatal(err)
		}
	}
	own, other := s.submit("clerk", "Mine.", "user", "ann"), s.submit("guide", "Not mine.", "user", "bob")
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	login := func(hash string, roles ...string) {
		t.Helper()
		made, err := s.client.CreateKey(t.Context(), api.KeyRequest{Name: roles[0], Tenant: "default", Roles: roles})
		if err != nil {
			t.Fatal(err)
		}
		b.goTo(hash)
		b.write("input[name=key]", made.Key)
		b.press(".login", "Log in with an API key")
		b.text("#who", "key:")
	}
	buttons := func(want ...string) {
		t.Helper()
		got := eval[[]string](b, `[...document.querySelectorAll(".tokens button")].map(b => b.textContent.trim())`)
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("the page offers %q, want %q", got, want)
		}
	}
	set := func(selector, value string) {
		t.Helper()
		b.shows(selector, `(() => { const e = document.querySelector(`+quoted(selector)+`); if (!e) return false; e.value = `+quoted(value)+`; e.dispatchEvent(new Event("change", {bubbles: true})); return true })()`)
	}
	// issued returns the token that the page shows, and closes the dialog.
	issued := func() string {
		t.Helper()
		b.text("dialog .secret code", "tpt_")
		token := eval[string](b, `document.querySelector("dialog .secret code").textContent`)
		eval[bool](b, `(Object.defineProperty(navigator, "clipboard", {configurable: true, value: {writeText: async t => { window.copied = t }}}), document.querySelector("dialog [aria-label='Copy the token']").click(), true)`)
		b.shows("the copy", "window.copied === "+quoted(token))
		b.press("dialog", "I have it")
		b.shows("no token any more", `!document.querySelector("dialog") && !document.body.innerText.includes("tpt_")`)
		return token
	}

	// The key of a backend opens the view where it can do something.
	login("#/access", "issuer")
	b.text(".tokens", "Issue a token")
	buttons("Issue a token")
	b.press(".tokens", "Issue a token")
	b.write("dialog [name=user]", "ann smith")
	b.press("dialog", "Issue it")
	b.text("dialog [role=alert]", "spaces")
	b.write("dialog [name=user]", "ann")
	set("dialog [name=reach]", "agents")
	b.write("dialog [name=agents]", "clerk, guide")
	set("dialog [name=expires]", "1h")
	b.press("dialog", "Issue it")
	b.text("dialog", "runs of ann with clerk, guide")
	b.picture("token")
	token := issued()
	var claims struct {
		Issued  int64    `json:"iat"`
		Expires int64    `json:"exp"`
		Roles   []string `json:"roles"`
		Agents  []string `json:"agents"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Expires-claims.Issued != 3600 || strings.Join(claims.Roles, " ") != "viewer submitter" || strings.Join(claims.Agents, " ") != "clerk guide" {
		t.Errorf("the token has %+v", claims)
	}
	ann := api.New(s.url, api.WithToken(token))
	if _, err := ann.Get(t.Context(), own); err != nil {
		t.Errorf("a run of the user: %v", err)
	}
	if _, err := ann.Get(t.Context(), other); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a run of another user: %v", err)
	}

	// A token for one run reaches that run, whoever started it. An issuer cannot request one for a missing run.
	b.press(".tokens", "Issue a token")
	b.write("dialog [name=user]", "boss")
	set("dialog [name=reach]", "run")
	b.write("dialog [name=run]", "run_00000000000000000000000000")
	b.press("dialog", "Issue it")
	b.text("dialog [role=alert]", "run_00000000000000000000000000")
	b.write("dialog [name=run]", other)
	b.press("dialog", "Issue it")
	boss := api.New(s.url, api.WithToken(issued()))
	if _, err := boss.Get(t.Context(), other); err != nil {
		t.Errorf("the run of a token for it: %v", err)
	}
	if _, err := boss.Get(t.Context(), own); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("another run than that of the token: %v", err)
	}
	b.press("#who", "Log out")

	login("#/access?tab=tokens", "viewer")
	b.text(".tokens", "role issuer")
	buttons()
	b.press("#who", "Log out")

	login("#/access?tab=tokens", "admin")
	b.text(".tokens", "role issuer")
	buttons("Rotate the signing key")
	for range 2 {
		b.press(".tokens", "Rotate the signing key")
		b.press("dialog", "Rotate it")
		b.shows("both signing keys", `document.querySelectorAll("dialog [data-signing-key]").length === 2`)
		b.press("dialog", "Close")
	}
	eventually(t, "the token ends", func() error {
		if _, err := ann.Get(t.Context(), own); !errors.Is(err, api.ErrUnauthenticated) {
			return errors.New("it is still valid")
		}
		return nil
	})
	b.follow(".tokens", "audit")
	b.text("[aria-label=Audit]", "user:ann")
}
