package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Messages sent to a run before it was cancelled are in its log, marked as undelivered, wherever the abort
// struck. They precede the message that continues the run.
func TestUndeliveredMessages(t *testing.T) {
	t.Parallel()
	say := func(s *deployment, id state.RunID, text string) {
		m := state.UserText(text)
		s.signal(id, state.Signal{ID: text, At: state.At(time.Now()), Message: &m})
	}
	wantMarked := func(t *testing.T, s *deployment, id state.RunID, want ...string) {
		t.Helper()
		log, err := s.store.Log(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var marked []string
		for _, e := range log {
			for _, m := range e.Messages {
				if m.Undelivered && e.Type == state.EntryFinished {
					marked = append(marked, m.Text())
				}
			}
		}
		if !slices.Equal(marked, want) {
			t.Errorf("%q are marked as undelivered, want %q", marked, want)
		}
	}

	t.Run("during a tool", func(t *testing.T) {
		t.Parallel()
		s := newDeployment(t)
		tool := newBlocking()
		s.tools["block"] = tool
		s.work(s.config())
		id := s.submit(state.Limits{}, []agent.Tool{{Name: "block"}}, call("block", "c1"), model.Scripted{Text: "done"})
		<-tool.started
		say(s, id, "one")
		say(s, id, "two")
		s.abort(id)
		s.awaitReason(id, state.EndAbortedTools)
		wantMarked(t, s, id, "one", "two")
		say(s, id, "go on")
		s.awaitReason(id, state.EndCompleted)
		all := strings.Join(s.transcript(id), "\n")
		if i, j, k := strings.Index(all, "user: one"), strings.Index(all, "user: two"), strings.Index(all, "user: go on"); i < 0 || j < i || k < j {
			t.Errorf("the run continues with\n%s", all)
		}
	})

	t.Run("before the turn", func(t *testing.T) {
		t.Parallel()
		s := newDeployment(t)
		id := s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
		say(s, id, "one")
		s.abort(id)
		s.work(s.config())
		s.start(id)
		s.awaitReason(id, state.EndAbortedQueued)
		wantMarked(t, s, id, "one")
	})
}

// cutShort is a provider that has streamed some text when it is cut short.
type cutShort struct{ speaking chan struct{} }

func (p cutShort) Generate(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Response, error) {
	close(p.speaking)
	<-ctx.Done()
	return model.Response{}, &model.Error{Class: model.Cancelled, Streamed: true, Partial: "half an ans", Err: ctx.Err()}
}

// The streamed text of a response that an abort cut short stays in the log, for readers only.
func TestAbortKeepsTheText(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	p := cutShort{make(chan struct{})}
	s.model = p
	s.work(s.config())
	id := s.submit(state.Limits{}, nil, model.Scripted{Text: "unused"})
	<-p.speaking
	s.abort(id)
	s.awaitReason(id, state.EndAbortedStreaming)
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	full := state.FullView(log)
	if last := full[len(full)-1]; last.Text() != "half an ans" || !last.Tombstoned {
		t.Errorf("the last message is %+v", last)
	}
	if view := state.View(log); len(view) != 1 {
		t.Errorf("a model would read %+v", view)
	}
}
