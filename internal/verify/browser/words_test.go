//go:build browser

package browser

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Users enter text, and the page reacts as described by each case.
func TestWords(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	p := s.between(t)
	b := open(t, p.url)
	for _, part := range []struct {
		name string
		test func(*testing.T, *deployment, *browser, *between)
	}{
		{"Ctrl-Enter sends", ctrlEnterSends},
		{"a gateway that is down", gatewayDown},
		{"a run that is not there", noSuchRun},
		{"code in texts of the gateway", codeInTexts},
		{"a run in a window of 1,440 pixels", runFillsWindow},
		{"colours of statuses", coloursOfStatuses},
	} {
		t.Run(part.name, func(t *testing.T) {
			b.t, s.t = t, t
			part.test(t, s, b, p)
		})
	}
	b.t, s.t = t, t
}

// Ctrl-Enter sends a text, as a button next to it says; Enter starts a new line.
func ctrlEnterSends(_ *testing.T, s *deployment, b *browser, _ *between) {
	send := func() { b.run(chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(input.ModifierCtrl))) }
	b.goTo("#/new-agent")
	b.write(".try textarea", "Hello.")
	send()
	b.text(".draft-run[data-status=completed]", "Hello from the first agent.")
	id := s.submit("asks", "Book a table.")
	b.goTo("#" + id)
	b.write(".needs textarea", "for four")
	send()
	s.reaches(id, "completed")
	b.press(".run-head", "Continue")
	b.write("dialog textarea", "And now?")
	send()
	b.text(".conversation", "And now?")
	b.goTo("#/agents/hello")
	b.press(".view-acts", "Invoke")
	b.write("dialog textarea", "Hi")
	send()
	b.text(".outcome", "Hello, world.")
}

// A part of the page that cannot load while the gateway is down says so, and loads once it answers.
func gatewayDown(_ *testing.T, _ *deployment, b *browser, p *between) {
	b.goTo("")
	b.text(".live.on", "live")
	p.set(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	p.cut()
	eval[bool](b, `(location.hash = "#/batches", true)`)
	b.text("main", "The gateway does not answer")
	if text := eval[string](b, `document.querySelector("main").innerText`); strings.Contains(text, "upgraded") {
		b.t.Errorf("the page says %q", text)
	}
	p.set(nil)
	b.text("main", "No batch yet")
}

// If there is no choice of tenants, no text refers to one.
func noSuchRun(_ *testing.T, _ *deployment, b *browser, _ *between) {
	b.goTo("#run_01M810TY7WQKMC69X8N4ABCDEF")
	b.text("main [role=alert]", "It may have been deleted")
	if text := eval[string](b, `document.querySelector("main").innerText`); strings.Contains(text, "above") {
		b.t.Errorf("the page says %q", text)
	}
}

// Text that the gateway puts in backticks is shown as code.
func codeInTexts(t *testing.T, _ *deployment, b *browser, p *between) {
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		if r.URL.Path != "/v1/dead" {
			on.ServeHTTP(w, r)
			return
		}
		letter := api.DeadLetter{Seq: 1, Kind: "poisoned", Status: api.DeadOpen, Cause: "`worker-1` died", Calls: []api.DeadCall{}, Advice: "see in `turnpike show run_1` what it does"}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(api.NewPage([]api.DeadLetter{letter}, "")); err != nil {
			t.Error(err)
		}
	})
	defer p.set(nil)
	b.goTo("#/dead")
	b.text(".advice code", "turnpike show run_1")
	b.text(".cause code", "worker-1")
	if text := eval[string](b, `document.querySelector(".letter").innerText`); strings.Contains(text, "`") {
		t.Errorf("the letter says %q", text)
	}
}

// No two statuses share a colour, but those in which nothing happens, which are grey.
func coloursOfStatuses(t *testing.T, _ *deployment, b *browser, _ *between) {
	const hues = `["running", "waiting", "completed", "incomplete", "failed"].map(s => {
		const [r, g, b] = getComputedStyle(document.documentElement).getPropertyValue("--s-" + s).trim().match(/\w\w/g).map(x => parseInt(x, 16));
		const most = Math.max(r, g, b), range = most - Math.min(r, g, b);
		return ((most === r ? (g - b) / range : most === g ? 2 + (b - r) / range : 4 + (r - g) / range) * 60 + 360) % 360 })`
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		b.goTo("")
		b.shows(theme, `document.documentElement.dataset.theme === `+quoted(theme))
		all := eval[[]float64](b, hues)
		for i, one := range all {
			for k, other := range all[:i] {
				if apart := math.Abs(one - other); min(apart, 360-apart) < 30 {
					t.Errorf("%s: statuses %d and %d have hues %.0f and %.0f", theme, k, i, other, one)
				}
			}
		}
	}
	b.theme("light")
}

// What has come of a run stands next to its conversation, which ends at the edge of the window.
func runFillsWindow(t *testing.T, s *deployment, b *browser, _ *between) {
	id := s.submit("counts", "How far is it?")
	s.reaches(id, "completed")
	b.run(chromedp.EmulateViewport(1440, 900))
	b.goTo("#" + id)
	b.text(".conversation", "It is converted.")
	b.text(".timeline", "turn 2")
	b.picture("run-1440")
	type box struct{ Left, Right, Top float64 }
	at := func(selector string) box {
		t.Helper()
		return eval[box](b, `(({left, right, top}) => ({left, right, top}))(document.querySelector(`+quoted(selector)+`).getBoundingClientRect())`)
	}
	talk, line := at(".conversation"), at(".timeline")
	if talk.Right < 1380 || line.Right > talk.Left || talk.Top > 400 {
		t.Errorf("the timeline stands at %+v, the conversation at %+v", line, talk)
	}
}
