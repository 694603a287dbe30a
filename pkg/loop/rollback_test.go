package loop_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A turn can be withdrawn until one of its calls may have started.
func TestEffectsStarted(t *testing.T) {
	t.Parallel()
	turn := func(say model.Response, finish ...loop.ToolResult) (committed state.State, log []state.Entry) {
		t.Helper()
		r := start(t, agent.Definition{Tools: tools(plain, gated, client)}, state.Limits{})
		committed = r.s
		r.begin(loop.TurnBegan{})
		r.respond(say)
		if len(finish) > 0 {
			r.finishTools(finish...)
		}
		if r.s.Version > committed.Version {
			committed = r.s
		}
		return committed, r.s.Log
	}
	in := func(s state.State, status state.Status) state.State {
		s.Status = status
		return s
	}
	fresh := start(t, agent.Definition{}, state.Limits{}).s
	recorded, journaled := turn(calls("t {}"))
	approval, waits := turn(calls(`refund {"amount":500}`))
	unknown, refused := turn(calls(`refund {"amount":500}`, "nothing {}"))
	half, made := turn(calls("t {}", `refund {"amount":500}`), ok("c1", "42"))
	handed, there := turn(calls("pick {}"))
	answered, answer := turn(text("done"))
	for name, c := range map[string]struct {
		s    state.State
		log  []state.Entry
		want bool
	}{
		"queued":                              {fresh, fresh.Log, false},
		"the model is called":                 {in(fresh, state.Running), fresh.Log, false},
		"a response with a call is recorded":  {in(recorded, state.Running), journaled, true},
		"an answer is recorded":               {in(fresh, state.Running), append(fresh.Log[:1:1], answer[1]), false},
		"a call waits for approval":           {approval, waits, false},
		"the call is approved":                {in(approval, state.Queued), waits, true},
		"a worker may make the approved call": {in(approval, state.Running), waits, true},
		"another call could never run":        {unknown, refused, false},
		"another call has a result":           {half, made, true},
		"a client makes the call":             {handed, there, true},
		"the run has ended":                   {answered, answer, false},
	} {
		if got := loop.EffectsStarted(c.s, c.log); got != c.want {
			t.Errorf("%s: EffectsStarted = %t, want %t (%s)", name, got, c.want, c.s.Status)
		}
	}
}
