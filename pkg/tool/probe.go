package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Probe is who knows what became of a call whose worker was lost: a tool of any kind
// whose calls the worker makes. It gets the arguments and the idempotency key of the
// call, as the tool got them, and answers with ProbeDone, ProbeNotDone or ProbeUnknown,
// or their JSON. It may be asked more than once, and must change nothing but which keys
// are refused. Each question has the time limit of the tool.
type Probe struct {
	Name string `json:"name,omitempty"` // "" is the name of the tool with _probe behind it
	Kind string `json:"kind,omitempty"` // "" is DefaultKind

	// Own is a JSON object of the keys that only tools of this kind have.
	Own json.RawMessage `json:"-"`

	// Listed is Definition.Listed of the one tool for which a source stands.
	Listed any `json:"-"`
}

// probeFields are a Probe without its methods.
type probeFields Probe

var probeKeys = keys.Of(reflect.TypeFor[Probe]())

// MarshalJSON writes the keys of the kind behind those of all kinds.
func (p Probe) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(probeFields(p))
	if err != nil {
		return nil, err
	}
	return keys.Join(b, p.Own)
}

// UnmarshalJSON keeps the keys that it does not know in Own, for the kind to read.
func (p *Probe) UnmarshalJSON(b []byte) error {
	var f probeFields
	err := json.Unmarshal(b, &f)
	if err != nil {
		return err
	}
	if f.Own, err = keys.Rest(b, probeKeys); err != nil {
		return err
	}
	*p = Probe(f)
	return nil
}

// Definition returns the probe of a tool as a tool that its kind can call.
func (p Probe) Definition(of string) Definition {
	d := Definition{Name: p.Name, Kind: p.Kind, Own: p.Own, Listed: p.Listed}
	if d.Name == "" {
		d.Name = of + "_probe"
	}
	if d.Kind == "" {
		d.Kind = DefaultKind
	}
	return d
}

// Outcome is what a probe says of a call.
type Outcome string

// The outcomes. A call that is NotDone may still be done, by a request that is late,
// unless the probe says that its key is refused.
const (
	Done    Outcome = "done"
	NotDone Outcome = "not_done"
	Unknown Outcome = "unknown"
)

// ProbeAnswer is what a probe has answered.
type ProbeAnswer struct {
	Outcome Outcome

	// Result of a call that is Done.
	Result Result

	// Refused says of a call that is NotDone that a request with its idempotency key
	// does nothing from now on, whenever it arrives. Then the call is started again at
	// once, with another key; otherwise not before its deadline has passed.
	Refused bool
}

// ProbeDone is the answer that the call was made, and came to r.
func ProbeDone(r Result) Result {
	return answer(probeJSON{Outcome: Done, Result: quoted(r.Content), IsError: r.IsError}, r.Images)
}

// ProbeNotDone is the answer that the call was not made. See ProbeAnswer.Refused.
func ProbeNotDone(refused bool) Result {
	return answer(probeJSON{Outcome: NotDone, Refused: refused}, nil)
}

// ProbeUnknown is the answer of a probe that cannot say. It is asked again, a few times.
func ProbeUnknown() Result { return answer(probeJSON{Outcome: Unknown}, nil) }

// probeJSON is an answer as it travels: the content of a result.
type probeJSON struct {
	Outcome Outcome         `json:"outcome"`
	Result  json.RawMessage `json:"result,omitempty"` // a text, or any JSON
	IsError bool            `json:"is_error,omitempty"`
	Refused bool            `json:"refused,omitempty"`
}

func quoted(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(`""`) // a string always encodes
	}
	return b
}

func answer(a probeJSON, images []state.Image) Result {
	b, err := json.Marshal(a)
	if err != nil {
		return Error(fmt.Sprintf("encode the answer of a probe: %v", err))
	}
	return Result{Content: string(b), Images: images}
}

// ReadProbe returns what a probe has answered. The error says what is wrong with an
// answer that is none: its outcome is Unknown.
func ReadProbe(r Result) (ProbeAnswer, error) {
	unknown := ProbeAnswer{Outcome: Unknown}
	switch {
	case r.IsError:
		return unknown, fmt.Errorf("it failed: %s", Truncate(r.Content, 200))
	case r.Pending:
		return unknown, errors.New("it answered that its answer comes later")
	case r.Ask != nil:
		return unknown, errors.New("it asked a person")
	}
	var a probeJSON
	if err := json.Unmarshal([]byte(r.Content), &a); err != nil {
		return unknown, fmt.Errorf("want JSON such as {\"outcome\": \"done\", \"result\": …}: %w", err)
	}
	switch a.Outcome {
	case Done:
		if len(a.Result) == 0 {
			return unknown, errors.New("the outcome is done, and there is no result")
		}
		content, err := text(a.Result)
		if err != nil {
			return unknown, err
		}
		return ProbeAnswer{Outcome: Done, Result: Result{Content: content, IsError: a.IsError, Images: r.Images}}, nil
	case NotDone:
		return ProbeAnswer{Outcome: NotDone, Refused: a.Refused}, nil
	case Unknown:
		return unknown, nil
	default:
		return unknown, fmt.Errorf("the outcome %q is not one of done, not_done, unknown", Truncate(string(a.Outcome), 40))
	}
}

// text is a result as the model reads it: a text as it is, anything else as JSON.
func text(raw json.RawMessage) (string, error) {
	if strings.HasPrefix(string(raw), `"`) {
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	return b.String(), err
}
