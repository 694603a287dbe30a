package api

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The types of events in GET /v1/events.
const (
	// ChangesOpen begins the changes of a connection: the reader receives the latest state of each run that changes
	// after it, but not every state in between. After a reconnection, changes that the reader has missed may precede
	// it.
	ChangesOpen = "stream.open"

	// RunChanged reports the state of a run.
	RunChanged = "run.changed"

	// RunDeleted reports that a run was deleted. Readers receive it whatever their filter, because the properties of
	// the run are no longer known.
	RunDeleted = "run.deleted"

	// ChangesLost reports that the reader may have missed changes: a reader that shows a list must read it again.
	ChangesLost = "stream.reset"
)

// Change is one event of GET /v1/events. Run is a summary (see [Run.Summary]), set only for RunChanged. RunID is set
// only for RunDeleted.
type Change struct {
	Type  string     `json:"type"`
	At    state.Time `json:"at"`
	Run   *Run       `json:"run,omitempty"`
	RunID string     `json:"run_id,omitempty"`
}

// Limits of a summary: bytes of a text, bytes of JSON, and number of calls.
const (
	summaryText  = 400
	summaryJSON  = 1000
	summaryCalls = 10
)

// Summary returns a shortened copy of the run, for lists. The output, the detail of the transition, the texts
// of its wait, the error and each metadata value are cut after at most 400 bytes, and an ellipsis follows the cut.
// Structured output, variables and arguments of calls above 1,000 bytes become null. At most 10 waiting calls
// remain.
func (r Run) Summary() Run {
	r.Output = brief(r.Output)
	r.StructuredOutput, r.Variables = briefJSON(r.StructuredOutput), briefJSON(r.Variables)
	r.Transition.Detail = cut(r.Transition.Detail)
	if r.Error != nil {
		e := *r.Error
		e.Message = cut(e.Message)
		r.Error = &e
	}
	if long(r.Metadata) {
		r.Metadata = maps.Clone(r.Metadata)
		for k, v := range r.Metadata {
			r.Metadata[k] = cut(v)
		}
	}
	if r.Waiting != nil {
		w := *r.Waiting
		w.Question = brief(w.Question)
		w.Calls = append([]WaitCall{}, w.Calls[:min(len(w.Calls), summaryCalls)]...)
		for i := range w.Calls {
			w.Calls[i].Message = cut(w.Calls[i].Message)
			w.Calls[i].Arguments = briefJSON(w.Calls[i].Arguments)
			if again := w.Calls[i].Again; again != nil {
				short := *again
				short.OriginalArguments = briefJSON(short.OriginalArguments)
				w.Calls[i].Again = &short
			}
		}
		r.Waiting = &w
	}
	return r
}

func long(texts map[string]string) bool {
	for _, v := range texts {
		if len(v) > summaryText {
			return true
		}
	}
	return false
}

func brief(text *string) *string {
	if text == nil || len(*text) <= summaryText {
		return text
	}
	short := cut(*text)
	return &short
}

func cut(text string) string {
	if len(text) <= summaryText {
		return text
	}
	return strings.ToValidUTF8(text[:summaryText], "") + "…"
}

func briefJSON(value json.RawMessage) json.RawMessage {
	if len(value) <= summaryJSON {
		return value
	}
	return json.RawMessage("null")
}
