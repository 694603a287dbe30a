package load

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// asks is an agent whose model is the server's of that name.
func (s *deployment) asks(name, more string) string {
	return fmt.Sprintf("model: {provider: openai, name: %s, base_url: %q, api_key: \"secret://%s\"}\n%s", name, s.model.url, modelKey, more)
}

func manyRuns(ctx context.Context, s *deployment, n int) error {
	if err := s.define(ctx, "work", `
model: {provider: scripted, responses: [{tool_calls: [{name: echo, arguments: {n: 1}}]}, {text: done}]}
tools: [{name: echo, kind: nats, idempotent: true}]`); err != nil {
		return err
	}
	batches, _, err := s.submitMany(ctx, "work", n)
	if err != nil {
		return err
	}
	return s.reach(ctx, batches, state.Completed)
}

// manyTurns ends only if the one worker has n turns in flight at a time: no model call
// is answered before.
func manyTurns(ctx context.Context, s *deployment, n int) error {
	full := s.model.hold(n)
	if err := s.define(ctx, "once", s.asks("once", "")); err != nil {
		return err
	}
	batches, _, err := s.submitMany(ctx, "once", n)
	if err != nil {
		return err
	}
	select {
	case <-full:
	case <-time.After(patience):
		return fmt.Errorf("the worker never had %d turns in flight", n)
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.reach(ctx, batches, state.Completed)
}

// answered is the number of waiting runs that are answered in the end.
const answered = 1000

func manyWaiting(ctx context.Context, s *deployment, n int) error {
	if err := s.define(ctx, "asks", `
model: {provider: scripted, responses: [{tool_calls: [{name: ask, arguments: {question: "well?"}}]}, {text: done}]}
tools: [{name: ask, kind: human}]`); err != nil {
		return err
	}
	batches, runs, err := s.submitMany(ctx, "asks", n)
	if err != nil {
		return err
	}
	if err := s.reach(ctx, batches, state.Waiting); err != nil {
		return err
	}
	// The answers come later, and the worker is another one then.
	s.restarted = s.Workers[0]
	s.restarted.Kill(0)
	var all errgroup.Group
	all.SetLimit(16)
	for i := range min(n, answered) {
		id := runs[i*len(runs)/min(n, answered)]
		all.Go(func() error {
			text := "go on"
			if _, err := s.Client.Signal(ctx, id, api.SignalRequest{Answer: &text}); err != nil {
				return err
			}
			return rig.Until(ctx, patience, "an answered run completes", func(ctx context.Context) error {
				run, err := s.Client.Get(ctx, id)
				if err == nil && !run.Terminal() {
					return fmt.Errorf("run %s is %s", id, run.Status)
				}
				if err == nil && run.Status != string(state.Completed) {
					s.fail("run %s is %s: %v", id, run.Status, run.Error)
				}
				return err
			})
		})
	}
	return all.Wait()
}

func longRun(ctx context.Context, s *deployment, n int) error {
	if err := s.define(ctx, "steps", s.asks("steps", "loop: {type: react, max_turns: 200}\ntools: [{name: echo, kind: nats, idempotent: true}]\n")); err != nil {
		return err
	}
	run, err := s.submit(ctx, "steps")
	if err != nil {
		return err
	}
	for {
		if run, err = s.end(ctx, run.ID); err != nil || run.TurnCount >= n || run.Status != string(state.Completed) {
			break
		}
		if run, err = s.Client.Signal(ctx, run.ID, api.SignalRequest{Message: json.RawMessage(`"go on"`)}); err != nil {
			break
		}
	}
	if err == nil && run.TurnCount < n {
		s.fail("run %s has taken %d turns", run.ID, run.TurnCount)
	}
	return err
}

const pagesAgent = "loop: {type: react, max_turns: 200}\ntools: [{name: page, kind: nats, idempotent: true}]\n"

func longHistory(ctx context.Context, s *deployment, n int) error {
	if err := s.define(ctx, "pages", s.asks("pages", pagesAgent)); err != nil {
		return err
	}
	run, err := s.submit(ctx, "pages")
	if err != nil {
		return err
	}
	if run, err = s.end(ctx, run.ID); err != nil {
		return err
	}
	if size := s.model.largest.Load(); size < int64(n)*9/10 {
		s.fail("the model was sent %d bytes at most", size)
	}
	// Several people look at it at a time.
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			messages, err := s.Client.Messages(ctx, run.ID)
			if err == nil && len(messages) < n/pageSize {
				s.fail("%d messages are read", len(messages))
			}
			return err
		})
	}
	return all.Wait()
}

// The readers share readRuns runs, whose events have readPages pages each.
const (
	readRuns  = 5
	readPages = 20
)

func manyReaders(ctx context.Context, s *deployment, n int) error {
	if err := s.define(ctx, "read", `
model: {provider: scripted, responses: [{tool_calls: [{name: ask, arguments: {question: "all here?"}}]}, `+strings.Repeat("{tool_calls: [{name: page}]}, ", readPages)+`{text: done}]}
tools: [{name: ask, kind: human}, {name: page, kind: nats, idempotent: true, reuse: false}]
loop: {type: react, max_turns: 100, tool_loop_threshold: 100}`); err != nil {
		return err
	}
	batches, ids, err := s.submitMany(ctx, "read", readRuns)
	if err != nil {
		return err
	}
	if err := s.reach(ctx, batches, state.Waiting); err != nil {
		return err
	}
	ended := make(chan struct{})
	var open, all sync.WaitGroup
	for i := range n {
		r := &reader{s: s, id: ids[i%len(ids)], opened: sync.OnceFunc(open.Done)}
		if i%2 == 1 {
			r.slow = ended
		}
		open.Add(1)
		all.Go(func() { r.read(ctx) })
	}
	open.Wait()
	for _, id := range ids {
		text := "yes"
		if _, err := s.Client.Signal(ctx, id, api.SignalRequest{Answer: &text}); err != nil {
			return err
		}
	}
	if err := s.reach(ctx, batches, state.Completed); err != nil {
		return err
	}
	close(ended)
	all.Wait()
	return ctx.Err()
}
