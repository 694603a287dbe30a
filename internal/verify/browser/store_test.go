//go:build browser

package browser

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// elsewhere makes a client of the change stream reconnect to the feed of another gateway.
func elsewhere(r *http.Request) {
	other := func(id string) string {
		parts := strings.Split(id, ".")
		if len(parts) == 3 {
			parts[1] = "another"
		}
		return strings.Join(parts, ".")
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		r.Header.Set("Last-Event-ID", other(id))
	}
	q := r.URL.Query()
	if id := q.Get("after"); id != "" {
		q.Set("after", other(id))
		r.URL.RawQuery = q.Encode()
	}
}

// unavailable responds like a gateway whose store is unreachable.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"status": 503, "code": "store_unavailable", "title": "Service Unavailable", "detail": "the store does not answer"}`))
}

// If more runs change than the stream replays to a reader that reconnects, it loses some. The list keeps its
// length and position, a continued run is shown to its end, and a failed read is repeated. A list that grows
// all day drops its oldest rows.
func TestStreamLosesSome(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	p := s.between(t)
	b := open(t, p.url)
	old := s.submit("picks", "Read it.")
	s.reaches(old, "waiting")
	for _, n := range []int{1000, 100} {
		runs := make([]api.SubmitRequest, n)
		for i := range runs {
			runs[i] = api.SubmitRequest{Agent: "asks", Input: []byte(`"x"`)}
		}
		if _, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: runs}, ""); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(text string) string {
		return fmt.Sprintf(`document.querySelector(".counts")?.innerText.startsWith(%s)`, quoted(text))
	}
	b.goTo("#/runs")
	b.shows("all runs", `(scrollTo(0, 1e9), `+counts("1,101 runs")+` && !document.querySelector(".counts").innerText.includes("+"))`)
	const inSight = `document.elementFromPoint(700, 600)?.closest(".row")?.dataset.run ?? ""`
	b.shows("the middle", `(scrollTo(0, 20000), `+inSight+`)`)
	s.submit("asks", "A new one.")
	b.text(".fresh", "1 new")
	before := eval[string](b, inSight)

	var lists atomic.Int64
	release := make(chan struct{})
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		switch {
		case r.URL.Path == "/v1/events":
			elsewhere(r)
		case r.URL.Path == "/v1/runs" && lists.Add(1) == 1:
			unavailable(w)
			return
		case r.URL.Path == "/v1/runs":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		on.ServeHTTP(w, r)
	})
	p.cut()
	b.text("main [role=alert]", "the store does not answer")
	b.text("[role=status]", "Reading more…")
	close(release)
	b.shows("the list at rest", `!document.querySelector("main [role=alert]") && ![...document.querySelectorAll("[role=status]")].some(e => e.innerText.includes("Reading"))`)
	b.shows("as many runs as before", counts("1,101 runs"))
	b.shows("what was in sight", inSight+" === "+quoted(before))
	b.text(".fresh", "1 new")
	b.press(".runs-head", "1 new")
	b.shows("the newest 1,000", counts("1,000+ runs"))
	b.shows("all runs", `(scrollTo(0, 1e9), `+counts("1,102 runs")+`)`)

	// The run continues without a reader.
	p.set(nil)
	b.goTo("#" + old)
	b.text(".needs", "pick_file")
	give := func(signal api.SignalRequest) {
		t.Helper()
		if _, err := s.client.Signal(t.Context(), old, signal); err != nil {
			t.Fatal(err)
		}
	}
	give(api.SignalRequest{ToolResults: []api.ToolResult{{CallID: s.reaches(old, "waiting").Waiting.Calls[0].ID, Content: []byte(`"notes.txt"`)}}})
	b.text(".outcome", "You chose notes.txt.")
	gate := make(chan struct{})
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		if r.URL.Path == "/v1/events" {
			select {
			case <-gate:
			case <-r.Context().Done():
			}
			elsewhere(r)
		}
		on.ServeHTTP(w, r)
	})
	p.cut()
	give(api.SignalRequest{Message: []byte(`"And now?"`)})
	eventually(t, "the run has gone on", func() error {
		if run := s.reaches(old, "completed"); run.Output == nil || !strings.Contains(*run.Output, "on it goes") {
			return fmt.Errorf("%v", run.Output)
		}
		return nil
	})
	close(gate)
	b.text(".outcome", "And on it goes.")
	b.text(".conversation", "And now?")
}

// A stream that was interrupted has missed deltas: the page does not append the end of a sentence to its
// beginning. The text of a dead worker disappears when its turn is committed.
func TestLiveTextIsCut(t *testing.T) {
	s := deploy(t)
	p := s.between(t)
	b := open(t, p.url)
	long := strings.Repeat("x", 600) + "-the-end"
	id := s.submit("asks", "Book a table.", "note", long)
	s.reaches(id, "waiting")
	l := p.live(t, id)
	b.goTo("#" + id)
	l.event("turn.started", 1, "")
	l.event("model.delta", 1, `, "delta": {"text": "It costs "}`)
	b.text(".live-bubble", "It costs")
	l.cut <- struct{}{}
	l.event("model.delta", 1, `, "delta": {"text": "a night."}`)
	b.text(".live-bubble", "a night.")
	if text := eval[string](b, `document.querySelector(".live-bubble").innerText`); strings.Contains(text, "It costs") || !strings.Contains(text, "did not receive its beginning") {
		t.Errorf("the page joins it to %q", text)
	}
	l.event("turn.started", 2, "")
	b.text(".live-bubble.gone", "a night.")
	l.cut <- struct{}{}
	l.event("model.delta", 2, `, "first": true, "delta": {"text": "It costs 90 "}`)
	b.text(".live-bubble:not(.gone)", "It costs 90")
	l.event("model.delta", 2, `, "first": true, "delta": {"text": "For four "}`)
	b.text(".live-bubble:not(.gone)", "For four")
	if text := eval[string](b, `document.querySelector(".live-bubble:not(.gone)").innerText`); strings.Contains(text, "did not receive") || strings.Contains(text, "90") {
		t.Errorf("the page shows as the beginning of the text %q", text)
	}
	l.committed(1, "model.message", 2, `, "message": {"id": "m1", "role": "assistant", "turn": 1, "parts": [{"type": "text", "text": "All of it."}]}`)
	b.text(".conversation", "All of it.")
	b.shows("nothing of the attempt that died", `!document.querySelector(".live-bubble.gone")`)

	// The run is shown as the API returns it, also after it has changed.
	p.set(nil)
	b.goTo("#" + id + "?view=json")
	b.text(".raw", long)
	b.write(".needs textarea", "for four")
	b.press(".needs", "Answer")
	b.text(".outcome", "A table for four is booked.")
	b.text(".raw", "A table for four is booked.")
	b.text(".raw", long)
}

// A list that could not be read is read again without user action, and a slow one is not requested again until
// it has answered.
func TestSlowList(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	p := s.between(t)
	b := open(t, p.url)
	var asked, at, queues atomic.Int64
	release := make(chan struct{})
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		switch r.URL.Path {
		case "/v1/workers":
			if asked.Add(1) == 1 {
				unavailable(w)
				return
			}
			if at.Add(1); asked.Load() > 2 {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			defer at.Add(-1)
		case "/v1/queues":
			queues.Add(1)
		}
		on.ServeHTTP(w, r)
	})
	b.goTo("#/workers")
	b.text("main table", "worker-1")
	eventually(t, "a slow reading", func() error {
		if asked.Load() < 3 {
			return fmt.Errorf("%d were requested", asked.Load())
		}
		return nil
	})
	from := queues.Load()
	eventually(t, "the queues are read twice meanwhile", func() error {
		if n := queues.Load() - from; n < 2 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if n := at.Load(); n != 1 {
		t.Errorf("%d concurrent reads of the workers", n)
	}
	close(release)
}

// A run and its events are requested at the same time. Folded content is drawn when it is unfolded.
func TestRunIsOpened(t *testing.T) {
	s := deploy(t)
	id := s.submit("steps", "Convert.")
	s.reaches(id, "completed")
	p := s.between(t)
	asked := make(chan struct{})
	var once sync.Once
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		switch r.URL.Path {
		case "/v1/runs/" + id + "/events":
			once.Do(func() { close(asked) })
		case "/v1/runs/" + id:
			select {
			case <-asked:
			case <-r.Context().Done():
				return
			}
		}
		on.ServeHTTP(w, r)
	})
	b := open(t, p.url)
	b.goTo("#" + id)
	b.text(".outcome", "All is converted.")
	b.text(".call summary", "convert(")
	if n := eval[int](b, `document.querySelectorAll(".call-in").length`); n != 0 {
		t.Errorf("%d calls were drawn before they were unfolded", n)
	}
	b.shows("a call", `document.querySelector(".call summary").click() ?? true`)
	b.text(".call-in", "Arguments")
	b.text(".call-in", "metres")
}

// The budget names the limit that is closest to its end.
func TestBudgetNamesItsLimit(t *testing.T) {
	s := deploy(t)
	b := open(t, s.url)
	for limits, says := range map[string]string{
		"max_turns: 4":                   "25 % of its turns",
		"max_turns: 4, output_tokens: 5": "40 % of its output tokens",
		"max_turns: 4, total_tokens: 4":  "125 % of its tokens",
	} {
		text := fmt.Sprintf("model: {provider: scripted, responses: [{text: Hello., usage: {input_tokens: 3, output_tokens: 2}}]}\nlimits: {%s}\n", limits)
		if _, err := s.client.PutAgent(t.Context(), "spends", []byte(text)); err != nil {
			t.Fatal(err)
		}
		id := s.submit("spends", "Hi")
		s.reaches(id, "completed")
		b.goTo("#" + id)
		b.text(".budget", says)
	}
}
