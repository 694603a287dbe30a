//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// One person saves a draft, and another who has seen exactly that draft publishes it.
func TestReview(t *testing.T) {
	s, address := start(t, "TURNPIKE_AUTH=keys")
	admin := api.New(s.url, api.WithToken(firstKey(t, address)))
	if _, err := admin.PutTenant(t.Context(), "default", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	key := func(name string, roles ...string) string {
		t.Helper()
		made, err := admin.CreateKey(t.Context(), api.KeyRequest{Name: name, Tenant: "default", Roles: roles})
		if err != nil {
			t.Fatal(err)
		}
		return made.Key
	}
	ann := key("ann", "author", "submitter")
	writes := func(answer string) {
		t.Helper()
		text := fmt.Sprintf("model: {provider: scripted, responses: [{text: %s}]}\n", answer)
		if _, err := api.New(s.url, api.WithToken(ann)).PutAgent(t.Context(), "a", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	login := func(key, hash string) {
		t.Helper()
		b.goTo(hash)
		b.write("input[name=key]", key)
		b.press(".login", "Log in with an API key")
		b.text("#who", "key:")
	}
	// The author sees that another person must publish it.
	login(ann, "#/new-agent")
	b.rewrite(`{"name": "a", "model": {"provider": "scripted", "responses": [{"text": "One."}]}}`)
	b.press(".bench-left", "Save")
	b.text("main h1", "a")
	b.text(".review", "written by key:")
	b.text(".review", "You wrote it: another author must publish it.")
	b.text(".review .d-new", "One.")
	b.shows("no button to publish", `[...document.querySelectorAll(".review button")].some(e => e.textContent === "Publish" && e.disabled)`)
	b.press("#who", "Log out")

	// The page tells a viewer which role may publish.
	login(key("eve", "viewer"), "#/agents/a")
	b.text(".review", "Publishing it needs the role author or admin.")
	b.press("#who", "Log out")

	// Another author publishes what they see, and nothing else.
	login(key("bob", "author"), "#/agents")
	b.text("[data-draft=a]", "written by key:")
	b.goTo("#/agents/a")
	b.text(".review .d-new", "One.")
	b.picture("review")
	writes("Two.")
	b.press(".review", "Publish")
	b.text(".review [role=alert]", "has changed since you read it")
	b.press(".review", "Show what it says now")
	b.text(".review .d-new", "Two.")
	b.press(".review", "Publish")
	b.text("main h1", "a@1")
	b.shows("no draft", `!document.querySelector(".review")`)
	writes("Three.")
	b.goTo("#/agents/a")
	b.text(".review .d-old", "Two.")
	b.text(".review .d-new", "Three.")
	b.press(".review", "Discard")
	b.shows("no draft", `!document.querySelector(".review")`)
	if a, err := admin.Agent(t.Context(), "a"); err != nil || a.Version != 1 || !strings.Contains(string(a.Definition), "Two.") {
		t.Errorf("published %d %s, %v", a.Version, a.Definition, err)
	}
}
