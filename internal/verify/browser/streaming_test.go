//go:build browser

package browser

import (
	"fmt"
	"net/http"
	"testing"
)

// liveEvents is the event stream of a run, written by the test.
type liveEvents struct {
	t    *testing.T
	id   string
	send chan string
	cut  chan struct{} // ends the response: the page reopens the stream
}

// live replaces the stream of a run's events.
func (p *between) live(t *testing.T, id string) *liveEvents {
	t.Helper()
	l := &liveEvents{t: t, id: id, send: make(chan string), cut: make(chan struct{})}
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		if r.URL.Path != "/v1/runs/"+id+"/events" {
			on.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("retry: 100\n\n"))
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case e := <-l.send:
				_, _ = w.Write([]byte(e))
			case <-l.cut:
				return
			case <-r.Context().Done():
				return
			}
		}
	})
	return l
}

func (l *liveEvents) write(seq, kind string, attempt int, more string) {
	l.t.Helper()
	data := fmt.Sprintf(`{"seq": %s, "run_id": %q, "type": %q, "turn": 1, "attempt": %d, "at": "2026-01-01T00:00:01Z", "worker": "worker-%d"%s}`, seq, l.id, kind, attempt, attempt, more)
	head := ""
	if seq != "null" {
		head = "id: " + seq + "\n"
	}
	select {
	case l.send <- fmt.Sprintf("%sevent: %s\ndata: %s\n\n", head, kind, data):
	case <-l.t.Context().Done():
	}
}

// event writes a live event with extra fields.
func (l *liveEvents) event(kind string, attempt int, more string) {
	l.t.Helper()
	l.write("null", kind, attempt, more)
}

// committed writes a stored event.
func (l *liveEvents) committed(seq int, kind string, attempt int, more string) {
	l.t.Helper()
	l.write(fmt.Sprint(seq), kind, attempt, fmt.Sprintf(`, "version": %d%s`, seq, more))
}

// A delta only redraws new content: finished blocks of the text keep their elements, and the messages above are
// not redrawn.
func TestStreamingCostsWhatIsNew(t *testing.T) {
	s := deploy(t)
	p := s.between(t)
	b := open(t, p.url)
	id := s.submit("asks", "Book a table.")
	s.reaches(id, "waiting")
	l := p.live(t, id)
	delta := func(text string) {
		t.Helper()
		l.event("model.delta", 1, `, "delta": {"text": `+quoted(text)+`}`)
	}
	b.goTo("#" + id)
	l.committed(1, "run.submitted", 0, `, "reason": "submitted", "messages": [{"id": "m1", "role": "user", "turn": 0, "parts": [{"type": "text", "text": "Tell me all."}]}]`)
	b.text(".conversation", "Tell me all.")
	l.event("turn.started", 1, "")
	delta("# All of it\n\nThe first paragraph.\n\n- one\n")
	b.text(".streaming", "one")
	// Each bubble writes the time of its message when it is drawn.
	b.shows("marks and a count", `(() => {
		document.querySelector(".streaming h1").marked = document.querySelector(".streaming p").marked = true;
		const real = Date.prototype.getMilliseconds;
		window.drawn = 0;
		Date.prototype.getMilliseconds = function () { window.drawn++; return real.call(this) };
		return true })()`)
	delta("- two\n\n```\nThe end")
	b.text(".streaming", "The end")
	delta(" of it.\n```\n")
	b.text(".streaming pre", "The end of it.")
	if !eval[bool](b, `!!document.querySelector(".streaming h1").marked && !!document.querySelector(".streaming p").marked`) {
		t.Error("the finished blocks were redrawn")
	}
	if n := eval[int](b, `document.querySelectorAll(".streaming .md").length`); n != 4 {
		t.Errorf("the text has %d blocks, want a heading, a paragraph, a list and the tail", n)
	}
	if n := eval[int](b, `window.drawn`); n != 0 {
		t.Errorf("%d message times were written while deltas arrived", n)
	}
	l.committed(2, "model.message", 1, `, "message": {"id": "m2", "role": "assistant", "turn": 1, "parts": [{"type": "text", "text": "Said."}]}`)
	b.text(".bubble.assistant", "Said.")
	if n := eval[int](b, `window.drawn`); n == 0 {
		t.Error("the counter of drawn messages does not work")
	}
}

// Citations appear below an answer, here in Anthropic's format. A text that is split for its citations is shown
// as one.
func TestSources(t *testing.T) {
	s := deploy(t)
	p := s.between(t)
	b := open(t, p.url)
	id := s.submit("asks", "Book a table.")
	s.reaches(id, "waiting")
	l := p.live(t, id)
	b.goTo("#" + id)
	l.committed(1, "run.submitted", 0, `, "reason": "submitted", "messages": [{"id": "m1", "role": "user", "turn": 0, "parts": [{"type": "text", "text": "When?"}]}]`)
	l.committed(2, "model.message", 1, `, "message": {"id": "m2", "role": "assistant", "turn": 1, "parts": [{"type": "text", "text": "Lisbon was founded "}, `+
		`{"type": "text", "text": "around 1200 BC.", "opaque_by": "anthropic", "opaque": {"citations": [{"type": "web_search_result_location", "url": "https://example.com/lisbon", "title": "History of Lisbon", "cited_text": "The Phoenicians came early.", "encrypted_index": "I"}]}}]}`)
	l.committed(99, "run.finished", 1, `, "reason": "completed", "status": "completed", "output": "Lisbon was founded around 1200 BC."`)
	for _, within := range []string{".conversation .bubble", ".outcome"} {
		b.text(within+" .md", "Lisbon was founded around 1200 BC.")
		b.text(within+" .sources a[href='https://example.com/lisbon'][rel~=noopener]", "History of Lisbon (example.com)")
		b.text(within+" .sources q", "The Phoenicians came early.")
	}
}
