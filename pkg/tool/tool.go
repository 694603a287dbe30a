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

// Tool runs calls. It may be called from any goroutine.
type Tool interface {
	// Call runs one call. It honours ctx: an abort, a timeout and a lost lease
	// all end it. A failure of the tool is a Result with IsError, for the model to
	// read; an error means that the outcome is unknown or that the call never
	// started, and becomes an error result too (A7).
	Call(ctx context.Context, c Call) (Result, error)
}

// Call is one tool call.
type Call struct {
	Run    state.RunID
	ID     string
	Name   string
	Tenant string

	// Arguments is a JSON object.
	Arguments json.RawMessage

	// IdempotencyKey is the same for every attempt at this call and for no other
	// call: a tool that honours it may be called again after a crash. A call that is
	// started again because a probe said that its key is refused has another.
	IdempotencyKey string

	// Idempotent says that the call may be made again with the same key when its
	// outcome is unknown. Without it nothing may start it twice (I4), but a worker that
	// the tool's probe has told that the first start came to nothing.
	Idempotent bool

	// Deadline is when the caller stops listening.
	Deadline time.Time

	// TraceParent is the span of the call as a W3C traceparent, for tools that pass
	// it on to whoever they ask; empty without tracing.
	TraceParent string

	// Resume, if not nil, goes on with a call that asked a person something.
	Resume *Resume

	// MaxResult is the number of bytes of Content that the worker takes, for which it has
	// reserved memory. A tool should hold no more of an answer. 0 is MaxResult, the constant.
	MaxResult int

	// Grow, if not nil, reserves memory for n bytes more, for images. It reports whether they
	// are free.
	Grow func(n int64) bool

	// Progress, if not nil, is told in words how far the call is. It may be called
	// from any goroutine until Call returns.
	Progress func(text string)
}

// Ask is a question to a person, without whose answer a call cannot go on.
type Ask struct {
	Question string

	// State is all that is needed to go on with the call, by whichever worker:
	// JSON, kept in the checkpoint.
	State json.RawMessage
}

// Resume is the answer to an Ask, with its State.
type Resume struct {
	State  json.RawMessage
	Answer string
}

// Description is what a tool says of itself.
type Description struct {
	Text   string          // for the model: what it does
	Schema json.RawMessage // JSON Schema of the arguments; nil if it does not say
}

// Result is what a call came to.
type Result struct {
	Content string
	IsError bool

	// Bytes is the length of the answer if Content is only its start; else 0.
	Bytes int

	// Images for a model that takes some. Those that CheckImages refuses are left
	// out of the result, with a remark.
	Images []state.Image

	// Pending says that the tool has taken the call and that its result comes
	// later, as a signal to the run. Only a tool that the agent declares as async
	// may answer so; Content is then of no account.
	Pending bool

	// Ask, if not nil, says that the call waits for a person. The run waits
	// (waiting_human_input), and the call is then made again with Resume; the rest of
	// the Result is of no account.
	Ask *Ask
}

// Error returns an error result for the model to read.
func Error(text string) Result { return Result{Content: text, IsError: true} }

// Func is a tool in Go.
type Func func(ctx context.Context, c Call) (Result, error)

// Call calls f.
func (f Func) Call(ctx context.Context, c Call) (Result, error) { return f(ctx, c) }

// IdempotencyKey names one call for whoever must not do it twice. It depends on
// what the call is and not on when or where it is made, so it is the same after a
// crash, and even after the journal is lost. The turn is part of it, since
// providers repeat call ids over the turns of a run.
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

// Batches splits calls into groups that are made one after the other: neighbours
// that may run in parallel together, each serial one alone (A14). It returns
// indices into names.
func Batches(names []string, serial func(name string) bool) [][]int {
	var batches [][]int
	open := false // whether the last batch takes another call
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

// MaxResult is the largest max_result, in bytes, unless the operator allows more.
const MaxResult = 4 << 20

// Limit returns the number of bytes of Content that the caller takes.
func (c Call) Limit() int {
	if c.MaxResult > 0 {
		return c.MaxResult
	}
	return MaxResult
}

// TooLargeError reports that an answer is larger than its reader may hold.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer has more than %d bytes: ask for less, or raise max_result of the tool", e.Limit)
}

// LimitBody returns body with an error, a *TooLargeError, in the place of what is beyond n
// bytes.
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

// AnswerBytes bounds an answer in an encoding that says it in other words, such as JSON: what
// is beyond cannot be a result of n bytes.
func AnswerBytes(n int) int64 { return 2*int64(n) + 256<<10 }

// Truncate returns content if it has at most limit bytes, and otherwise its start
// with a note of what was cut.
func Truncate(content string, limit int) string { return TruncateOf(content, limit, 0) }

// TruncateOf is Truncate for the start of an answer of size bytes; 0 is all of it.
func TruncateOf(content string, limit, size int) string {
	size = max(size, len(content))
	if size <= limit {
		return content
	}
	cut := min(max(limit, 0), len(content))
	// Back to the start of the rune that the limit cuts, if it is one at all.
	for i := cut; i < len(content) && i > 0 && i > cut-utf8.UTFMax; i-- {
		if utf8.RuneStart(content[i]) {
			cut = i
			break
		}
	}
	return fmt.Sprintf("%s\n[output truncated: %d of %d bytes]", content[:cut], cut, size)
}
