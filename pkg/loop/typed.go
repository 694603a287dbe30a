package loop

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Codec stores a loop's own S in a run, as JSON in state.LoopState, which no other code
// interprets. Loops made of Rules use it through Typed. The zero value is ready to use.
type Codec[S any] struct {
	// Version of the layout of S. Raise it if the new code would misread stored data: a
	// worker with an older version leaves the run to other workers.
	Version int

	// New returns the initial S of a run. A loop also starts with it after a user message that continues an
	// ended run or interrupts a turn, and after a handoff. Nil means the zero S.
	New func(s state.State) S

	// Upgrade reads data that an older version stored. Nil reads it like data of this
	// version.
	Upgrade func(version int, data json.RawMessage) (S, error)
}

// StateError reports that a loop cannot read its own state in a run. It is a
// state.ErrFormat if a newer version of the loop has stored that state.
type StateError struct {
	Loop    string
	Version int // of what is stored
	Knows   int // the version of this loop
	Err     error
}

func (e *StateError) Error() string {
	return fmt.Sprintf("loop %s: the run's loop state has version %d, and the loop of this worker reads version %d: upgrade the worker if the stored version is newer, else let the loop's Upgrade read it: %v", e.Loop, e.Version, e.Knows, e.Err)
}

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// Decode returns the loop's own state in s, or the initial one if s has none. The error is a *StateError.
func (c Codec[S]) Decode(s state.State) (own S, err error) {
	l := s.LoopState
	switch {
	case l.IsZero():
		if c.New != nil {
			own = c.New(s)
		}
		return own, nil
	case l.Version > c.Version:
		err = state.ErrFormat
	case l.Version < c.Version && c.Upgrade != nil:
		own, err = c.Upgrade(l.Version, l.Data)
	default:
		err = json.Unmarshal(l.Data, &own)
	}
	if err != nil {
		return own, &StateError{Loop: s.Loop, Version: l.Version, Knows: c.Version, Err: err}
	}
	return own, nil
}

// Encode returns s with own as its loop state. It stores nothing if New is nil and own encodes to
// an empty object.
func (c Codec[S]) Encode(s state.State, own S) (state.State, error) {
	data, err := json.Marshal(own)
	if err != nil {
		return s, fmt.Errorf("loop %s: encode its loop state: %w", s.Loop, err)
	}
	if s.LoopState = (state.LoopState{Version: c.Version, Data: data}); c.New == nil && string(data) == "{}" {
		s.LoopState = state.LoopState{}
	}
	return s, nil
}

// Typed defines the Rules of a loop that keeps state of type S. Its functions are those of Rules, and each also
// gets the current state. Functions that decide may change it, and the commit of the turn stores it with the
// decision. If the worker is lost before the commit, another worker calls the loop again with the state of the
// previous commit.
type Typed[S any] struct {
	Codec[S]

	Prompt      func(t *Turn, own S) CallModel
	Read        func(t *Turn, own S, r model.Response) model.Response
	BeforeTools func(t *Turn, own S)
	OnAnswer    func(t *Turn, own *S, text string) Decision
	AfterTools  func(t *Turn, own *S) Decision
}

// Rules returns the rules for New; callers may add conditions to them.
func (l Typed[S]) Rules() Rules {
	var r Rules
	if l.Prompt != nil {
		r.Prompt = func(t *Turn) (ask CallModel) {
			l.with(t, func(own S) { ask = l.Prompt(t, own) })
			return ask
		}
	}
	if l.Read != nil {
		r.Read = func(t *Turn, resp model.Response) model.Response {
			l.with(t, func(own S) { resp = l.Read(t, own, resp) })
			return resp
		}
	}
	if l.BeforeTools != nil {
		r.BeforeTools = func(t *Turn) { l.with(t, func(own S) { l.BeforeTools(t, own) }) }
	}
	if l.OnAnswer != nil {
		r.OnAnswer = func(t *Turn, text string) Decision {
			return l.decide(t, func(own *S) Decision { return l.OnAnswer(t, own, text) })
		}
	}
	if l.AfterTools != nil {
		r.AfterTools = func(t *Turn) Decision {
			return l.decide(t, func(own *S) Decision { return l.AfterTools(t, own) })
		}
	}
	return r
}

// Loop returns the loop for an agent: it is the Factory that a Registry takes.
func (l Typed[S]) Loop(a *agent.Agent) Loop { return New(a, l.Rules()) }

// with calls fn with the loop's own state. If it cannot read that state, it gives up the turn and does not call
// fn.
func (l Typed[S]) with(t *Turn, fn func(S)) {
	own, err := l.Decode(t.s)
	if err != nil {
		t.err = err
		return
	}
	fn(own)
}

// decide is with for a function that decides, and stores the changes of the function.
func (l Typed[S]) decide(t *Turn, fn func(*S) Decision) Decision {
	var d Decision
	l.with(t, func(own S) {
		d = fn(&own)
		*d.Next, t.err = l.Encode(*d.Next, own)
	})
	return d
}
