//go:build browser

package browser

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A fork changes one of four things. The page shows the difference before it is sent, and opens the fork next
// to its original.
func TestForks(t *testing.T) {
	s := deploy(t)
	b := open(t, s.url)
	id := s.submit("counts", "How far is it?")
	s.reaches(id, "completed")
	text, err := os.ReadFile("testdata/agents/counts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.PutAgent(t.Context(), "counts", []byte(strings.Replace(string(text), "kilometres", "miles", 1))); err != nil {
		t.Fatal(err)
	}
	// forked sends the content of the editor, and returns the run shown next to the original.
	forked := func(changed string) api.Run {
		t.Helper()
		b.press(".side", "Fork")
		b.shows("both", `document.querySelectorAll(".beside article").length === 2`)
		b.text(".aligned .fork-changed", changed)
		b.text(".aligned h3", "shared up to here")
		run := s.reaches(eval[string](b, `new URLSearchParams(location.hash.split("?")[1]).get("beside")`), "completed")
		b.shows("the end of both", `[...document.querySelectorAll(".aligned-row")].at(-1).innerText.includes("It is converted.")`)
		if want := fmt.Sprintf("%s turn %d, changed: %s", id, run.Transition.Turn, changed); run.ID == id {
			t.Errorf("the fork is the original: %s", want)
		}
		return run
	}
	// said returns what the model of a run read, joined.
	said := func(run api.Run) string {
		t.Helper()
		messages, err := s.client.Messages(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range messages {
			for _, p := range m.Parts {
				all = append(all, p.Text+p.Content)
			}
		}
		return strings.Join(all, "|")
	}
	t.Run("another version", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("#" + id + "?fork=1")
		b.text(".fork-changes", "Nothing: the model is asked again")
		b.shows("the versions", `(e => { if (!e) return false; e.value = "2"; e.dispatchEvent(new Event("change", {bubbles: true})); return true })(document.querySelector(".side [name=version]"))`)
		b.text(".fork-changes .d-new", "miles")
		b.text(".fork-changes .d-old", "kilometres")
		if run := forked("version 2 in place of 1"); run.AgentVersion != 2 || !strings.HasPrefix(said(run), "Count in miles.|") {
			t.Errorf("version %d: %s", run.AgentVersion, said(run))
		}
	})
	t.Run("other instructions", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("#" + id + "?fork=1")
		b.write(".side [name=instructions]", "Count in steps.")
		b.text(".fork-changes .d-old", "kilometres")
		b.text(".fork-changes .d-new", "steps")
		b.picture("fork-instructions")
		if run := forked("the instructions"); !strings.HasPrefix(said(run), "Count in steps.|How far is it?|") || run.Metadata["draft"] != "counts" {
			t.Errorf("%v: %s", run.Metadata, said(run))
		}
	})
	t.Run("another message", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("#" + id + "?fork=0")
		b.write(".side [name=message]", "How long is it?")
		b.text(".fork-changes .d-old", "How far is it?")
		b.text(".fork-changes .d-new", "How long is it?")
		if run := forked("message msg_1_1"); !strings.HasPrefix(said(run), "Count in kilometres.|How long is it?|") || strings.Contains(said(run), "How far") {
			t.Errorf("%s", said(run))
		}
	})
	t.Run("another result of a tool", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("#" + id + "?fork=1")
		b.text(".fork-changes", "Nothing")
		b.write(".side [name=result-c1]", `{"metres": 7}`)
		b.text(".fork-changes .d-old", "3000")
		b.text(".fork-changes", "it counts as your words")
		run := forked("the result of c1 in turn 1")
		if got := said(run); !strings.Contains(got, `|{"metres": 7}|`) {
			t.Errorf("%s", got)
		}
		b.text(".aligned", "given by a person")
	})
	t.Run("a message where the fork needs one", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("#" + id + "?fork=2")
		b.text(".side", "ends with an answer of the model, so the fork needs a message")
		b.shows("no way to fork yet", `[...document.querySelectorAll(".side button")].find(e => e.textContent === "Fork")?.disabled`)
		b.write(".side [name=message]", "And in steps?")
		b.press(".side", "Fork")
		b.shows("both", `document.querySelectorAll(".beside article").length === 2`)
	})
	t.Run("what is wrong is said", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("#" + id + "?fork=9")
		b.press(".side", "Fork")
		b.text(".side [role=alert]", "name a turn from 0 to 2")
	})
}
