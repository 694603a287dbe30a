package definition_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// boundLoop is a loop that names itself and its agent.
type boundLoop struct {
	loop.Loop

	is string
}

// loops returns a registry of loops with these names.
func loops(names ...string) loop.Registry {
	r := loop.Registry{}
	for _, name := range names {
		r[name] = func(a *agent.Agent) loop.Loop { return boundLoop{is: name + " of " + a.Definition.Name} }
	}
	return r
}

// A run keeps the loop that it was submitted with, whatever the loop of its agent, until a handoff: from then on it
// has the loop of the agent that is responsible.
func TestLoopOfARun(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	for name, kind := range map[string]string{"first": "", "second": "two_phase", "third": "own"} {
		def, err := json.Marshal(agent.Definition{Name: name, Loop: agent.Loop{Type: kind}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "x"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.PutAgent(t.Context(), state.DefaultTenant, name, def, false); err != nil {
			t.Fatal(err)
		}
	}
	own := loops("react", "two_phase", "reflect", "own")
	for _, test := range []struct {
		submitted string // the agent
		loop      string // of the submission
		active    string // the agent after a handoff; empty: none
		known     loop.Registry
		want      string // a loop, or a part of the error behind a !
	}{
		{"first", "react", "", own, "react of first"},
		{"first", "reflect", "", own, "reflect of first"},
		{"second", "react", "", own, "react of second"},
		{"first", "react", "second", own, "two_phase of second"},
		{"first", "reflect", "third", own, "own of third"},
		{"second", "two_phase", "first", own, "react of first"},
		{"second", "two_phase", "", loops("react", "reflect"), `!this worker has no loop "two_phase", only react, reflect`},
		{"first", "react", "second", loops("react", "reflect"), `!this worker has no loop "two_phase", only react, reflect`},
		{"missing", "react", "", own, "!agent missing version 1"},
		{"first", "react", "missing", own, "!agent missing version 1"},
	} {
		agents := definition.New(store, definition.Config{Loops: test.known, Providers: map[string]model.Provider{"scripted": nil}, Patience: time.Hour})
		s := state.State{Tenant: state.DefaultTenant, Agent: test.submitted, AgentVersion: 1, Loop: test.loop}
		if test.active != "" {
			s.Active = state.AgentRef{Name: test.active, Version: 1}
		}
		got, err := agents.Loop(t.Context(), &s)
		if wrong, fails := strings.CutPrefix(test.want, "!"); fails {
			if _, invalid := errors.AsType[*definition.InvalidError](err); !invalid || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s with %s, then %q: Loop = %v, %v; want an error with %q", test.submitted, test.loop, test.active, got, err, wrong)
			}
		} else if b, _ := got.(boundLoop); b.is != test.want || err != nil {
			t.Errorf("%s with %s, then %q: Loop = %v, %v; want %s", test.submitted, test.loop, test.active, got, err, test.want)
		}
	}
}
