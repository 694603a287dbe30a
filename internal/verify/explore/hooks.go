package explore

import (
	"context"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// guard is a hook as one process reaches it. It allows everything, and returns a note after each response.
type guard struct{ p *process }

// Call implements hook.Hook.
func (g guard) Call(ctx context.Context, r hook.Request) (hook.Answer, error) {
	s := g.p.s
	if r.Point == hook.PreTool {
		s.follows(ctx, g.p, r.Run, "a hook receives a call")
	}
	if r.Point == hook.PostSampling {
		s.checkSeen(r)
	}
	what := string(r.Point)
	if r.Call != nil {
		what += " of " + r.Call.ID
	}
	req := request{name: fmt.Sprintf("%s: ask the hook %s for %s", g.p.name, what, s.short(r.Run)), can: works}
	return ask(ctx, g.p, req, func() (hook.Answer, error) {
		if r.Call != nil {
			s.checkGuarded(r.Run, r.Call.ID)
		}
		if r.Point == hook.PostSampling {
			return hook.Answer{Notes: []string{"seen"}}, nil
		}
		return hook.Answer{}, nil
	})
}

// checkGuarded checks that the call in a hook's request is in the log: the worker journals a response
// before it calls hooks.
func (s *deployment) checkGuarded(run state.RunID, call string) {
	s.guarded[call] = true
	log, err := s.store.Snapshot().Log(run)
	if err == nil && !s.rolledBack && !slices.ContainsFunc(log, func(e state.Entry) bool {
		return e.Message != nil && slices.ContainsFunc(e.Message.Calls(), func(p state.Part) bool { return p.ID == call })
	}) {
		s.violate("I3: a hook receives %s, which is in no response of the log", call)
	}
}

// checkSeen checks a hook's request after a response against the log.
func (s *deployment) checkSeen(r hook.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := s.store.Snapshot().Log(r.Run)
	if err != nil || s.rolledBack {
		return
	}
	if !slices.ContainsFunc(log, func(e state.Entry) bool {
		return e.Type == state.EntryModel && e.Message.Text() == r.Output && slices.EqualFunc(e.Message.Calls(), r.Calls, func(p state.Part, c hook.Call) bool { return p.ID == c.ID })
	}) {
		s.violate("I3: a hook sees %q with %d calls, which no response in the log of %s says", r.Output, len(r.Calls), s.short(r.Run))
	}
}
