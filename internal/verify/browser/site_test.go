//go:build browser

package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// inEditor selects in the shadow root of the editor.
const inEditor = `document.querySelector(".editor-host")?.shadowRoot`

// rewrite replaces the text of the editor. The editor notices a selection or a text a moment later, and may
// redraw in between.
func (b *browser) rewrite(text string) {
	b.t.Helper()
	const drawn = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(%s))))`
	want, err := json.Marshal(text)
	if err != nil {
		b.t.Fatal(err)
	}
	b.shows("the editor", inEditor+`?.querySelector(".cm-content")`)
	for range 20 {
		eval[bool](b, `(() => { const e = `+inEditor+`.querySelector(".cm-content"); e.focus(); const r = document.createRange(); r.selectNodeContents(e); const s = getSelection(); s.removeAllRanges(); s.addRange(r); return `+fmt.Sprintf(drawn, "true")+` })()`)
		b.run(input.InsertText(text))
		if eval[bool](b, fmt.Sprintf(drawn, `[...`+inEditor+`.querySelectorAll(".cm-line")].map(l => l.textContent).join("\n") === `+string(want))) {
			return
		}
	}
	b.t.Fatalf("the editor does not accept %q", text)
}

// An author sees the line of an error, corrects it, tries the draft and saves it.
func TestAuthor(t *testing.T) {
	s := deploy(t)
	b := open(t, s.url)
	b.goTo("#/new-agent")
	b.rewrite("{\"name\": \"fresh\",\n\"modell\": {\"provider\": \"scripted\"}}")
	b.press(".bench-left", "Save")
	b.text(".faults", "modell")
	b.text(".faults button", "line 2")
	b.shows("the mistake in the text", inEditor+`.querySelector(".cm-lintRange-error")?.textContent.includes("modell")`)
	b.rewrite("name: fresh\nmodel: {provider: scripted, responses: [}\n")
	b.press(".bench-left", "Save")
	b.text(".faults", "did not find expected node content")
	b.text(".faults button", "line 2")
	b.shows("the mark next to the line", inEditor+`?.querySelector(".cm-lint-marker-error") && getComputedStyle(`+inEditor+`.querySelector(".cm-lint-marker-error"), "::before").content === '"✕"'`)
	b.rewrite("{\"name\": \"fresh\", \"description\": \"<img src=x onerror=alert(1)>\",\n\"model\": {\"provider\": \"scripted\", \"responses\": [{\"text\": \"Out of a draft.\"}]}}")
	b.press(".bench-right", "Run the draft")
	b.text(".draft-run[data-status=completed]", "Out of a draft.")
	b.press(".bench-left", "Save")
	b.text("main h1", "fresh@1")
	b.text(".about-long", "<img src=x")
	if _, err := s.client.PutAgent(t.Context(), "fresh", []byte("model: {provider: scripted, responses: [{text: Another.}]}\n")); err != nil {
		t.Fatal(err)
	}
	b.goTo("#/agents/fresh")
	b.text(".d-new", "Another.")
	b.text(".d-old", "Out of a draft.")
	b.goTo("#/agents/fresh?tab=edit")
	b.rewrite("{\"name\": \"fresh\", \"model\": {\"provider\": \"scripted\"},\n\"tools\": [{\"name\": \"ask\", \"kind\": \"agent\",\n\"agent\": \"nobody\"}]}")
	b.press(".bench-left", "Save as a new version")
	b.text(".faults.warnings", "there is no agent \"nobody\"")
	b.text(".faults button", "line 3")
	b.shows("the warning in the text", inEditor+`.querySelector(".cm-lintRange-warning")?.textContent.includes("agent")`)
	b.goTo("#/agents")
	b.text("[data-agent=fresh]", "fresh@3")

	// Undo restores the last saved version, and unsaved text survives a reload.
	b.goTo("#/agents/fresh?tab=edit")
	first, second := `{"name": "fresh", "model": {"provider": "scripted", "responses": [{"text": "One."}]}}`, `{"name": "fresh", "model": {"provider": "scripted", "responses": [{"text": "Two."}]}}`
	b.rewrite(first)
	b.press(".bench-left", "Save as a new version")
	b.text("main h1", "fresh@4")
	b.shows("nothing to save", `!document.querySelector(".bench-acts").innerText.includes("not saved")`)
	b.rewrite(second)
	b.text(".bench-acts", "changed, not saved")
	b.press(".bench-left", "Undo all")
	b.shows("what was saved", inEditor+`.querySelector(".cm-content").textContent.includes("One.") && !document.querySelector(".bench-acts").innerText.includes("not saved")`)
	b.rewrite(second)
	b.text(".bench-acts", "changed, not saved")
	b.goTo("#/agents/fresh?tab=edit")
	b.text(".bench-acts", "changed, not saved")
	b.shows("what was not saved", inEditor+`?.querySelector(".cm-content")?.textContent.includes("Two.")`)
}

// A refused submission can be replayed once its agent exists.
func TestReplay(t *testing.T) {
	s, address := start(t)
	nc, err := nats.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request("turnpike.submit.later", []byte(`{"agent": "later", "input": "<script>alert(1)</script>"}`), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.url)
	b.goTo("#/dead")
	b.text(".letter[data-status=open]", "agent_not_found")
	b.text(".letter .advice", "What to do")
	if _, err := s.client.PutAgent(t.Context(), "later", []byte("model: {provider: scripted, responses: [{text: At last.}]}\n")); err != nil {
		t.Fatal(err)
	}
	b.press(".letter", "Replay")
	b.text(".letter[data-status=replayed]", "See what came of it")
	eval[bool](b, `(() => { [...document.querySelectorAll(".letter a")].find(a => a.textContent.startsWith("See")).click(); return true })()`)
	b.text(".outcome", "At last.")

	// The page of a run that a replay continues has the button.
	if _, err := s.client.PutAgent(t.Context(), "judged", []byte("model: {provider: scripted, responses: [{text: Well judged.}]}\nhooks: {stop: [{kind: nats, subject: policy.answers, on_error: deny}]}\n")); err != nil {
		t.Fatal(err)
	}
	id := s.submit("judged", "Hi")
	s.reaches(id, "failed")
	if _, err := nc.Subscribe("policy.answers", func(m *nats.Msg) { _ = m.Respond([]byte("{}")) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	b.goTo("#" + id)
	b.text(".outcome.bad", "Repair the hook, then replay it")
	b.press(".outcome", "Replay")
	s.reaches(id, "completed")
	b.text(".outcome", "Well judged.")
}

// Pending events appear above the dead letters, with the error of the latest attempt.
func TestPendingEvents(t *testing.T) {
	t.Parallel()
	s, _ := start(t, "TURNPIKE_SECRET_EVENTS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if _, err := s.client.PutAgent(t.Context(), "brief", []byte("model: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.url)
	b.goTo("#/dead")
	b.text("#main", "There are no dead letters")
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "brief", Input: json.RawMessage(`"go"`), Webhook: &state.Webhook{
		URL: "https://127.0.0.1:1/events", Events: []state.EntryType{state.EntryFinished}, Secret: state.SecretReferences{"secret://EVENTS"},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	b.text("#main", "1 event waits for its receiver")
	eval[bool](b, `(() => { document.querySelector("#main details summary").click(); return true })()`)
	row := `[data-event^="evt_` + strings.TrimPrefix(run.ID, state.RunPrefix) + `"]`
	b.text(row, "127.0.0.1:1")
	b.text(row, "The latest attempt failed.")
}

// All dead letters are read: the newest are the last, and may be the only open ones.
func TestManyDeadLetters(t *testing.T) {
	s, address := start(t)
	nc, err := nats.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for range 205 {
		if err := nc.Publish("turnpike.submit.later", []byte(`{"agent": "later", "input": "x"}`)); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, s.url)
	b.goTo("#/dead")
	b.text(".view-head", "205 are open")
}

// The page tells users which role they lack, and shows them nothing that requires it.
func TestForbidden(t *testing.T) {
	s, address := start(t, "TURNPIKE_AUTH=keys")
	admin := api.New(s.url, api.WithToken(firstKey(t, address)))
	made, err := admin.CreateKey(t.Context(), api.KeyRequest{Name: "<img src=x onerror=alert(1)>", Tenant: "default", Roles: []string{"viewer"}})
	if err != nil {
		t.Fatal(err)
	}
	key := made.Key
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	b.goTo("#/workers")
	b.write("input[name=key]", key)
	b.press(".login", "Log in with an API key")
	for _, hash := range []string{"#/workers", "#/access", "#/access?tab=tenants", "#/access?tab=audit"} {
		b.goTo(hash)
		b.text("main [role=alert]", "Not allowed")
	}
	b.goTo("#/new-agent")
	b.text("main", "You may look, not change")
	b.goTo("#/agents")
	b.text("main", "No agents yet")
	b.goTo("#/memory")
	b.text("main", "No memory yet")
	for hash, empty := range map[string]string{"#/triggers": "No trigger yet", "#/hooks": "No hook yet"} {
		b.goTo(hash)
		b.text("main", empty)
		if eval[bool](b, `!!document.querySelector("main .view-head button")`) {
			t.Errorf("the page offers a viewer to write in %s", hash)
		}
	}
	b.goTo("#/figures")
	b.text("main", "No run has ended")
	if text := eval[string](b, `document.querySelector("main").innerText`); strings.Contains(text, "Tenants") {
		t.Error("the page offers a viewer of one tenant those of others")
	}
}
