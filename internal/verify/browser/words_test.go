//go:build browser

package browser

import (
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// What people write, and what the page says in return.
func TestWords(t *testing.T) {
	s := deploy(t)
	b := open(t, s.url)
	for _, part := range []struct {
		name string
		test func(*testing.T, *deployment, *browser)
	}{{"Ctrl-Enter sends", ctrlEnterSends}} {
		t.Run(part.name, func(t *testing.T) {
			b.t, s.t = t, t
			part.test(t, s, b)
		})
	}
	b.t, s.t = t, t
}

// Ctrl-Enter sends a text, as a button next to it says; Enter begins a line.
func ctrlEnterSends(t *testing.T, s *deployment, b *browser) {
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
