// Package hookcall calls the hooks of one point, with their time limits, and joins their answers.
package hookcall

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/hook"
)

// Default time-outs.
const (
	DefaultTimeout             = 10 * time.Second
	DefaultPostSamplingTimeout = 5 * time.Second
)

// Bound is a hook as an agent uses it.
type Bound struct {
	Name    string // in errors, which the model may read
	Hook    hook.Hook
	Timeout time.Duration // 0 means the default of the point

	// Objects makes a failure of the hook count as an objection: before a tool it denies the call, and at the input
	// and at a stop it makes the run fail (Answer.Failed). Without it Ask only counts and returns the failure. It has
	// no effect for hooks at the other points, which cannot object, or if the context of Ask has ended.
	Objects bool
}

// Ask calls hooks and returns their combined answer, with the number of failures, and their errors joined. It stops
// waiting for a hook that does not return at its time limit or at the end of ctx; calls then counts that hook until
// it returns. A hook that panics has failed. If ctx ends, the answer may be incomplete and must not be used.
//
// Ask calls input hooks in order until one refuses, and each hook gets the text that the previous ones left. It calls
// pre_tool hooks in order until one denies; approvals add up, and each hook gets the arguments as the previous ones
// edited them. At a stop it calls hooks in order until one blocks or prevents. At these points a failure that counts as
// an objection (Bound.Objects) also ends the sequence. At the other points Ask calls all hooks concurrently, and keeps
// their notes in the order of the hooks.
func Ask(ctx context.Context, calls *timelimit.Calls, hooks []Bound, r hook.Request) (hook.Answer, error) {
	if r.Point == hook.Input || r.Point == hook.PreTool || r.Point == hook.Stop {
		return inOrder(ctx, calls, hooks, r)
	}
	answers, errs := make([]hook.Answer, len(hooks)), make([]error, len(hooks))
	var asked sync.WaitGroup
	for i, h := range hooks {
		asked.Go(func() { answers[i], errs[i] = h.ask(ctx, calls, r) })
	}
	asked.Wait()
	var all hook.Answer
	for i, a := range answers {
		all.Notes = append(all.Notes, a.Notes...)
		if errs[i] != nil {
			all.Failures++
		}
	}
	return all, errors.Join(errs...)
}

func inOrder(ctx context.Context, calls *timelimit.Calls, hooks []Bound, r hook.Request) (hook.Answer, error) {
	var all hook.Answer
	var errs []error
	for _, h := range hooks {
		if ctx.Err() != nil {
			return hook.Answer{}, errors.Join(append(errs, context.Cause(ctx))...)
		}
		a, err := h.ask(ctx, calls, r)
		if err != nil {
			errs = append(errs, err)
			all.Failures++
			if ctx.Err() != nil || !h.Objects {
				continue
			}
			a = objection(r.Point, err)
		}
		all.Approval = all.Approval || a.Approval
		if len(a.Arguments) > 0 && r.Call != nil {
			all.Arguments = a.Arguments
			edited := *r.Call
			edited.Arguments = a.Arguments
			r.Call = &edited
		}
		if a.Replace != nil {
			all.Replace, r.Input = a.Replace, *a.Replace
		}
		all.Refuse, all.Deny, all.Block, all.Prevent, all.Failed = a.Refuse, a.Deny, a.Block, a.Prevent, a.Failed
		if a.Refuse != nil || a.Deny != nil || a.Block != nil || a.Prevent != nil || a.Failed != nil {
			break
		}
	}
	return all, errors.Join(errs...)
}

// objection returns the answer that stands for a failed hook. A model reads the text of a denial.
func objection(p hook.Point, err error) hook.Answer {
	text := err.Error()
	if p == hook.PreTool {
		text += ". Only an operator can repair the hook: continue without this call"
		return hook.Answer{Deny: &text}
	}
	return hook.Answer{Failed: &text}
}

// ask calls one hook within its timeout.
func (b Bound) ask(ctx context.Context, calls *timelimit.Calls, r hook.Request) (hook.Answer, error) {
	timeout := b.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
		if r.Point == hook.PostSampling {
			timeout = DefaultPostSamplingTimeout
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the hook did not answer within its timeout of %s: start or repair the hook, or raise its timeout", timeout))
	defer cancel()
	type outcome struct {
		answer hook.Answer
		err    error
	}
	o, ok := timelimit.Call(ctx, calls, 0, func() (o outcome) {
		defer func() {
			if p := recover(); p != nil {
				o = outcome{err: fmt.Errorf("the hook's program panicked (%v): correct the program", p)}
			}
		}()
		if o.answer, o.err = b.Hook.Call(ctx, r); o.err == nil {
			o.err = o.answer.Check(r.Point)
		}
		return o
	})
	if !ok || o.err != nil && ctx.Err() != nil {
		o.err = context.Cause(ctx)
	}
	if o.err != nil {
		return hook.Answer{}, fmt.Errorf("hook %s failed: %w", b.Name, o.err)
	}
	return o.answer, nil
}
