package tool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Tool makes calls. It must be safe for concurrent use.
type Tool interface {
	// Call makes one call. It must return when ctx ends: at the timeout, when the run is aborted or interrupted or its
	// deadline passes, and when the worker loses the lease or stops. Call must be safe for concurrent use. If the tool
	// fails, Call returns a Result with IsError, for the model to read. An error means that the outcome is unknown or
	// that the call never started; the model also reads it as an error result (A7).
	Call(ctx context.Context, c Call) (Result, error)
}

// Call is one tool call.
type Call struct {
	Run    state.RunID
	ID     string
	Name   string
	Tenant string
	Agent  string // responsible for the run now: after a handoff not the agent that it was submitted for

	// Metadata is that of the run. The tool must not change it.
	Metadata map[string]string

	// Log is the history of the run up to the response that makes this call, from its last checkpoint on. It may have
	// results of earlier calls of that response. The tool must not change it.
	Log []state.Entry

	// Arguments is a JSON object.
	Arguments json.RawMessage

	// IdempotencyKey is the same for every attempt at this call, and differs for every other call: a tool that
	// deduplicates by it may be called again after a crash. If a probe reported that the key is refused, the repeated
	// call has another key.
	IdempotencyKey string

	// Idempotent reports whether a worker may repeat the call with the same key when the outcome is unknown. Otherwise
	// no worker starts it twice (I4), unless the tool's probe has reported that the first start had no effect, or the
	// call asked a person a question (Resume).
	Idempotent bool

	// Deadline is the time at which the caller stops waiting.
	Deadline time.Time

	// TraceParent is the span of the call as a W3C traceparent, for tools to pass on in their own
	// requests; empty without tracing.
	TraceParent string

	// Resume, if not nil, resumes a call that asked a person a question.
	Resume *Resume

	// MaxResult is the maximum size of Content, in bytes, and the memory that the worker has reserved for it. A tool
	// should hold no more of an answer: see Limit. 0 means the constant MaxResult.
	MaxResult int

	// Grow, if not nil, reserves memory for n more bytes, for images and files. It reports whether they are available;
	// a tool must omit the content otherwise.
	Grow func(n int64) bool

	// Progress, if not nil, reports the progress of the call as text. It may be called from any
	// goroutine until Call returns.
	Progress func(text string)
}

// Ask is a question to a person that a call needs answered before it can continue.
type Ask struct {
	Question string

	// State is all that any worker needs to resume the call, as JSON. The run's checkpoint stores it.
	State json.RawMessage
}

// Resume is the answer to an Ask, with its State.
type Resume struct {
	State  json.RawMessage
	Answer string
}

// Description is a tool's description of itself.
type Description struct {
	Text   string          // effect and use of the tool, for the model; empty if unknown
	Schema json.RawMessage // JSON Schema of the arguments; nil if unknown
}

// Result is the result of a call.
type Result struct {
	Content string
	IsError bool

	// Bytes is the length of the whole answer if Content is only its start; else 0.
	Bytes int

	// Images are for models that accept them. The worker omits those that CheckImages refuses, with a remark.
	Images []state.Image

	// Files are for models that accept them, made by File and UploadedFile, or with a URL. The worker stores the data
	// as files of the run's tenant. It omits, with a remark, those that CheckFiles refuses, ids that are not a file of
	// the tenant, and those that it cannot store.
	Files []state.Part

	// Pending means that the tool has accepted the call and that its result arrives later, as a signal to the run. Only
	// a tool that the agent declares async may set it. Content is then ignored.
	Pending bool

	// Ask, if not nil, means that the call waits for a person. The run waits (waiting_human_input),
	// and the worker then makes the call again with Resume. The rest of the Result is ignored.
	Ask *Ask
}

// Error returns an error result for the model to read.
func Error(text string) Result { return Result{Content: text, IsError: true} }

// Func is a tool in Go.
type Func func(ctx context.Context, c Call) (Result, error)

// Call calls f.
func (f Func) Call(ctx context.Context, c Call) (Result, error) { return f(ctx, c) }

// IdempotencyKey returns a key that identifies one call for deduplication. It depends on the content of the call and
// not on when or where it is made, so it is the same after a crash. The turn is part of it, because providers repeat
// call ids in later turns.
func IdempotencyKey(run state.RunID, turn int, callID, name string, arguments json.RawMessage) string {
	canonical := Canonical(arguments)
	b := make([]byte, 0, 128+len(canonical))
	for _, part := range []string{string(run), strconv.Itoa(turn), callID, name} {
		b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
		b = append(append(b, part...), ',')
	}
	b = append(strconv.AppendInt(b, int64(len(canonical)), 10), ':')
	sum := sha256.Sum256(append(append(b, canonical...), ','))
	return hex.EncodeToString(sum[:])
}

// Batches splits calls into groups to make one after the other: adjacent parallel calls together,
// each serial one alone (A14). It returns indices into names.
func Batches(names []string, serial func(name string) bool) [][]int {
	var batches [][]int
	open := false // whether the last batch accepts another call
	for i, name := range names {
		alone := serial(name)
		if alone || !open {
			batches = append(batches, nil)
		}
		batches[len(batches)-1] = append(batches[len(batches)-1], i)
		open = !alone
	}
	return batches
}

// MaxResult is the largest max_result, in bytes, unless the operator sets another bound.
const MaxResult = 4 << 20

// Limit returns the maximum number of bytes of Content that the caller accepts.
func (c Call) Limit() int {
	if c.MaxResult > 0 {
		return c.MaxResult
	}
	return MaxResult
}

// TooLargeError reports an answer that is larger than Limit, in bytes.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer has more than %d bytes: request less data, or raise max_result of the tool", e.Limit)
}

// LimitBody returns body limited to n bytes: a read of more returns a *TooLargeError.
func LimitBody(body io.ReadCloser, n int64) io.ReadCloser { return &limitedBody{body, n, n} }

type limitedBody struct {
	io.ReadCloser

	limit, left int64
}

func (l *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.ReadCloser.Read(p)
	if int64(n) > l.left {
		return int(l.left), &TooLargeError{l.limit}
	}
	l.left -= int64(n)
	return n, err
}

// AnswerBytes returns a bound for the size of an encoded answer, such as JSON, whose result has at most n bytes.
func AnswerBytes(n int) int64 { return 2*int64(n) + 256<<10 }

// Truncate returns content if it has at most limit bytes, and otherwise its first limit bytes, up to the end of a rune,
// with a note about the cut.
func Truncate(content string, limit int) string { return TruncateOf(content, limit, 0) }

// TruncateOf is Truncate for content that is the start of an answer of size bytes; size 0 means that content is
// complete.
func TruncateOf(content string, limit, size int) string {
	size = max(size, len(content))
	if size <= limit {
		return content
	}
	cut := min(max(limit, 0), len(content))
	// Back to the start of the rune that the limit cuts, if it is a valid rune.
	for i := cut; i < len(content) && i > 0 && i > cut-utf8.UTFMax; i-- {
		if utf8.RuneStart(content[i]) {
			cut = i
			break
		}
	}
	return fmt.Sprintf("%s\n[output truncated: %d of %d bytes]", content[:cut], cut, size)
}
