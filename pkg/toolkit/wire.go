package toolkit

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/micro"
)

// Call is one call of a tool: the body of the request.
type Call struct {
	CallID    string          `json:"call_id"`
	RunID     string          `json:"run_id"`
	Arguments json.RawMessage `json:"arguments"` // a JSON object

	// IdempotencyKey is the same for every attempt at this call, and differs for every other call.
	IdempotencyKey string `json:"idempotency_key"`

	// Deadline is the time at which the caller stops listening, by the caller's clock; zero if
	// unknown.
	Deadline time.Time `json:"deadline,omitzero"`

	// TraceParent is the W3C trace context of the call, from the request's header; empty without
	// tracing.
	TraceParent string `json:"-"`
}

// Reply is the body of the reply. It has a content, an error, or Pending.
type Reply struct {
	Content json.RawMessage `json:"content,omitempty"`
	Images  []Image         `json:"images,omitempty"`
	Files   []File          `json:"files,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
	Pending bool            `json:"pending,omitempty"`
}

// Image is a picture: data in base64 with its media type, or a URL.
type Image struct {
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// File is a file: data in base64 or a URL, with a media type, or the id of an uploaded file of the run's
// tenant.
type File struct {
	FileID    string `json:"file_id,omitempty"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// DefaultTenant is the tenant whose subjects begin with the prefix alone.
const DefaultTenant = "default"

// Root returns the prefix of the subjects of a tenant's services: prefix for the default tenant, also if its name is
// empty, and <prefix>.t.<tenant> for others.
func Root(prefix, tenant string) string {
	if tenant == "" || tenant == DefaultTenant {
		return prefix
	}
	return prefix + ".t." + tenant
}

// Subject returns the subject on which the service of a tool answers. root is the Root of its tenant.
func Subject(root, name string) string { return root + ".tool." + name }

// discoveryRoot returns the prefix of the requests that discover the services of a tenant. For the default tenant it is
// $SRV of NATS micro: any client that may subscribe to it can pose as a tool.
func discoveryRoot(prefix, tenant string) string {
	if root := Root(prefix, tenant); root != prefix {
		return root + ".srv"
	}
	return micro.APIPrefix
}

// DiscoverySubject returns the subject of a request to all services of a tenant.
func DiscoverySubject(verb micro.Verb, prefix, tenant string) string {
	return discoveryRoot(prefix, tenant) + "." + verb.String()
}

// CancelSuffix, appended to the reply subject of a request, is the subject of the message that
// cancels it.
const CancelSuffix = ".cancel"

// HeartbeatHeader on a request asks for heartbeats: its value is their interval in milliseconds. A service that
// supports them sends a message without a body on the reply subject at once, and then at that interval, but not more
// often than every 50 ms, until it replies. Each heartbeat also has the header.
const HeartbeatHeader = "Turnpike-Heartbeat"

// ProgressHeader on a heartbeat has the progress of the call, as a JSON string on one line.
const ProgressHeader = "Turnpike-Progress"

// TraceHeader on a request is the trace context of the call.
const TraceHeader = "traceparent"

// Keys of a service's metadata.
const (
	MetaDescription = "description"
	MetaSchema      = "schema"
)
