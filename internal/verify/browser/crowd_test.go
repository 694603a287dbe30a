//go:build browser

package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// interaction measures the time from an action to the frame after the one that shows its effect, in
// milliseconds: the 95th percentile of 20.
const interaction = `(async (act) => { const frame = () => new Promise(r => requestAnimationFrame(r)); const times = [];
	for (let i = 0; i < 20; i++) { const t = performance.now(); act(i); await frame(); times.push(performance.now() - t); await frame(); }
	return times.sort((a, b) => a - b)[18] })`

// busy is the CPU time of the page's main thread, in milliseconds.
type busy struct{ script, layout, all float64 }

func (b *browser) busy() busy {
	b.t.Helper()
	var out busy
	b.run(performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks), chromedp.ActionFunc(func(ctx context.Context) error {
		list, err := performance.GetMetrics().Do(ctx)
		for _, m := range list {
			switch m.Name {
			case "ScriptDuration":
				out.script = m.Value * 1000
			case "LayoutDuration", "RecalcStyleDuration":
				out.layout += m.Value * 1000
			case "TaskDuration":
				out.all = m.Value * 1000
			}
		}
		return err
	}))
	return out
}

func (a busy) since(b busy) string {
	return fmt.Sprintf("%.0f ms of script, %.0f ms of style and layout; %.0f ms of all tasks", a.script-b.script, a.layout-b.layout, a.all-b.all)
}

// A run of 200 turns with 100 children opens and works like a short one. The times are logged; the number of
// elements is bounded.
func TestCrowd(t *testing.T) {
	s := deploy(t)
	b := open(t, s.url)
	hello := s.submit("hello", "Hi")
	s.reaches(hello, "completed")
	crowd := s.crowd()
	s.reaches(crowd, "completed")
	// The last children may end after their parent.
	for range 5 {
		b.goTo("#/runs")
		b.text(".row", "hello")
		b.shows("the list at rest", `document.querySelectorAll(".row").length > 20`)
		before := b.busy()
		// The check for the end must itself be cheap: innerText triggers layout, textContent does not.
		opened := eval[float64](b, fmt.Sprintf(`new Promise(done => { const t = performance.now(); location.hash = "#%s";
			const look = () => document.querySelector(".tl-rows")?.style.height === "7800px" && /200 of 200/.test(document.querySelector(".facts")?.textContent) && document.querySelectorAll(".tl-row").length > 14
				? requestAnimationFrame(() => done(performance.now() - t)) : requestAnimationFrame(look); look() })`, crowd))
		t.Logf("200 turns, 100 children: %s; from the click to the timeline, requests included: %.0f ms", b.busy().since(before), opened)
	}
	if n := eval[int](b, `document.querySelectorAll("*").length`); n > 2000 {
		t.Errorf("%d elements were drawn, want at most 2000", n)
	}
	for _, x := range []struct{ what, act string }{
		{"scrolling the timeline", `((i) => document.querySelector(".tl-box").scrollTop = i * 300)`},
		{"zooming", `((i) => document.querySelectorAll("[aria-label=Zoom] button")[(i + 1) % 3].click())`},
		{"a detail", `((i) => document.querySelectorAll(".tl-bar:not(.k-child)")[i % 10].click())`},
		{"scrolling the page", `(() => scrollBy(0, innerHeight))`},
	} {
		t.Logf("200 turns, 100 children: %s takes %.0f ms", x.what, eval[float64](b, interaction+x.act))
	}
	if heap := eval[float64](b, `performance.memory.usedJSHeapSize / 1e6`); heap > 150 {
		t.Errorf("the page holds %.0f MB", heap)
	}
}

// crowd submits a run of 200 turns that starts a hundred children.
func (s *deployment) crowd() string {
	s.t.Helper()
	var text strings.Builder
	text.WriteString("model:\n  provider: scripted\n  responses:\n")
	for i := range 199 {
		calls := fmt.Sprintf("{name: convert, arguments: {value: %d}}", i)
		if i < 10 {
			calls = strings.TrimSuffix(strings.Repeat("{name: helper, arguments: {task: One.}}, ", 10), ", ")
		}
		fmt.Fprintf(&text, "    - {text: Step %d., tool_calls: [%s]}\n", i+1, calls)
	}
	text.WriteString("    - {text: All is done.}\nlimits: {max_turns: 200}\ntools:\n  - {name: convert, kind: nats, idempotent: true}\n  - {name: helper, kind: agent, agent: hello, max_calls: 100}\n")
	if _, err := s.client.PutAgent(s.t.Context(), "crowd", []byte(text.String())); err != nil {
		s.t.Fatal(err)
	}
	return s.submit("crowd", "Do it.")
}
