//go:build browser

package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// If a worker dies while the page shows its run, the page shows the death, and the run continues.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	// The second turn is slow enough that its worker still holds the run when the test kills it.
	const text = `model:
  provider: scripted
  responses:
    - {text: Step 1., tool_calls: [{name: convert, arguments: {value: 1}}], delay: 2s}
    - {text: All is converted., delay: 10s}
tools:
  - {name: convert, kind: nats, idempotent: true}
`
	if _, err := s.client.PutAgent(t.Context(), "slow", []byte(text)); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.url)
	id := s.submit("slow", "Convert.")
	// The stored events do not name the worker, so the test reads the live ones while the page opens.
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for e, err := range s.client.Events(t.Context(), id, 0) {
			if err == nil && e.Type == state.LiveTurnStarted && e.Turn == 2 {
				found <- e.Worker
				return
			}
		}
	}()
	b.goTo("#" + id)
	asks := func() string {
		return eval[string](b, `([...document.querySelectorAll(".live-bubble .who-line")].map(e => e.innerText.match(/worker-\d/)?.[0]).filter(Boolean).at(-1)) ?? ""`)
	}
	holder := <-found
	if holder == "" {
		t.Fatal("the events do not name the worker of turn 2")
	}
	eventually(t, "the page names the worker of the turn", func() error {
		if says := asks(); says != holder {
			return fmt.Errorf("the page shows %q, want %q", says, holder)
		}
		return nil
	})
	if err := s.workers[holder].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.text(".conversation .note.bad", "A worker died; worker-")
	b.shows("the death on the timeline", `document.querySelector(".tl-death")`)
	b.shows("who has died", fmt.Sprintf(`[...document.querySelectorAll(".k-lost")].some(e => e.title.includes("%s died"))`, holder))
	b.picture("worker-died")
	s.reaches(id, "completed")
	b.text(".outcome", "All is converted.")
	if n := eval[int](b, `[...document.querySelectorAll(".bubble.assistant:not(.gone)")].filter(e => e.innerText.includes("All is converted.")).length`); n != 1 {
		t.Errorf("the answer is shown %d times", n)
	}
}

// A worker dies during a call that a person approved. The timeline shows the attempt in the turn of the call,
// like the events.
func TestWorkerDiesAfterApproval(t *testing.T) {
	s, nats := start(t)
	calls := make(chan struct{}, 2)
	release := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- toolkit.Run(ctx, toolkit.Config{URL: nats}, toolkit.Func("refund", "Pays money back.", func(context.Context, toolkit.Call, refund) (string, error) {
			calls <- struct{}{}
			<-release
			return "Paid.", nil
		}))
	}()
	t.Cleanup(func() {
		stop()
		<-served
	})
	const text = `model:
  provider: scripted
  responses:
    - {tool_calls: [{name: refund, arguments: {order: A-17, amount: 240}}]}
    - {text: It is done.}
tools:
  - name: refund
    kind: nats
    idempotent: true
    approval: args.amount > 100
    schema: {type: object, properties: {order: {type: string}, amount: {type: number}}}
`
	if _, err := s.client.PutAgent(t.Context(), "slow-refunds", []byte(text)); err != nil {
		t.Fatal(err)
	}
	id := s.submit("slow-refunds", "Pay it back.")
	s.reaches(id, "waiting")
	b := open(t, s.url)
	b.goTo("#" + id)
	b.press(".needs", "Approve")
	<-calls
	holder := ""
	eventually(t, "a worker holds the run", func() error {
		workers, err := s.client.Workers(t.Context())
		for _, w := range workers {
			if slices.Contains(w.Runs, id) {
				holder = w.ID
				return nil
			}
		}
		return cmp.Or(err, errors.New("none does"))
	})
	if err := s.workers[holder].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-calls
	close(release)
	s.reaches(id, "completed")
	b.shows("the death in the row of the first turn", `document.querySelector(".k-lost")?.closest(".tl-row")?.innerText.includes("turn 1")`)
	for e, err := range s.client.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Reason == state.Recovered && e.Turn != 1 {
			t.Errorf("the event has the attempt in turn %d", e.Turn)
		}
	}
}
