//go:build browser

package browser

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Users can perform every action on runs, from the list and from a run.
func TestActions(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	b := open(t, s.url)

	t.Run("the list shows a run as it happens, and approves with the keyboard", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("")
		b.text("main", "turnpike init hello")
		id := s.submit("refunds", "Pay it back.", "ticket", "T-1")
		b.text(".row", "refund(")
		b.text(".row-id", "T-1")
		b.text(".row-id", id[len(id)-10:])
		b.shows("what the name is", `document.querySelector(".row-id").title === "ticket of `+id+`: T-1"`)
		b.key("j")
		b.shows("the row that is chosen", `document.querySelector(".row.here")`)
		b.key("a")
		b.text("dialog", "A-17")
		b.press("dialog", "Approve")
		s.reaches(id, "completed")
		b.text(".row.s-completed .row-gist", "It is done.")
		b.key("\r")
		b.shows("the run", fmt.Sprintf(`location.hash === "#%s" && document.querySelector("[data-run='%s']")`, id, id))
	})
	t.Run("a run that is deleted leaves the list", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("")
		id := s.submit("refunds", "Pay it back.", "ticket", "T-2")
		b.text(".row-id", "T-2")
		if _, err := s.client.Cancel(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		s.reaches(id, "cancelled")
		b.shows("the row of what has ended", fmt.Sprintf(`document.querySelector(".row.s-cancelled[data-run='%s']")`, id))
		if err := s.client.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		b.shows("the other row, and none of it", fmt.Sprintf(`document.querySelectorAll(".row").length === 1 && !document.querySelector("[data-run='%s']")`, id))
	})
	t.Run("arguments are edited, checked and shown as a difference", func(t *testing.T) {
		b.t, s.t = t, t
		id := s.submit("refunds", "Pay it back.")
		s.reaches(id, "waiting")
		b.goTo("#" + id)
		b.text(".needs .risk", "pays money")
		b.press(".needs", "Edit arguments")
		b.write(".needs textarea", `{"order": "A-17", "amount": 900}`)
		b.text(".needs [role=alert]", "amount must be at most 500")
		b.write(".needs textarea", `{"order": "A-17", "amount": 100}`)
		b.text(".needs .diff", "100")
		b.write(".needs-acts input", "not all of it")
		b.press(".needs", "Approve with changes")
		s.reaches(id, "completed")
		b.text(".outcome", "It is done.")
		b.text(".conversation .note", "not all of it")
		b.shows("bars with lengths", `!/ -\d/.test(document.querySelector(".timeline").textContent)`)
		if paid := s.paid(); paid[len(paid)-1].Amount != 100 {
			t.Errorf("paid: %v", paid)
		}
	})
	t.Run("an edit that the approval rule matches asks again and says why", func(t *testing.T) {
		b.t, s.t = t, t
		id := s.submit("refunds", "Pay it back.")
		s.reaches(id, "waiting")
		b.goTo("#" + id)
		b.press(".needs", "Edit arguments")
		b.write(".needs textarea", `{"order": "A-17", "amount": 200}`)
		b.press(".needs", "Approve with changes")
		b.text(".needs .asks-again", "The approval rule of the tool matches the new arguments")
		b.text(".needs .asks-again .diff", "240")
		b.text(".toast", "approved with changes, which are checked before it runs")
		b.text(".conversation .call summary", "amount 200")
		run := s.reaches(id, "waiting")
		if again := run.Waiting.Calls[0].Again; again == nil || again.Reason != state.AgainRule {
			t.Errorf("the API gives the reasons of the repeated approval as %+v", again)
		}
		b.press(".needs", "Approve")
		s.reaches(id, "completed")
		if paid := s.paid(); paid[len(paid)-1].Amount != 200 {
			t.Errorf("paid: %v", paid)
		}
	})
	t.Run("who decides is told that an argument came from outside", func(t *testing.T) {
		b.t, s.t = t, t
		id := s.submit("passes", "Pay it back.")
		s.reaches(id, "waiting")
		b.goTo("#" + id)
		b.text(".needs .provenance", "amount also occurs in the result of convert in turn 1")
		b.text(".needs .provenance", "A stranger may have written it.")
		if text := eval[string](b, `document.querySelector(".needs .provenance").innerText`); strings.Contains(text, "order") {
			t.Errorf("the order is not the model's: %s", text)
		}
		b.press(".needs", "Approve")
		s.reaches(id, "completed")
	})
	t.Run("a denial has its reason", func(t *testing.T) {
		b.t, s.t = t, t
		before := len(s.paid())
		id := s.submit("refunds", "Pay it back.")
		b.goTo("#" + id)
		b.write(".needs-acts input", "too much")
		b.press(".needs", "Deny")
		s.reaches(id, "completed")
		b.text(".conversation", "too much")
		if now := len(s.paid()); now != before {
			t.Errorf("%d refunds were paid", now-before)
		}
	})
	t.Run("a question is answered", func(t *testing.T) {
		b.t, s.t = t, t
		id := s.submit("asks", "Book a table.")
		b.goTo("#" + id)
		b.text(".needs", "For how many?")
		b.write(".needs textarea", "for four")
		b.press(".needs", "Answer")
		s.reaches(id, "completed")
		b.text(".outcome", "A table for four is booked.")
	})
	t.Run("a client's result is given, and the run goes on with a message", func(t *testing.T) {
		b.t, s.t = t, t
		id := s.submit("picks", "Read it.")
		b.goTo("#" + id)
		b.write(".needs textarea", "notes.txt")
		b.press(".needs", "Send result")
		s.reaches(id, "completed")
		b.text(".outcome", "You chose notes.txt.")
		b.press(".run-head", "Continue")
		b.write("dialog textarea", "And now?")
		b.press("dialog", "Send")
		b.text(".conversation", "And now?")
		b.text(".outcome", "And on it goes.")
	})
	t.Run("a message to a busy run is refused for what has started, and interrupts it then", func(t *testing.T) {
		b.t, s.t = t, t
		id := s.submit("picks", "Read it.")
		s.reaches(id, "waiting")
		b.goTo("#" + id)
		b.text(".needs", "pick_file")
		b.press(".run-head", "Message")
		b.write("dialog textarea", "Never mind the file.")
		mode := func(name string) {
			t.Helper()
			b.shows("the mode "+name, fmt.Sprintf(`document.querySelector("dialog [value=%[1]s]")?.click() ?? document.querySelector("dialog [value=%[1]s]")?.checked`, name))
		}
		mode("rollback")
		b.press("dialog", "Send")
		b.text("dialog [role=alert]", "cannot be withdrawn")
		b.press("dialog [role=alert]", "Interrupt")
		b.text(".conversation", "Never mind the file.")
		s.reaches(id, "completed")

		id = s.submit("steps", "Convert.")
		b.goTo("#" + id)
		b.text(".conversation", "Step 1.")
		b.press(".run-head", "Message")
		b.write("dialog textarea", "Stop there.")
		mode("reject")
		b.press("dialog", "Send")
		b.text("dialog [role=alert]", "The run is busy")
		b.press("dialog [role=alert]", "Enqueue")
		b.text(".toasts", "Sent.")
		b.text(".conversation", "Stop there.")
		if _, err := s.client.Cancel(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		s.reaches(id, "cancelled")
	})
	t.Run("a run is cancelled with a reason, forked and shown beside its fork", func(t *testing.T) {
		b.t, s.t = t, t
		id := s.submit("steps", "Convert.")
		b.goTo("#" + id)
		b.text(".conversation", "Step 2.")
		b.press(".run-head", "Cancel")
		b.write("dialog textarea", "enough of it")
		b.press("dialog", "Cancel the run")
		s.reaches(id, "cancelled")
		b.text(".outcome", "enough of it")
		b.shows("where to fork", `[...document.querySelectorAll(".bubble")].find(e => e.innerText.includes("Step 1."))?.querySelector(".fork-here")?.click() ?? location.hash.includes("fork=1")`)
		b.write(".side [name=message]", "Go another way.")
		b.press(".side", "Fork")
		b.shows("both", `document.querySelectorAll(".beside article").length === 2`)
		b.text(".aligned", "Go another way.")
		b.text(".aligned h3", "shared up to here")
	})
	t.Run("runs that failed are tried again, and many are cancelled at once", func(t *testing.T) {
		b.t, s.t = t, t
		failed := s.submit("fails", "Do it.")
		s.reaches(failed, "failed")
		b.goTo("#" + failed)
		b.text(".outcome.bad", "scripted")
		b.press(".run-head", "Run again")
		b.shows("the new run", fmt.Sprintf(`location.hash.startsWith("#run_") && location.hash !== "#%s"`, failed))
		ids := []string{s.submit("asks", "1"), s.submit("asks", "2"), s.submit("asks", "3")}
		b.goTo("#/runs?agent=asks&status=waiting")
		b.shows("three rows", `document.querySelectorAll(".row").length === 3`)
		b.press(".bulk", "Cancel all that match the filter…")
		b.press("dialog", "Count them")
		b.text("dialog", "3 match now")
		b.press("dialog", "Cancel 3 runs")
		for _, id := range ids {
			s.reaches(id, "cancelled")
		}
	})
	t.Run("the palette finds a run by its metadata", func(t *testing.T) {
		b.t, s.t = t, t
		b.goTo("#/runs")
		b.text(".row", "refunds")
		b.key("/")
		b.write(".palette-input", "ticket=T-1")
		b.key("\r")
		b.shows("one row", `location.hash.includes("metadata.ticket=T-1") && document.querySelectorAll(".row").length === 1`)
	})
}

// A user logs in with a key, arrives at the requested page, and logs out.
func TestLogin(t *testing.T) {
	s, nats := start(t, "TURNPIKE_AUTH=keys")
	key := firstKey(t, nats)
	// Without TLS, browsers keep the session cookie on localhost only.
	b := open(t, strings.Replace(s.url, "127.0.0.1", "localhost", 1))
	b.goTo("#/runs?agent=mine")
	b.write("input[name=key]", "tp_wrong")
	b.press(".login", "Log in with an API key")
	b.text(".login [role=alert]", "does not have the form")
	b.write("input[name=key]", key)
	b.press(".login", "Log in with an API key")
	b.text("#who", "key:")
	b.text("main", "No run matches")
	if hash := eval[string](b, "location.hash"); hash != "#/runs?agent=mine" {
		t.Errorf("the page is at %s", hash)
	}
	b.press("#who", "Log out")
	b.shows("the form", `document.querySelector("input[name=key]")`)
}

// A single_call run has no history to fork: the page offers to submit it again.
func TestSingleCallAgain(t *testing.T) {
	s := deploy(t)
	b := open(t, s.url)
	const text = "instructions: Sort it.\nloop: {type: single_call}\nmodel: {provider: scripted, responses: [{text: complaint}]}\n"
	if _, err := s.client.PutAgent(t.Context(), "sorts", []byte(text)); err != nil {
		t.Fatal(err)
	}
	id := s.submit("sorts", "The cup was broken.", "source", "mail")
	s.reaches(id, "completed")
	b.goTo("#" + id)
	b.press(".run-head", "Run again")
	b.shows("the new run", fmt.Sprintf(`location.hash.startsWith("#run_") && location.hash !== "#%s"`, id))
	b.text(".outcome", "complaint")
	again := s.reaches(eval[string](b, "location.hash.slice(1)"), "completed")
	messages, err := s.client.Messages(t.Context(), again.ID)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range messages {
		said = append(said, string(m.Role)+": "+m.Text())
	}
	if got := strings.Join(said, "; "); got != "system: Sort it.; user: The cup was broken.; assistant: complaint" || again.Metadata["source"] != "mail" {
		t.Errorf("%v: %s", again.Metadata, got)
	}
}

// The gateway searches the inputs and outputs of runs. The search is in the address, so Back and a shared link
// show the same.
func TestSearch(t *testing.T) {
	s := deploy(t)
	blue := s.submit("hello", "The blue cup.")
	s.reaches(s.submit("hello", "The red cup."), "completed")
	s.reaches(blue, "completed")
	b := open(t, s.url)
	b.goTo("#/runs")
	look := func(text string) {
		t.Helper()
		b.write(".find input", text)
		b.key("\r")
	}
	rows := func(n int) {
		t.Helper()
		b.shows(fmt.Sprintf("%d rows", n), fmt.Sprintf(`document.querySelectorAll(".row").length === %d`, n))
	}
	rows(2)
	look("BLUE cup")
	rows(1)
	b.shows("the run with the text", fmt.Sprintf(`document.querySelector('.row [href="#%s"]')`, blue))
	s.reaches(s.submit("hello", "Another blue cup."), "completed")
	b.press(".runs", "Search again")
	rows(2)
	look("green")
	rows(0)
	b.text("main", "No run matches")
	b.run(chromedp.NavigateBack())
	rows(2)
}

// Opening a run in flight takes six requests, however long it has run and however many events arrive.
func TestSixRequests(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	b := open(t, s.url)
	id := s.submit("steps", "Convert.")
	b.goTo("#" + id)
	b.text(".outcome", "All is converted.")
	got := b.apiRequests()
	if len(got) > 6 || len(got) < 3 {
		t.Errorf("%d requests: %s", len(got), strings.Join(got, "\n"))
	}
}

// Hostile texts are shown as text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	b := open(t, s.url)
	evil := `<img src=x onerror="window.hit=100"><script>window.hit=101</script>`
	hidden := "\u202egnimocni\u200b"
	links := "[x](javascript:window.hit=102) [https://trusted.example/evil.example](https://evil.example/a) [\u202ex](https://moc.evil.example/b) &#x202e;"
	id := s.submit("hostile", evil+links, "title", evil+hidden, `"><script>window.hit=103</script>`, evil+hidden)
	s.reaches(id, "waiting")
	clean := func(where string) {
		t.Helper()
		if hit := eval[bool](b, `"hit" in window`); hit {
			t.Errorf("%s: a script ran: %s", where, eval[string](b, "String(window.hit)"))
		}
		bad := eval[[]string](b, `[...document.querySelectorAll("#app *")].flatMap(e => [
			...(["SCRIPT", "IFRAME", "IMG", "OBJECT", "EMBED", "STYLE", "LINK", "MATH", "BASE"].includes(e.tagName.toUpperCase()) ? [e.tagName] : []),
			...(e.tagName === "FORM" && e.getAttribute("action") ? ["form action"] : []),
			...[...e.attributes].filter(a => /^on/i.test(a.name) || /^\s*(javascript|vbscript|data):/i.test(a.value)).map(a => e.tagName + " " + a.name + "=" + a.value)])`)
		if len(bad) > 0 {
			t.Errorf("%s: the page has %v", where, bad)
		}
		unseen := eval[[]string](b, `[document.querySelector("#app").textContent, ...[...document.querySelectorAll("#app [title], #app [aria-label]")].flatMap(e => [e.title, e.ariaLabel ?? ""])]
			.filter(s => /[\u200b\u202a-\u202e]/.test(s)).map(s => s.slice(Math.max(0, s.search(/[\u200b\u202a-\u202e]/) - 40)).slice(0, 80))`)
		if len(unseen) > 0 {
			t.Errorf("%s: characters that hide or reorder text stand in %q", where, unseen)
		}
	}
	b.goTo("")
	b.text(".row", "pick_file")
	clean("the list")
	b.goTo("#" + id)
	b.text(".conversation", "onerror")
	b.unfold()
	clean("the run")
	b.text(".conversation", "(evil.example)")
	b.text(".conversation", "⟦U+202E⟧x (moc.evil.example)")
	b.write(".needs textarea", evil)
	b.press(".needs", "Send result")
	b.text(".outcome", "onerror")
	b.unfold()
	clean("its end")
	for _, view := range []string{"?view=log", "?view=json", "?at=2", "?at=" + `%3Cimg%20src%3Dx%20onerror%3D%22window.hit%3D104%22%3E`} {
		b.goTo("#" + id + view)
		b.text("main", "hostile")
		clean(view)
	}
	for _, hash := range []string{"#/runs?q=" + "%3Cscript%3Ewindow.hit%3D105%3C%2Fscript%3E", "#/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "#run_%3Cscript%3E", "#/runs?agent=%3Cb%3E"} {
		b.goTo(hash)
		b.shows("something", `document.querySelector("main").innerText.length > 5`)
		clean(hash)
	}
	if links := eval[[]string](b, `[...document.querySelectorAll(".md a")].map(a => a.href)`); slices.ContainsFunc(links, func(l string) bool { return !strings.HasPrefix(l, "http") }) {
		t.Errorf("links: %v", links)
	}
}

// checker returns a function that fails the test if axe finds an issue in a tab. In the dark theme it checks
// the contrast only, as only the colors differ from the light theme.
func checker(t *testing.T) func(b *browser, screen, theme string) {
	t.Helper()
	axe, err := os.ReadFile("../../../.bin/axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: hack/ensure-chromium.sh installs it", err)
	}
	return func(b *browser, screen, theme string) {
		t.Helper()
		options := `{resultTypes: ["violations"]}`
		if theme == "dark" {
			options = `{resultTypes: ["violations"], runOnly: {type: "rule", values: ["color-contrast"]}}`
		}
		eval[bool](b, string(axe)+"; true")
		for _, v := range eval[[]string](b, `axe.run(document, `+options+`).then(r => r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary).join(" | ")))`) {
			t.Errorf("%s, %s: %s", screen, theme, v)
		}
	}
}

// axe finds no issue in any view, in either theme.
func TestAccessible(t *testing.T) {
	t.Parallel()
	look := checker(t)
	s := deploy(t)
	b := open(t, s.url)
	done, waiting, asks, failed, parent := s.submit("hello", "Hi"), s.submit("refunds", "Pay"), s.submit("asks", "Book"), s.submit("fails", "x"), s.submit("parent", "x")
	s.reaches(done, "completed")
	s.reaches(waiting, "waiting")
	s.reaches(asks, "waiting")
	s.reaches(failed, "failed")
	s.reaches(parent, "completed")
	s.evaluates()
	screens := []struct {
		name, hash, ready string
		do                func()
	}{
		{"list", "#/runs", ".row", nil},
		{"list-empty", "#/runs?agent=none", ".state", nil},
		{"list-selected", "#/runs", ".row", func() { b.key("j"); b.key("x") }},
		{"palette", "#/runs", ".row", func() { b.key("/"); b.shows("the palette", `document.querySelector("dialog[open]")`) }},
		{"approval", "#" + waiting, ".needs", nil},
		{"question", "#" + asks, ".needs", nil},
		{"no-such-run", "#run_00000000000000000000000000", ".problem", nil},
		{"completed", "#" + done, ".outcome", nil},
		{"failed", "#" + failed, ".outcome", nil},
		{"tree", "#" + parent, ".tl-label a", nil},
		{"log", "#" + done + "?view=log&at=2", ".log tr", nil},
		{"json", "#" + done + "?view=json", ".raw .json", nil},
		{"fork", "#" + done + "?fork=0", ".side textarea", nil},
		{"evaluations", "#/evaluations", "[data-evaluation]", nil},
		{"evaluation", "#/evaluations/eval_nightly", "[data-case]", func() { b.unfold() }},
	}
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		for _, s := range screens {
			b.goTo(s.hash)
			b.shows(s.name, fmt.Sprintf("document.querySelector(%s)", quoted(s.ready)))
			if s.do != nil {
				s.do()
			}
			look(b, s.name, theme)
			if theme == "dark" {
				continue // only the colors differ
			}
			for _, size := range sizes {
				b.run(chromedp.EmulateViewport(size[0], size[1]))
				b.shows("no more than fits", `document.documentElement.scrollWidth <= innerWidth`)
			}
			b.run(chromedp.EmulateViewport(1440, 900))
		}
	}
}

// Nor does it in the views of a deployment with logins, reviews and decisions.
func TestRecordedScreensAreAccessible(t *testing.T) {
	t.Parallel()
	look := checker(t)
	b := open(t, replay(t))
	b.fixed()
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		for _, s := range recordedScreens(t) {
			b.run(chromedp.EmulateViewport(1440, 900))
			b.show(s)
			look(b, s.name, theme)
		}
	}
}

// Ten thousand runs in the list and two hundred turns in a run are as easy to use as ten. The duration of an
// interaction is logged; the number of elements is bounded.
func TestMany(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	b := open(t, s.url)
	long := s.submit("long", "Convert.")
	runs := make([]api.SubmitRequest, 1000)
	for i := range runs {
		runs[i] = api.SubmitRequest{Agent: "asks", Input: []byte(`"x"`)}
	}
	for range 10 {
		if _, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: runs}, ""); err != nil {
			t.Fatal(err)
		}
	}
	s.reaches(long, "completed")
	b.goTo("#/runs")
	b.shows("ten thousand runs", `(scrollTo(0, 1e9), /10,001 runs/.test(document.querySelector(".counts")?.innerText))`)
	if n := eval[int](b, `document.querySelectorAll(".row").length`); n > 100 {
		t.Errorf("%d rows are in the document", n)
	}
	b.run(chromedp.Evaluate(`scrollTo(0, 0)`, nil))
	t.Logf("10,000 runs: a key takes %.0f ms (95th percentile)", eval[float64](b, interaction+`(() => dispatchEvent(new KeyboardEvent("keydown", {key: "j"})))`))
	t.Logf("10,000 runs: the next page takes %.0f ms", eval[float64](b, interaction+`(() => scrollBy(0, innerHeight))`))
	heap := eval[float64](b, `performance.memory.usedJSHeapSize / 1e6`)
	t.Logf("10,000 runs: %.0f MB", heap)
	if heap > 150 {
		t.Errorf("the page holds %.0f MB", heap)
	}
	b.goTo("#" + long)
	b.text(".outcome", "All is converted.")
	b.shows("the timeline", `document.querySelector(".tl-box")`)
	b.shows("two hundred turns", `[...document.querySelectorAll(".facts span")].some(e => e.innerText.includes("200 of 200"))`)
	t.Logf("200 turns: scrolling the timeline takes %.0f ms", eval[float64](b, interaction+`((i) => document.querySelector(".tl-box").scrollTop = i * 120)`))
	t.Logf("200 turns: a detail takes %.0f ms", eval[float64](b, interaction+`((i) => document.querySelectorAll(".tl-bar")[i % 10].click())`))
}
