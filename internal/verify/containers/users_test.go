//go:build containers

package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// definition is the agent of the users: three turns, with a non-repeatable payment in the first and the second.
const definition = `
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: pay, arguments: {n: 1}}, {name: look, arguments: {n: 1}}], delay: 300ms}
    - {tool_calls: [{name: pay, arguments: {n: 2}}], delay: 300ms}
    - {text: Paid., delay: 300ms}
tools:
  - {name: pay, kind: nats, timeout: 5s}
  - {name: look, kind: nats, idempotent: true, timeout: 5s}
`

// work is the duration of an undisturbed run: only waits for its model.
const work = 900 * time.Millisecond

// users submit runs and follow each to its end.
type users struct {
	clients  []*api.Client
	finished chan struct{} // receives one element for each run that was followed to its end

	mu    sync.Mutex
	phase string
	runs  []*followed
	wrong []error
}

// followed is a run that a gateway has accepted.
type followed struct {
	id    string
	phase string // in which it was submitted

	// ended is closed when the reader has received the end, and guards the fields below.
	ended chan struct{}
	at    time.Time
	seen  []api.Event // the committed events, in order of arrival
}

// steps lists the events that the reader received, with the time since the first.
func (f *followed) steps() string {
	var b strings.Builder
	for _, e := range f.seen {
		fmt.Fprintf(&b, "\n%6.2f s: %d %s, turn %d", e.At.Sub(f.seen[0].At.Time).Seconds(), e.Seq, e.Type, e.Turn)
	}
	return b.String()
}

// await returns when n more runs have finished.
func (u *users) await(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for len(u.finished) > 0 {
		<-u.finished
	}
	for i := range n {
		select {
		case <-u.finished:
		case <-ctx.Done():
			t.Fatalf("%d of %d runs finished: %v", i, n, ctx.Err())
		}
	}
}

// awaitAll returns when every run accepted so far has finished.
func (u *users) awaitAll(ctx context.Context, t *testing.T) {
	t.Helper()
	u.mu.Lock()
	runs := slices.Clone(u.runs)
	u.mu.Unlock()
	for _, f := range runs {
		select {
		case <-f.ended:
		case <-ctx.Done():
			t.Fatalf("run %s does not finish: %v", f.id, ctx.Err())
		}
	}
}

func (u *users) enter(phase string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.phase = phase
}

// run lets n users work until stop ends, and returns when the last run or ctx has ended.
func (u *users) run(ctx, stop context.Context, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for j := 0; stop.Err() == nil; j++ {
				if err := u.one(ctx, stop, i, j); err != nil {
					u.mu.Lock()
					u.wrong = append(u.wrong, err)
					u.mu.Unlock()
				}
			}
		})
	}
	all.Wait()
}

// one submits a run, at another gateway if the first refuses it, and reads its events until it has ended.
func (u *users) one(ctx, stop context.Context, user, turn int) error {
	key := fmt.Sprintf("%d-%d", user, turn)
	u.mu.Lock()
	f := &followed{phase: u.phase, ended: make(chan struct{})}
	u.mu.Unlock()
	for door := user + turn; f.id == ""; door++ {
		callCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		run, err := u.clients[door%len(u.clients)].Submit(callCtx, api.SubmitRequest{Agent: "payer", Input: json.RawMessage(`"pay"`)}, key)
		cancel()
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Status < http.StatusInternalServerError {
			return fmt.Errorf("submit %s: %w", key, err)
		}
		if err != nil {
			if !pause(ctx, 200*time.Millisecond) {
				return fmt.Errorf("submit %s: %w", key, err)
			}
			continue
		}
		f.id = run.ID
	}
	u.mu.Lock()
	u.runs = append(u.runs, f)
	u.mu.Unlock()
	for e, err := range u.clients[user%len(u.clients)].Events(ctx, f.id, 0) {
		if err != nil {
			return fmt.Errorf("events of %s: %w", f.id, err)
		}
		if e.Seq > 0 {
			f.seen = append(f.seen, e)
		}
	}
	f.at = time.Now()
	close(f.ended)
	u.finished <- struct{}{}
	return nil
}

// ledger records the effects of the tools, by run and call.
type ledger struct {
	mu      sync.Mutex
	effects map[string]int
}

// serve answers calls of the tools at the deployment's NATS, like a separate program.
func (l *ledger) serve(t *testing.T, s *deployment) *nats.Conn {
	t.Helper()
	var urls string
	for _, v := range s.nats {
		urls += ",nats://" + v.at(4222)
	}
	// The servers announce the addresses of their containers.
	nc, err := natsbus.Connect(urls[1:], "tools", nats.IgnoreDiscoveredServers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	act := func(ctx context.Context, c toolkit.Call) (toolkit.Result, error) {
		l.mu.Lock()
		l.effects[c.RunID+" "+c.CallID]++
		l.mu.Unlock()
		pause(ctx, 50*time.Millisecond)
		return toolkit.Result{Content: "done"}, nil
	}
	if _, err := toolkit.Serve(nc, "turnpike", toolkit.Tool{Name: "pay", Handler: act}, toolkit.Tool{Name: "look", Handler: act}); err != nil {
		t.Fatal(err)
	}
	return nc
}
