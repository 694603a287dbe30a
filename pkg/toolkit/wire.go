package toolkit

import (
	"encoding/json"
	"time"
)

// Call is what a tool is asked: the body of the request.
type Call struct {
	CallID    string          `json:"call_id"`
	RunID     string          `json:"run_id"`
	Arguments json.RawMessage `json:"arguments"` // a JSON object

	// IdempotencyKey is the same for every attempt at this call and for no other.
	IdempotencyKey string `json:"idempotency_key"`

	// Deadline is when the caller stops listening, by the caller's clock; zero if
	// it does not say.
	Deadline time.Time `json:"deadline,omitzero"`

	// TraceParent is the W3C trace context of the call, from the request's header;
	// empty without tracing.
	TraceParent string `json:"-"`
}

// Reply is the body of the answer: a content, an error, or pending.
type Reply struct {
	Content json.RawMessage `json:"content,omitempty"`
	Images  []Image         `json:"images,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
	Pending bool            `json:"pending,omitempty"`
}

// Image is a picture: data in base64 with its media type, or a URL.
type Image struct {
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// Subject is the subject on which the service of a tool answers.
func Subject(prefix, name string) string { return prefix + ".tool." + name }

// CancelSuffix makes, of the reply subject of a request, the subject of the message
// that says that the caller no longer listens.
const CancelSuffix = ".cancel"

// HeartbeatHeader on a request asks for signs of life: how many milliseconds may
// pass between two. A service that knows it sends, on the reply subject, at once
// and then that often until it replies, a message without a body that has the
// header as well.
const HeartbeatHeader = "Turnpike-Heartbeat"

// TraceHeader on a request is the trace context of the call.
const TraceHeader = "traceparent"

// Keys of a service's metadata.
const (
	MetaDescription = "description"
	MetaSchema      = "schema"
)
