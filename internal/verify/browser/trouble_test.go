//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// A completed run with a failed tool call looks different from one without, in the list and in the agent's
// figures. The first screen names the problem and links to it.
func TestTroubleOnPage(t *testing.T) {
	s, nats := start(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- toolkit.Run(ctx, toolkit.Config{URL: nats}, toolkit.Func("lookup", "Looks an order up.", func(context.Context, toolkit.Call, struct{}) (string, error) {
			return "", errors.New("no such order")
		}))
	}()
	t.Cleanup(func() {
		stop()
		<-served
	})
	for name, text := range map[string]string{
		"troubled": "model: {provider: scripted, responses: [{tool_calls: [{name: lookup, arguments: {}}]}, {text: Found nothing.}]}\ntools: [{name: lookup, kind: nats}]\n",
		"smooth":   "model: {provider: scripted, responses: [{text: All is well.}]}\n",
		"broken":   "model: {provider: scripted, responses: [{error: auth}]}\n",
	} {
		if _, err := s.client.PutAgent(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, s.url)
	b.goTo("")
	smooth, troubled := s.submit("smooth", "Hi"), s.submit("troubled", "Where is A-17?")
	s.reaches(smooth, "completed")
	if run := s.reaches(troubled, "completed"); run.Trouble.ToolErrors != 1 {
		t.Errorf("trouble: %+v", run.Trouble)
	}
	b.text(".row.s-completed[data-run='"+troubled+"'] .row-trouble", "1 tool call failed")
	b.shows("a row without trouble", `document.querySelector(".row.s-completed[data-run='`+smooth+`']") && !document.querySelector(".row[data-run='`+smooth+`'] .row-trouble")`)
	b.text(".health", "Nothing is wrong.")

	failed := s.submit("broken", "Hi")
	s.reaches(failed, "failed")
	b.text(".health .bad [data-sign='agent broken']", "broken: 1 failed in 24 h")
	b.picture("trouble")
	b.shows("the way to it", `(() => { const a = document.querySelector("[data-sign='agent broken']"); a?.click(); return a })()`)
	b.shows("exactly those runs", `[...document.querySelectorAll(".row")].map(r => r.dataset.run).join() === "`+failed+`"`)

	b.text(".health [data-sign=troubled]", "1 run with failures")
	b.goTo("")
	b.press(".filters", "⚠ with failures")
	b.shows("the runs with failures", `[...document.querySelectorAll(".row")].map(r => r.dataset.run).join() === "`+troubled+`"`)
	b.press(".filters", "Views")
	b.write("dialog input[name=name]", "Sick runs")
	b.press("dialog", "Save")
	b.goTo("#/runs?sort=agent")
	b.shows("the order by agent", `[...document.querySelectorAll(".row")].map(r => r.dataset.run).join() === "`+strings.Join([]string{failed, smooth, troubled}, ",")+`"`)
	b.shows("the other order", `(() => { const e = document.querySelector("[data-sort=agent]"); if (!location.hash.includes("-agent")) e?.click(); return [...document.querySelectorAll(".row")].map(r => r.dataset.run).join() === "`+strings.Join([]string{troubled, smooth, failed}, ",")+`" })()`)
	b.key("j")
	b.shows("the first row", `document.querySelector(".row.here")?.dataset.run === "`+troubled+`"`)
	b.press(".filters", "Views")
	b.shows("the view by its name", `(() => { const a = [...document.querySelectorAll("dialog a")].find(a => a.textContent === "Sick runs"); a?.click(); return a })()`)
	b.shows("its runs", `location.hash.includes("trouble=true") && [...document.querySelectorAll(".row")].map(r => r.dataset.run).join() === "`+troubled+`"`)

	b.goTo("#/agents")
	b.text("[data-agent=troubled] .troubled", "1")
	b.shows("agents by failures", `(() => { const e = document.querySelector("[data-sort=troubled]"); if (!location.hash.includes("troubled")) e?.click(); return document.querySelector("th[aria-sort=descending] [data-sort=troubled]") && document.querySelector("tbody tr")?.dataset.agent === "troubled" })()`)
	b.shows("an agent without failures", `document.querySelector("[data-agent=smooth]") && !document.querySelector("[data-agent=smooth] .troubled")`)
	b.goTo("#/agents/troubled")
	b.text("main .troubled", "1")

	b.goTo("#/agents/smooth")
	b.press(".view-acts", "Invoke")
	b.write("dialog textarea", "Hi again")
	b.press("dialog", "Run it")
	b.text(".outcome", "All is well.")
}

// Shortcuts are listed, can be switched off, and never approve on their own. The numbers of a batch link to its
// runs.
func TestShortcuts(t *testing.T) {
	s := deploy(t)
	b := open(t, s.url)
	id := s.submit("refunds", "Pay it back.")
	s.reaches(id, "waiting")
	b.goTo("")
	b.text(".row", "refund(")
	b.shows("the place of the row", `document.querySelector(".row[aria-posinset='1'][aria-setsize='1']")`)
	b.key("j")
	b.shows("the focus in the row", `document.activeElement?.closest(".row")?.dataset.run === "`+id+`"`)
	b.key("a")
	b.text("dialog", "A-17")
	b.text("dialog .risk", "pays money")
	b.key("\r")
	b.shows("no dialog", `!document.querySelector("dialog[open]")`)
	if run := s.reaches(id, "waiting", "running", "completed"); run.Status != "waiting" || len(s.paid()) != 0 {
		t.Errorf("a and Enter left the run %s and paid %v", run.Status, s.paid())
	}
	b.goTo("#" + id)
	b.shows("an axis from 0", `document.querySelector(".tl-axis span")?.innerText === "0" && document.querySelectorAll(".tl-axis span").length > 1`)
	b.shows("a short call beside a longer wait", `(() => { const w = (s) => document.querySelector(s)?.getBoundingClientRect().width; return w(".tl-bar.k-model") < 0.3 * w(".tl-bar.k-wait") })()`)
	b.goTo("")
	b.text(".row", "refund(")
	b.key("j")
	b.key("?")
	b.text("dialog", "select the run")
	b.shows("the switch", `(() => { const e = document.querySelector("dialog input[name=letters]"); e?.click(); return e && !e.checked })()`)
	b.press("dialog", "Close")
	b.shows("no dialog", `!document.querySelector("dialog[open]")`)
	b.key("x")
	b.key("a")
	b.shows("no selection and no dialog", `!document.querySelector(".row input:checked") && !document.querySelector("dialog[open]")`)

	b.key(kb.Escape)
	b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(input.ModifierCtrl)))
	b.shows("the palette", `document.querySelector(".palette-input")`)
	b.shows("a list that scrolls", `(() => { const l = document.querySelector(".palette-list"); l.style.maxHeight = "60px"; return l.scrollHeight > 2 * l.clientHeight })()`)
	b.key(kb.ArrowUp)
	b.shows("the last choice in sight", `(() => { const l = document.querySelector(".palette-list").getBoundingClientRect(), e = document.querySelector(".palette-list li:last-child[aria-selected=true]")?.getBoundingClientRect(); return e && e.top >= l.top && e.bottom <= l.bottom + 1 })()`)
	b.key(kb.Escape)

	batch, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{{Agent: "refunds", Input: json.RawMessage(`"Pay."`)}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	b.goTo("#/batches/" + batch.BatchID)
	b.text(".batch-facts a", "waiting")
	b.text(".batch-gist", "refund(")
	b.shows("the input", `(() => { const d = document.querySelector("td details"); if (d) d.open = true; return document.querySelector(".batch-input")?.textContent === "Pay." })()`)
	eval[bool](b, `(() => { document.querySelector(".batch-facts a").click(); return true })()`)
	b.shows("the run of the batch alone", `document.querySelectorAll(".row").length === 1 && !document.querySelector(".row[data-run='`+id+`']")`)
}

// A view that fails to draw leaves the rest of the page working.
func TestViewThatFails(t *testing.T) {
	s, _ := start(t)
	b := open(t, s.url)
	b.goTo("")
	b.text("main", "turnpike init hello")
	eval[bool](b, `(() => { const real = fetch; window.fetch = (at, o) => String(at).includes("/v1/batches") ? Promise.resolve(new Response('{"items":[null],"next_cursor":null}', {headers: {"Content-Type": "application/json"}})) : real(at, o); location.hash = "#/batches"; return true })()`)
	b.text("main", "This view failed")
	b.press("main", "Try again")
	b.text("main", "This view failed")
	b.shows("another view", `(() => { document.querySelector(".top nav a").click(); return true })()`)
	b.text("main", "turnpike init hello")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) == 0 {
		t.Error("the console does not name the failure")
	}
	b.problems = nil
}
