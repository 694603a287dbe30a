//go:build browser

package browser

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The page offers each role exactly what the gateway allows it. No role includes another, except viewer.
func TestRoles(t *testing.T) {
	s, address := start(t, "TURNPIKE_AUTH=keys")
	s.client = api.New(s.url, api.WithToken(firstKey(t, address)))
	for _, name := range []string{"asks", "picks", "refunds"} {
		text, err := os.ReadFile("testdata/agents/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.client.PutAgent(t.Context(), name, text); err != nil {
			t.Fatal(err)
		}
	}
	key := func(roles ...string) string {
		t.Helper()
		made, err := s.client.CreateKey(t.Context(), api.KeyRequest{Name: roles[0], Tenant: "default", Roles: roles})
		if err != nil {
			t.Fatal(err)
		}
		return made.Key
	}
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	login := func(key, hash string) {
		t.Helper()
		b.goTo(hash)
		b.write("input[name=key]", key)
		b.press(".login", "Log in with an API key")
		b.text("#who", "key:")
	}
	// lets checks whether a button exists and is enabled.
	lets := func(within, text string, want bool) {
		t.Helper()
		got := eval[bool](b, fmt.Sprintf(`[...document.querySelectorAll(%s + " button")].some(e => e.textContent.trim() === %s && !e.disabled)`, quoted(within), quoted(text)))
		if got != want {
			t.Errorf("%s in %s: %t, want %t", text, within, got, want)
		}
	}
	pays, asks, picks := s.submit("refunds", "Pay it back."), s.submit("asks", "Book a table."), s.submit("picks", "Read it.")
	for _, id := range []string{pays, asks, picks} {
		s.reaches(id, "waiting")
	}

	login(key("admin"), "#"+pays)
	b.text(".needs", "It needs the role approver.")
	b.text(".conversation", "Pay it back.")
	lets(".needs", "Approve", false)
	lets(".run-head", "Cancel", false)
	lets(".run-head", "Message", false)
	b.goTo("#/runs")
	b.shows("the rows", `document.querySelectorAll(".row").length === 3`)
	lets(".row", "Approve", false)
	b.goTo("#/new-agent")
	b.text("main", "You may look, not change")
	b.goTo("#/access")
	b.press("main", "Make a key")
	b.text("dialog", "keys, tenants, the audit")
	b.shows("no word of all", `!document.querySelector("dialog").innerText.includes("all of it")`)
	b.press("dialog", "Cancel")
	b.press("#who", "Log out")

	login(key("approver"), "#"+picks)
	b.text(".needs", "It needs the role submitter.")
	lets(".needs", "Send result", false)
	b.press("#who", "Log out")

	submitter := key("submitter")
	own, err := api.New(s.url, api.WithToken(submitter)).Submit(t.Context(), api.SubmitRequest{Agent: "asks", Input: []byte(`"Another one."`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	login(submitter, "#"+asks)
	b.text(".conversation", "Book a table.")
	lets(".run-head", "Cancel", false)
	b.write(".needs textarea", "for four")
	b.press(".needs", "Answer")
	s.reaches(asks, "completed")
	b.goTo("#" + own.ID)
	b.press(".run-head", "Cancel")
	b.press("dialog", "Cancel the run")
	s.reaches(own.ID, "cancelled")
}
