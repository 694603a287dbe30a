package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Exit codes of `run` and `watch`, by the final status of the run.
const (
	exitIncomplete = 3
	exitFailed     = 4
	exitCancelled  = 5
	exitWaiting    = 6
)

type watchCmd struct {
	ID     string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	After  int64  `help:"Sequence number of the last event already seen."`
	Stream string `enum:",turns,deltas" default:"" help:"turns omits the partial responses of a run with --stream deltas."`
}

func (c *watchCmd) Run(e *env) error {
	return follow(e, c.ID, following{after: c.After, noPieces: c.Stream == "turns"})
}

// following is the options for following a run.
type following struct {
	after      int64 // number of the last event that the user has seen
	stopAtWait bool  // stop when a person or a client must act
	noPieces   bool  // omit deltas of model responses
}

// follow prints a run's events until the run ends, the user interrupts, or, with stopAtWait, the run waits for anything
// but child runs or a time. Without --json it also prints the events of up to mostFollowed descendants. It returns the
// error for the exit code.
func follow(e *env, id string, how following) error {
	// A user who has submitted a run needs its id at once. A user who watches a run knows the id, so print it once the
	// run is found.
	head := sync.OnceFunc(func() {
		if !e.json {
			fmt.Fprintf(e.out, "run %s\n", id)
		}
	})
	if how.stopAtWait {
		head()
	}
	root := &member{printer: &watch.Printer{Out: e.out, Terminal: e.terminal && !how.noPieces, Colour: e.colour}}
	below, stop := context.WithCancel(e.ctx)
	all := &family{env: e, ctx: below, followed: map[state.RunID]bool{}}
	defer all.readers.Wait()
	defer stop()
	var events atomic.Int64
	idle := time.AfterFunc(time.Hour, func() {
		before, hint := events.Load(), "no worker has taken the run yet: start one, or find the cause with `turnpike doctor`"
		if ready, err := e.client.Readiness(below); err == nil && restoring(ready) {
			hint = "the run cannot start yet: " + ready.Restore
		}
		if events.Load() == before {
			fmt.Fprintln(e.errs, hint)
		}
	})
	idle.Stop() // until the run is submitted
	defer idle.Stop()
	notice := func(lost error) {
		if lost != nil {
			idle.Stop()
			fmt.Fprintf(e.errs, "connection lost, retrying: %s\n", explain(lost, e.server))
		} else {
			fmt.Fprintln(e.errs, "connected again")
		}
	}
	for ev, err := range e.client.Follow(e.ctx, id, how.after, notice) {
		if err != nil {
			if e.ctx.Err() != nil {
				return left(e, id)
			}
			return err
		}
		head()
		idle.Stop()
		events.Add(1)
		if ev.Type == state.EntrySubmitted && !e.json {
			idle.Reset(e.idleHint)
		}
		if e.json {
			fmt.Fprintf(e.out, "%s\n", ev.Data)
		} else {
			all.show(root, ev)
		}
		if ev.Type != state.EntryWaiting || ev.Reason == state.WaitingSchedule || ev.Reason == state.WaitingChild {
			continue
		}
		if !e.json {
			if err := showHint(e, id, ev.Version, !how.stopAtWait); err != nil {
				return err
			}
		}
		if how.stopAtWait {
			return exitError(exitWaiting)
		}
	}
	run, err := e.client.Get(e.ctx, id)
	if err != nil {
		if e.ctx.Err() != nil {
			return left(e, id)
		}
		return err
	}
	head()
	if !e.json {
		fmt.Fprintln(e.errs, sum(run))
	}
	if text := unpriced(run); text != "" {
		fmt.Fprintln(e.errs, text)
	}
	return exitOf(run)
}

// left prints that the run continues although the user no longer follows it, and returns the error for the exit code.
func left(e *env, id string) error {
	fmt.Fprintf(e.errs, "\nThe run continues.\n  follow it again: turnpike watch %s\n  end it:          turnpike cancel %s\n", id, id)
	return exitError(130)
}

// sum returns the usage and duration of a run on one line.
func sum(run api.Run) string {
	parts := []string{count(run.TurnCount, "turn"), fmt.Sprintf("%d tokens in, %d out", run.Usage.InputTokens, run.Usage.OutputTokens)}
	if run.Usage.CostUSD != nil {
		parts = append(parts, cost(run.Usage.CostUSD))
	}
	if run.Usage.Estimated {
		parts = append(parts, "in part estimated")
	}
	if !run.FinishedAt.IsZero() {
		parts = append(parts, run.Took(run.CreatedAt.Time, time.Now()).Round(time.Millisecond).String())
	}
	return "  " + strings.Join(parts, " · ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

const (
	// mostFollowed is the maximum number of descendants of a run that are followed.
	mostFollowed = 16

	// patience bounds how long events of a run wait for earlier events of its descendants, which arrive
	// over other connections.
	patience = time.Second
)

// family prints the events of a run and its descendants, one at a time.
type family struct {
	env     *env
	ctx     context.Context //nolint:containedctx // for following descendants
	readers sync.WaitGroup

	mu       sync.Mutex // protects the output and followed
	followed map[state.RunID]bool
}

// member is a run of a family.
type member struct {
	printer  *watch.Printer
	children []<-chan struct{} // each is closed when all events of a child are printed
}

// show prints an event of a run, and follows the child runs that, by this event, the run waits for.
func (f *family) show(m *member, ev api.Event) {
	if ev.Type == state.EntryTransition || ev.Type == state.EntryFinished {
		m.await()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m.printer.Show(ev)
	if ev.Type != state.EntryWaiting || ev.Reason != state.WaitingChild || ev.Waiting == nil {
		return
	}
	for _, call := range ev.Waiting.Calls {
		if call.RunID == "" || call.Needs != state.NeedChild || f.followed[call.RunID] {
			continue
		}
		text := fmt.Sprintf("%s    └ %s %s", m.printer.Indent, call.Tool, call.RunID)
		if len(f.followed) >= mostFollowed {
			fmt.Fprintln(m.printer.Out, text+" (turnpike watch shows it)")
			continue
		}
		fmt.Fprintln(m.printer.Out, text)
		f.followed[call.RunID] = true
		m.children = append(m.children, f.follow(string(call.RunID), m.printer))
	}
}

// follow prints the events of a child run in the background. above is the printer of its parent. The channel is closed
// when all are printed.
func (f *family) follow(id string, above *watch.Printer) <-chan struct{} {
	child := &member{printer: &watch.Printer{Out: above.Out, Colour: above.Colour, Indent: above.Indent + "      "}}
	ended := make(chan struct{})
	f.readers.Go(func() {
		defer close(ended)
		if f.appears(id) != nil {
			return // the events of the parent show the outcome of the child
		}
		for ev, err := range f.env.client.Follow(f.ctx, id, 0, nil) {
			if err != nil {
				return
			}
			f.show(child, ev)
		}
	})
	return ended
}

// appears waits up to a minute until a run exists: a child run is created after the event of its parent that names it.
func (f *family) appears(id string) error {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxElapsedTime(time.Minute))
	return backoff.Retry(func() error {
		_, err := f.env.client.Get(f.ctx, id)
		if p, ok := errors.AsType[*api.Problem](err); err != nil && !(ok && p.Code == api.CodeRunNotFound) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(pause, f.ctx))
}

// await waits until all events of the child runs are printed, for patience at most.
func (m *member) await() {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, ended := range m.children {
		select {
		case <-ended:
		case <-timer.C:
			return
		}
	}
	m.children = nil
}

// unpriced returns a warning if a run's cost limit has no effect because its models have no
// price.
func unpriced(run api.Run) string {
	if run.Budget.CostUSD == nil || run.Usage.CostUSD != nil || run.Usage.ModelCalls == 0 {
		return ""
	}
	return "warning: limits.cost_usd has no effect, since the model has no known price: add its price to the file in TURNPIKE_PRICES of the workers"
}

func exitOf(run api.Run) error {
	switch state.Status(run.Status) {
	case state.Completed:
		return nil
	case state.Incomplete:
		return exitError(exitIncomplete)
	case state.Failed:
		return exitError(exitFailed)
	case state.Cancelled:
		return exitError(exitCancelled)
	default:
		return exitError(exitWaiting)
	}
}
