package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Provider calls one kind of model. It must be safe for concurrent use. turnpiketest.Provider tests an implementation.
type Provider interface {
	// Generate makes one model call, streaming, and returns the whole response. It calls onDelta, if not nil, for each
	// piece as it arrives, from the calling goroutine. It must not send the same request again: the worker retries the
	// call, with Retry.
	//
	// The error is a *Error, or wraps one. The response then has the model and the usage as far as the provider had
	// reported them, with Usage.Estimated unless they are final. With an error of class Cancelled it also has the tool
	// calls that had arrived completely. Generate never returns a partial call.
	Generate(ctx context.Context, r Request, onDelta func(Delta)) (Response, error)
}

// Cancelable is a Provider whose Generate returns soon after its context has ended, whatever the server does. A
// worker calls it on the goroutine of the turn, which saves the memory of another goroutine. It calls any other
// provider on a separate goroutine, which it can abandon.
//
// Self returns the provider itself. A type that embeds a provider and overrides Generate differs from the result of
// Self, so it does not count as cancelable.
type Cancelable interface {
	Provider
	Self() Provider
}

// IsCancelable reports whether p itself is Cancelable: whether Self returns p.
func IsCancelable(p Provider) bool {
	s, ok := p.(Cancelable)
	return ok && s.Self() == p
}

// Request is a request to a model.
type Request struct {
	// Run is the run that makes the call. Call is the number of earlier model calls of the run, including failed ones.
	Run  state.RunID
	Call int

	Model           string // the provider's name of the model
	Messages        []state.Message
	Shared          int // bytes of the system message that other runs of the agent share; 0 means all, -1 none
	Tools           []ToolSpec
	ProviderTools   []ProviderTool // tools that the provider runs during the call
	MaxOutputTokens int64          // 0 means the provider's default
	Reasoning       Effort
	OutputSchema    json.RawMessage

	// Settings are those of the model. ToolChoice is that of this call.
	Settings

	// LongWait means that the next call of the run is expected 5 to 60 minutes later. CacheAuto depends on it.
	LongWait bool

	API     API    // empty means the provider's default
	BaseURL string // empty means the provider's own
	APIKey  string

	// Responses are those of a scripted model.
	Responses []Scripted
}

// API names one of several APIs of a provider.
type API string

// The APIs of OpenAI.
const (
	APIResponses API = "responses"
	APIChat      API = "chat"
)

// ToolSpec is a tool that a model can call.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments; never empty
}

// Delta is a piece of a response in flight.
type Delta struct {
	Text     string `json:"text,omitempty"`
	Thinking string `json:"thinking,omitempty"`

	// Index, CallID, Name and Arguments describe a piece of a tool call. Index identifies the call in the response. The
	// first piece has CallID and Name.
	Index     int    `json:"index,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

// Len returns the number of bytes of the response in the piece.
func (d Delta) Len() int { return len(d.Text) + len(d.Thinking) + len(d.Name) + len(d.Arguments) }

// Stop is the reason why a model stopped. It is informative: whether a turn continues depends only
// on the tool calls in the response (A3).
type Stop string

// The stop reasons.
const (
	StopEnd             Stop = "end"
	StopToolCalls       Stop = "tool_calls"
	StopMaxOutputTokens Stop = "max_output_tokens"
	StopRefusal         Stop = "refusal"
	StopContentFilter   Stop = "content_filter"
	StopPause           Stop = "pause"
)

// Response is the answer of a model.
type Response struct {
	Parts    []state.Part
	Stop     Stop
	Usage    state.Usage
	Model    string // the name that the provider reports
	Provider string

	// Cache is the lifetime that the request asked of the provider's prompt cache; empty if it asked for none.
	Cache Cache
}

// Class is the kind of a failure, which determines the remedy.
type Class string

// The classes of failure.
const (
	PromptTooLong  Class = "prompt_too_long"
	RateLimited    Class = "rate_limited"
	Overloaded     Class = "overloaded"
	Quota          Class = "quota"
	InvalidRequest Class = "invalid_request"
	Auth           Class = "auth"
	ContentFilter  Class = "content_filter"
	Transport      Class = "transport"
	Timeout        Class = "timeout"
	Cancelled      Class = "cancelled"
	Exhausted      Class = "script_exhausted"
)

// Retryable reports whether the same request may succeed later.
func (c Class) Retryable() bool {
	return c == RateLimited || c == Overloaded || c == Transport || c == Timeout
}

// Error is a classified failure of a model call.
type Error struct {
	Class      Class
	Provider   string
	Status     int           // of HTTP; 0 without a response
	RetryAfter time.Duration // time to wait before a retry; 0 means unknown
	Message    string        // the provider's text, without secrets
	Err        error

	// Streamed means that onDelta has received pieces of the response. Retry does not retry then, because it would
	// repeat the pieces within the same attempt.
	Streamed bool

	// Partial is the text of the response that had arrived. It is withdrawn: no model reads it (A12).
	Partial string

	// Received is the number of bytes of the response that had arrived, including reasoning and the
	// arguments of calls; 0 if the provider does not count them.
	Received int
}

// Served reports whether the provider may have worked on the response, and may charge for it: the request had reached
// the provider, and the provider had not refused it.
func (e *Error) Served() bool {
	switch {
	case e.Streamed || e.Received > 0 || e.Partial != "":
		return true
	case e.Class == Timeout || e.Class == Cancelled:
		return true
	default:
		return e.Class == Transport && (errors.Is(e.Err, io.EOF) || errors.Is(e.Err, io.ErrUnexpectedEOF) || errors.Is(e.Err, syscall.ECONNRESET))
	}
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("model call: %s (HTTP %d): %s", e.Class, e.Status, e.Message)
	}
	return fmt.Sprintf("model call: %s: %s", e.Class, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// Scripted is one response of a scripted model, as in an agent's definition.
type Scripted struct {
	Text      string         `json:"text,omitempty"`
	Thinking  string         `json:"thinking,omitempty"`
	ToolCalls []ScriptedCall `json:"tool_calls,omitempty"`

	// ProviderTools are uses of tools that the provider runs, before the text.
	ProviderTools []ScriptedUse `json:"provider_tools,omitempty"`

	// Stop is max_output_tokens or refusal; empty means tool_calls with ToolCalls, else end.
	Stop  Stop           `json:"stop,omitempty"`
	Usage *ScriptedUsage `json:"usage,omitempty"`
	Delay Duration       `json:"delay,omitempty"`

	// Error makes the call fail: rate_limited, overloaded, prompt_too_long,
	// invalid_request, auth or transport.
	Error      Class    `json:"error,omitempty"`
	RetryAfter Duration `json:"retry_after,omitempty"`

	// Show is ShowSettings or empty. With ShowSettings the text of the answer lists the settings of
	// the call.
	Show string `json:"show,omitempty"`
}

// ShowSettings makes a scripted model answer with the settings of its call, as a JSON object.
const ShowSettings = "settings"

// ScriptedCall is a tool call of a scripted response. Without an ID it gets one from its position.
type ScriptedCall struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// ScriptedUse is a use of a provider's tool in a scripted response. Its result is an error if the request
// lacks the tool or all its uses are spent.
type ScriptedUse struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    string          `json:"result,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

// Text returns the arguments as the model produces them: see ScriptedCall.Text.
func (u ScriptedUse) Text() string { return ScriptedCall{Arguments: u.Arguments}.Text() }

// ScriptedUsage is the usage that a scripted response reports. InputTokens include the cached tokens.
type ScriptedUsage struct {
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CacheReadTokens  int64 `json:"cache_read_tokens,omitempty"`
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
}

// Text returns the arguments byte for byte as the model produces them: the content of a JSON string, any other JSON
// unchanged, or {} without arguments.
func (c ScriptedCall) Text() string {
	var quoted string
	switch {
	case len(c.Arguments) == 0 || string(c.Arguments) == "null":
		return "{}"
	case json.Unmarshal(c.Arguments, &quoted) == nil:
		return quoted
	default:
		return string(c.Arguments)
	}
}

// Duration is a time.Duration that encodes as text, such as "1.5s" or "10m0s".
type Duration time.Duration

// maxSeconds is the maximum of a duration that is a number.
const maxSeconds = 1_000_000_000

// MarshalJSON encodes d in the form of time.Duration.String.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON decodes a text such as "30s", or a number of seconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		v, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("duration %.80q is not valid: write one such as \"30s\", \"10m\" or \"1h30m\", of at most 2562047h", text)
		}
		*d = Duration(v)
		return nil
	}
	var seconds float64
	if err := json.Unmarshal(b, &seconds); err != nil || seconds != seconds || seconds > maxSeconds || seconds < -maxSeconds {
		return fmt.Errorf("duration %.80s is not valid: write one such as \"30s\", \"10m\" or \"1h30m\", or a number of seconds up to %d", b, maxSeconds)
	}
	*d = Duration(seconds * float64(time.Second))
	return nil
}
