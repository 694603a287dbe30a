package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/keys"
)

// Probe defines the tool that a worker calls to look up the outcome of a call whose worker was lost or stopped. It may
// have any kind that workers call. It receives the arguments and the idempotency key of the call, and returns
// ProbeDone, ProbeNotDone or ProbeUnknown, or their JSON. A worker may call it more than once; it must have no effect,
// except that it may cause the key of the call to be refused from then on. Each of its calls has the time limit of the
// tool.
type Probe struct {
	Name string `json:"name,omitempty"` // "" means the name of the tool plus _probe
	Kind string `json:"kind,omitempty"` // "" means DefaultKind

	// Own is a JSON object of the keys that only tools of this kind have.
	Own json.RawMessage `json:"-"`

	// Listed is the Definition.Listed of the tool that the probe's source expands to.
	Listed any `json:"-"`
}

// probeFields is a Probe without its methods.
type probeFields Probe

var probeKeys = keys.Of(reflect.TypeFor[Probe]())

// MarshalJSON writes the keys of the kind after those of all kinds.
func (p Probe) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(probeFields(p))
	if err != nil {
		return nil, err
	}
	return keys.Join(b, p.Own)
}

// UnmarshalJSON keeps unknown keys in Own, for the kind to decode.
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

// Definition returns the probe of the tool named of as a tool that its kind can call.
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

// Outcome is a probe's finding about a call.
type Outcome string

// The outcomes. A late request may still make a call that is NotDone, unless the probe reports that
// its key is refused.
const (
	Done    Outcome = "done"
	NotDone Outcome = "not_done"
	Unknown Outcome = "unknown"
)

// ProbeAnswer is the decoded result of a probe.
type ProbeAnswer struct {
	Outcome Outcome

	// Result is the result of a call that is Done.
	Result Result

	// Refused reports, for a call that is NotDone, that no later request with its idempotency key has an effect. The
	// worker then starts the call again at once, with another key. Without Refused, NotDone counts only if the probe
	// was called later than the deadline of the call plus a margin, by default 10 seconds; the worker repeats an
	// earlier probe then. If NotDone counts, it starts the call again with the same key. A call is started again only
	// once; after that, NotDone counts as Unknown.
	Refused bool
}

// ProbeDone returns the answer of a probe that the call was made, with result r.
func ProbeDone(r Result) Result {
	return answer(probeJSON{Outcome: Done, Result: quoted(r.Content), IsError: r.IsError}, r)
}

// ProbeNotDone returns the answer of a probe that the call was not made. See ProbeAnswer.Refused.
func ProbeNotDone(refused bool) Result {
	return answer(probeJSON{Outcome: NotDone, Refused: refused}, Result{})
}

// ProbeUnknown returns the answer of a probe that cannot determine the outcome. The worker repeats the probe a few
// times.
func ProbeUnknown() Result { return answer(probeJSON{Outcome: Unknown}, Result{}) }

// probeJSON is the encoding of an answer in the content of a result.
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

func answer(a probeJSON, with Result) Result {
	b, err := json.Marshal(a)
	if err != nil {
		return Error(fmt.Sprintf("the probe's answer cannot be encoded as JSON (%v): return a result that encoding/json accepts", err))
	}
	return Result{Content: string(b), Images: with.Images, Files: with.Files}
}

// ReadProbe decodes the answer of a probe. If the answer is invalid, the error gives the reason and
// the outcome is Unknown.
func ReadProbe(r Result) (ProbeAnswer, error) {
	unknown := ProbeAnswer{Outcome: Unknown}
	switch {
	case r.IsError:
		return unknown, fmt.Errorf("the probe failed: %s", Truncate(r.Content, 200))
	case r.Pending:
		return unknown, errors.New("the probe deferred its answer: make it answer at once")
	case r.Ask != nil:
		return unknown, errors.New("the probe asked a person: make it answer itself")
	}
	var a probeJSON
	if err := json.Unmarshal([]byte(r.Content), &a); err != nil {
		return unknown, fmt.Errorf("the probe's answer is not JSON such as {\"outcome\": \"done\", \"result\": \"sent\"}: %w", err)
	}
	switch a.Outcome {
	case Done:
		if len(a.Result) == 0 {
			return unknown, errors.New("the probe answered the outcome done without a result: add the field result")
		}
		content, err := text(a.Result)
		if err != nil {
			return unknown, err
		}
		return ProbeAnswer{Outcome: Done, Result: Result{Content: content, IsError: a.IsError, Images: r.Images, Files: r.Files}}, nil
	case NotDone:
		return ProbeAnswer{Outcome: NotDone, Refused: a.Refused}, nil
	case Unknown:
		return unknown, nil
	default:
		return unknown, fmt.Errorf("the probe's outcome is %q: answer done, not_done or unknown", Truncate(string(a.Outcome), 40))
	}
}

// text returns a result as the model reads it: text unquoted, anything else as JSON.
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
