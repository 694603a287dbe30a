//go:build browser

package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The views around runs work in one deployment: schedules, triggers, memory, figures and hooks.
func TestAroundRuns(t *testing.T) {
	t.Parallel()
	s, address := start(t, "TURNPIKE_SECRET_HOOK="+hookSecret)
	for name, text := range map[string]string{
		"clerk": "model: {provider: scripted, responses: [{text: Done., usage: {input_tokens: 40, output_tokens: 2}}]}\n",
		"lame":  "model: {provider: scripted, responses: [{error: invalid_request}]}\n",
		"keeps": "model: {provider: scripted, responses: [{tool_calls: [{name: memory, arguments: {command: create, path: /memories/likes.md, file_text: \"Vegetarian.\\n\"}}]}, {text: Kept.}]}\n" +
			"tools: [{name: memory, kind: memory, scope: metadata.user}]\n",
	} {
		if _, err := s.client.PutAgent(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	p := s.between(t)
	b := open(t, p.url)
	for _, part := range []struct {
		name string
		test func(*testing.T, *deployment, *browser, *between, string)
	}{{"schedules", schedulesOnPage}, {"triggers", triggersOnPage}, {"hooks", hooksOnPage}, {"memory", memoryOnPage}, {"figures", figuresOnPage}} {
		t.Run(part.name, func(t *testing.T) {
			b.t, s.t = t, t
			part.test(t, s, b, p, address)
			b.sound()
		})
	}
	b.t, s.t = t, t
}

// A schedule shows its next firing. It can be paused, resumed and run from the page.
func schedulesOnPage(t *testing.T, s *deployment, b *browser, _ *between, _ string) {
	if _, err := s.client.PutSchedule(t.Context(), "daily", api.ScheduleSettings{Cron: "0 9 * * *", Timezone: "Europe/Berlin", Run: api.SubmitRequest{Agent: "clerk", Input: api.Text("Go.")}}); err != nil {
		t.Fatal(err)
	}
	b.goTo("#/schedules")
	const row = "[data-schedule=daily]"
	b.text(row, "Europe/Berlin")
	b.text(row, "in ")
	b.picture("schedules")
	b.press(row, "Pause")
	b.text(row, "paused")
	if got, err := s.client.Schedule(t.Context(), "daily"); err != nil || !got.Paused {
		t.Errorf("after Pause: %+v, %v", got, err)
	}
	b.press(row, "Run now")
	b.text(".toasts", "Its run has started.")
	if runs, err := s.client.List(t.Context(), url.Values{"metadata.schedule": {"daily"}}); err != nil || len(runs.Items) != 1 {
		t.Errorf("Run now started %d runs, %v", len(runs.Items), err)
	}
	b.press(row, "Resume")
	b.text(row, "in ")
}

// A trigger is stored, refused with the reason, corrected, paused, changed and deleted. Its page shows the
// results of its messages.
func triggersOnPage(t *testing.T, s *deployment, b *browser, _ *between, address string) {
	nc, err := nats.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish("orders.paid", []byte(`{"number": 17}`)); err != nil {
			t.Fatal(err)
		}
	}
	b.goTo("#/agents")
	b.press("main", "Triggers")
	b.press("main", "New trigger")
	b.write("dialog [name=name]", "orders")
	b.write("dialog [name=settings]", `{"stream": "ORDERS", "from": "all"`)
	b.press("dialog", "Save")
	b.text("dialog [role=alert]", "not JSON")
	b.write("dialog [name=settings]", `{"stream": "ORDERS", "from": "all", "paused": true, "runs": {"agent": "clerk"}}`)
	b.press("dialog", "Save")
	b.text("dialog [role=alert]", "runs")
	b.write("dialog [name=settings]", `{"stream": "ORDERS", "from": "all", "paused": true, "run": {"agent": "clerk"}}`)
	b.press("dialog", "Save")
	b.text("main h1", "orders")
	b.text(".trigger-state", "3 messages not read")
	b.text("main", "all messages that the stream had")
	b.press("main", "Resume")
	b.text(".trigger-state", "0 messages not read")
	b.press("main", "Edit")
	b.write("dialog [name=settings]", `{"stream": "ORDERS", "from": "all", "subjects": ["orders.paid"], "run": {"agent": "clerk"}}`)
	b.press("dialog", "Save")
	b.text("main .json", "orders.paid")
	eventually(t, "the three runs", func() error {
		runs, err := s.client.List(t.Context(), url.Values{"metadata.trigger": {"orders"}, "status": {"completed"}})
		if err == nil && len(runs.Items) != 3 {
			err = fmt.Errorf("%d have completed", len(runs.Items))
		}
		return err
	})
	b.goTo("#/triggers")
	b.text("[data-trigger=orders]", "runs of clerk")
	b.goTo("#/triggers/orders")
	b.press("main", "Delete")
	b.press("dialog", "Delete the trigger")
	b.text("main", "No trigger yet")
	if _, err := s.client.Trigger(t.Context(), "orders"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("after Delete: %v", err)
	}
}

// A memory file shows the run that wrote it. A change that conflicts with another changes nothing, shows both,
// and can then be applied to the newer version.
func memoryOnPage(t *testing.T, s *deployment, b *browser, _ *between, _ string) {
	const scope = "metadata.user:ann/<b>"
	run := s.submit("keeps", "I am vegetarian.", "user", "ann/<b>")
	s.reaches(run, "completed")
	b.goTo("#/memory")
	b.shows("the memory", `[...document.querySelectorAll("[data-scope] a")].find(a => a.textContent === `+quoted(scope)+`)?.click() ?? location.hash.includes("scope=")`)
	b.shows("the run that wrote it", fmt.Sprintf(`document.querySelector("[data-file='likes.md'] a[href='#%s']")`, run))
	b.shows("the file", `document.querySelector("[data-file='likes.md'] th a")?.click() ?? location.hash.includes("file=")`)
	b.text(".memory-text", "Vegetarian.")
	b.text(".memory-facts", "version 1")
	file := func() string {
		t.Helper()
		f, err := s.client.MemoryFile(t.Context(), scope, "likes.md")
		if err != nil {
			t.Fatal(err)
		}
		return *f.Content
	}
	b.press("main", "Edit")
	b.write("main [name=text]", "Vegan.\n")
	if _, err := s.client.PutMemoryFile(t.Context(), scope, "likes.md", "Eats fish.\n", 1); err != nil {
		t.Fatal(err)
	}
	b.press("main", "Save")
	b.text(".conflict", "Nothing was changed.")
	b.text(".conflict .d-old", "Eats fish.")
	b.text(".conflict .d-new", "Vegan.")
	if got := file(); got != "Eats fish.\n" {
		t.Errorf("a change of an old version was saved: %q", got)
	}
	b.press(".conflict", "Edit version 2 with my text")
	b.press("main", "Save")
	b.text(".memory-facts", "version 3")
	if got := file(); got != "Vegan.\n" {
		t.Errorf("the file has %q", got)
	}
	b.press("main", "Delete")
	b.press("dialog", "Delete the file")
	b.text("main", "No file in this memory")
	b.press("main", "New file")
	b.write("dialog [name=path]", "a/b.md")
	b.write("dialog [name=text]", "Kept by hand.")
	b.press("dialog", "Save")
	b.text("[data-file='a/b.md']", "5")
	b.press("main", "Erase")
	b.shows("a button that cannot be pressed yet", `document.querySelector("dialog button.danger")?.disabled`)
	b.write("dialog [name=confirm]", scope)
	b.press("dialog", "Erase the memory")
	b.text("main", "No memory yet")
	if got, err := s.client.MemoryScopes(t.Context(), "", 0); err != nil || len(got.Items) != 0 {
		t.Errorf("after Erase: %+v, %v", got, err)
	}
}

// The charts show ended runs by agent and reason, by keyboard and as a table, and link to the runs. They can
// draw a hundred series of ninety days; the time is logged.
func figuresOnPage(t *testing.T, s *deployment, b *browser, p *between, _ string) {
	for range 2 {
		s.reaches(s.submit("lame", "x"), "failed")
	}
	s.reaches(s.submit("clerk", "x"), "completed")
	b.goTo("#/agents")
	b.press("main", "Figures")
	b.text("[data-series=lame]", "⚠ 2")
	b.text("[data-chart='Not completed'] .chart-says", "model error 2")
	b.text("[data-chart='Tokens'] .chart-says", "input")
	b.shows("the series of one agent", `document.querySelector("[data-series=lame] a")?.click() ?? location.hash.includes("of=lame")`)
	b.text(".figures-sum", "2 runs ended, 2 failed")
	// The arrow keys select the previous step, and back.
	b.shows("the focus", `(document.querySelector("[data-chart=Runs] .chart-plot").focus(), document.activeElement.className === "chart-plot")`)
	b.key(kb.ArrowLeft)
	b.text("[data-chart=Runs] .chart-says", "none")
	b.key(kb.ArrowRight)
	b.text("[data-chart=Runs] .chart-says", "lame 2")
	b.unfold()
	b.text("[data-chart=Runs] .numbers", "lame")
	b.picture("figures")
	b.key("\r")
	b.shows("the runs of the step", `location.hash.includes("agent=lame") && location.hash.includes("since=") && document.querySelectorAll(".row").length === 2`)
	b.goTo("#/figures?range=7d&by=tenant")
	b.text("[data-series=default]", "⚠ 2")

	const series, days = 100, 90
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		if r.URL.Path != "/v1/stats" {
			on.ServeHTTP(w, r)
			return
		}
		from, err := time.Parse(time.RFC3339, r.URL.Query().Get("from"))
		if err != nil {
			t.Errorf("from: %v", err)
		}
		out := api.Stats{BoundsMS: state.FigureBounds()}
		for day := range days {
			for n := range series {
				l := api.Latency{Count: 9, SumMS: 900, Buckets: make([]int64, len(out.BoundsMS)+1)}
				l.Buckets[n%len(l.Buckets)] = 9
				out.Items = append(out.Items, api.StatsRow{
					Start: state.At(from.AddDate(0, 0, day)), Name: fmt.Sprintf("agent-%02d", n), Runs: int64(n + day), Failed: 1, InputTokens: 1000, OutputTokens: 100,
					Reasons: map[state.Reason]int64{state.EndCompleted: int64(n), state.EndModelError: 1}, Queue: l, Model: l, Tool: l,
				})
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
	defer p.set(nil)
	b.goTo("#/figures?range=90d&by=model")
	b.shows("a hundred series", `document.querySelectorAll("[data-series]").length === 100`)
	b.text("[data-chart=Runs] .chart-legend", "95 others")
	// The other grouping is read, summed and drawn from scratch. The time is that of the page's thread alone.
	for range 3 {
		eval[bool](b, `(window.before = document.querySelector("[data-chart]"), true)`)
		before := b.busy()
		eval[bool](b, `(location.hash = location.hash.includes("by=model") ? "#/figures?range=90d" : "#/figures?range=90d&by=model", true)`)
		b.shows("other charts", `document.querySelector("[data-chart]") !== window.before && document.querySelectorAll("[data-series]").length === 100`)
		t.Logf("%d series × %d days: %s, with those of the test", series, days, b.busy().since(before))
	}
	for _, name := range []string{"[data-chart] path", "*"} {
		if n, most := eval[int](b, fmt.Sprintf(`document.querySelectorAll(%s).length`, quoted(name))), map[string]int{"[data-chart] path": 40, "*": 4000}[name]; n > most {
			t.Errorf("%d elements %s were drawn, want at most %d", n, name, most)
		}
	}
	b.picture("figures-90d")
	if text := eval[string](b, `document.querySelector("[data-chart=Runs] .chart-says").innerText`); !strings.Contains(text, "agent-99 188") {
		t.Errorf("the latest day is %q, want 188 runs of agent-99", text)
	}
}
