package worker_test

import (
	"context"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lingering is a store whose worker takes long to note that it has announced a run
// that was aborted.
type lingering struct {
	state.Store

	entered, release chan struct{}
}

func (l lingering) Announced(ctx context.Context, id state.RunID, seq int64) error {
	if st, err := l.Load(ctx, id); err == nil && st.Status == state.Cancelled {
		l.entered <- struct{}{}
		<-l.release
	}
	return l.Store.Announced(ctx, id, seq)
}

// I7: an abort ends the turn that it struck. A run that is continued at once is not
// struck again because the worker of that turn still tidies up.
func TestAbortIsNotKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := lingering{s.store, make(chan struct{}, 8), make(chan struct{})}
	slow := newBlocking()
	s.tools["slow"] = slow
	s.workOn(store, s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "slow"}}, call("slow", "c1"), model.Scripted{Text: "end"})
	<-slow.started
	if _, err := s.store.Abort(t.Context(), id, "enough", s.grace()); err != nil {
		t.Fatal(err)
	}
	if err := s.bus.PublishAbort(t.Context(), id, "enough"); err != nil {
		t.Fatal(err)
	}
	<-store.entered
	said := state.UserText("go on")
	s.signal(id, state.Signal{ID: "m", Message: &said})
	st := s.await(id, "an end", func(st state.State) bool { return st.Version > 2 && st.Status.Terminal() })
	close(store.release)
	if st.Transition.Reason != state.EndCompleted {
		t.Errorf("the run that was continued ended %s", st.Transition.Reason)
	}
}
