//go:build browser

package browser

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// hookSecret is the signing secret of the sender in hooksOnPage.
const hookSecret = "signed by the sender"

// github sends an event as GitHub does, and returns the status and the run.
func github(t *testing.T, address, id, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = mac.Write([]byte(body))
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("X-GitHub-Delivery", id)
	req.Header.Set("X-GitHub-Event", "issues")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out api.HookResult
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil && resp.StatusCode < 300 {
		t.Fatal(err)
	}
	return resp.StatusCode, out.RunID
}

// A hook is stored, refused with the reason, corrected, changed and deleted. A sender uses the address that its
// page shows, and the page then lists the run.
func hooksOnPage(t *testing.T, s *deployment, b *browser, _ *between, _ string) {
	b.goTo("#/agents")
	b.press("main", "Hooks")
	b.text("main", "No hook yet")
	b.press("main", "New hook")
	b.write("dialog [name=name]", "triage")
	b.write("dialog [name=settings]", `{"verify": "github"`)
	b.press("dialog", "Save")
	b.text("dialog [role=alert]", "not JSON")
	b.write("dialog [name=settings]", `{"verify": "github", "secret": "secret://ABSENT", "run": {"agent": "clerk"}}`)
	b.press("dialog", "Save")
	b.text("dialog [role=alert]", "ABSENT")
	b.write("dialog [name=settings]", `{"verify": "github", "secret": "secret://HOOK", "run": {"agent": "clerk"}}`)
	b.press("dialog", "Save")
	b.text("main h1", "triage")
	b.text("main", "No run yet")

	address := eval[string](b, `document.querySelector(".hook-address code").textContent`)
	if want := b.url + "/v1/hooks/triage"; address != want {
		t.Errorf("the page shows the address %s, want %s", address, want)
	}
	const delivery = "<img src=x onerror=alert(1)>"
	status, run := github(t, address, delivery, `{"action": "opened"}`)
	if status != http.StatusAccepted {
		t.Fatalf("a delivery returns %d", status)
	}
	s.reaches(run, "completed")
	b.text(fmt.Sprintf("[data-delivery] a[href='#%s']", run), run[len(run)-10:])
	b.text("[data-delivery]", delivery)
	b.text("[data-delivery]", "completed")
	b.picture("hook")
	s.reaches(s.submit("clerk", "not of the hook"), "completed")
	b.follow("main", "Its runs")
	b.shows("the run of the hook alone", fmt.Sprintf(`document.querySelectorAll(".row").length === 1 && document.querySelector("[data-run=%s]")`, run))

	b.goTo("#/hooks/triage")
	b.shows("the run of the hook alone", `document.querySelectorAll("main tbody tr").length === 1`)
	b.press("main", "Edit")
	b.write("dialog [name=settings]", `{"verify": "github", "secret": ["secret://HOOK"], "filter": "event.action == 'closed'", "run": {"agent": "clerk"}}`)
	b.press("dialog", "Save")
	b.text("main .json", "closed")
	if got, err := s.client.Hook(t.Context(), "triage"); err != nil || got.Filter != "event.action == 'closed'" {
		t.Errorf("after Edit: %+v, %v", got, err)
	}
	if _, err := s.client.PutHook(t.Context(), "chat", api.HookSettings{
		Verify: "slack", Secret: api.SecretReferences{"secret://HOOK"}, Signal: &api.HookSignal{Run: "event.run", Message: "event.text"},
	}); err != nil {
		t.Fatal(err)
	}
	b.goTo("#/hooks")
	b.text("[data-hook=triage]", "GitHub")
	b.text("[data-hook=triage]", "runs of clerk")
	b.text("[data-hook=chat]", "signals to a run")
	b.goTo("#/hooks/chat")
	b.text("main", "Slack")
	b.shows("no list of runs of a hook that starts none", `!document.querySelector("main").innerText.includes("Its runs")`)
	if err := s.client.DeleteHook(t.Context(), "chat"); err != nil {
		t.Fatal(err)
	}
	b.text("main [role=status]", "chat")

	b.goTo("#/hooks/triage")
	b.press("main", "Delete")
	b.press("dialog", "Delete the hook")
	b.text("main", "No hook yet")
	if _, err := s.client.Hook(t.Context(), "triage"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("after Delete: %v", err)
	}
	b.goTo("#/hooks/triage")
	b.text("main [role=alert]", "Not here")
}
