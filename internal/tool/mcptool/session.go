package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// connectTimeout bounds the start of a server and its handshake.
	connectTimeout = time.Minute

	// listEvery is the maximum age of a listing that a call relies on.
	listEvery = time.Minute

	// stateful is the last version of the protocol in which a session begins with a handshake and a server asks
	// questions during a call.
	stateful = "2025-11-25"

	// rejected is the code of errors from the transport, as opposed to errors from a server.
	rejected = -32005

	// notice is the time that a server has to receive the cancellation of its call before its session is closed.
	notice = 500 * time.Millisecond
)

// session is a connection to a server. One call at a time uses it.
type session struct {
	cs      *mcp.ClientSession
	process *process // nil over HTTP
	secrets *secret.Redactor
	listing Listing
	listed  time.Time
	stale   atomic.Bool // the server has announced that its tools have changed
	spent   atomic.Bool // no other call may use the session

	limit atomic.Int64 // maximum bytes of a message; 0 is maxMessage

	received, lines atomic.Int64 // since the begin of the latest call
	flooded         atomic.Bool  // they exceeded their limits

	cancelled atomic.Bool // a call was cancelled, and the server is being notified
	timer     *time.Timer // closes the session when it has been idle

	mu   sync.Mutex
	call *call
}

// connect starts a session. Some servers of the older protocol hang or disconnect at the
// newer handshake, so connect retries with the older one.
func (c *Caller) connect(ctx context.Context, t target) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	first, done := context.WithTimeout(ctx, connectTimeout/2)
	s, err := c.open(first, t, "")
	done()
	if err == nil || ctx.Err() != nil || guard.Refusal(err) != nil || errors.Is(err, errNotStarted) {
		return s, err
	}
	if s, second := c.open(ctx, t, stateful); second == nil {
		return s, nil
	}
	return nil, err
}

// open starts a session with a version of the protocol, the newest if it is empty.
func (c *Caller) open(ctx context.Context, t target, version string) (*session, error) {
	s := &session{secrets: t.secrets}
	transport, err := c.transport(t, s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotStarted, err)
	}
	options := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{
			Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{},
		}},
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: s.progress,
	}
	if s.process != nil {
		options.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) { s.stale.Store(true) }
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "turnpike", Version: "1"}, options)
	client.AddReceivingMiddleware(s.intercept)
	s.cs, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		err = s.list(ctx)
	}
	if err != nil {
		text := s.explainText(err)
		s.close()
		return nil, text
	}
	return s, nil
}

// errNotStarted is wrapped by errors that another handshake cannot avoid.
var errNotStarted = errors.New("the program was not started")

func (s *session) list(ctx context.Context) (err error) {
	s.stale.Store(false)
	s.listing, err = list(ctx, s.cs, s.secrets)
	s.listed = time.Now()
	return err
}

// alive reports whether the session can still be used.
func (s *session) alive() bool { return s.process == nil || !s.process.exited() }

// close ends the session, and its process with the processes that it has started.
func (s *session) close() {
	if s.cancelled.Load() {
		<-time.After(notice)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if s.cs != nil {
			// An error means that the connection is closed already.
			_ = s.cs.Close()
		}
	}()
	if s.process != nil {
		s.process.stop()
	}
	<-closed
}

func afterIdle(l *lease, s *session) *time.Timer {
	return time.AfterFunc(l.c.cfg.Idle, func() {
		l.c.mu.Lock()
		defer l.c.mu.Unlock()
		i := slices.Index(l.pool.idle, s)
		if i < 0 {
			return
		}
		l.pool.idle = slices.Delete(l.pool.idle, i, i+1)
		l.c.tidy(l.key, l.pool)
		l.c.closing.Go(s.close)
	})
}

// call is the call in progress in a session.
type call struct {
	tool.Call

	past    []exchange // earlier questions and answers, of a server that asks inline
	next    int        // index in past of the next answer to give
	asked   *mcp.ElicitParams
	refused string             // describes a question that was not passed on
	stop    context.CancelFunc // ends the request
	over    chan struct{}      // closed when the request has ended
}

func (s *session) current() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call
}

func (s *session) set(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call = c
}

// call makes a call, or resumes the call that p describes if p is not nil. An error means that the session must be
// closed.
func (l *lease) call(ctx context.Context, name string, c tool.Call, p *pending, verify func(Listing) error) (tool.Result, error) {
	s := l.session
	if s.stale.Load() || time.Since(s.listed) > listEvery {
		if err := s.list(ctx); err != nil {
			return tool.Result{}, err
		}
	}
	if err := verify(s.listing); err != nil {
		return tool.Error(err.Error()), nil
	}
	s.received.Store(0)
	s.lines.Store(0)
	s.limit.Store(min(2*int64(c.Limit())+envelope, maxMessage))
	defer s.limit.Store(0)
	params := &mcp.CallToolParams{Name: name, Arguments: c.Arguments}
	if p != nil && !p.Inline && !p.Barred {
		params.InputResponses, params.RequestState = p.responses(), p.RequestState
	}
	for tries := 0; ; tries++ {
		params.Meta = mcp.Meta{metaKey: c.IdempotencyKey}
		if c.TraceParent != "" {
			params.Meta[metaTrace] = c.TraceParent
		}
		result, asked, err := s.send(ctx, params, c, p)
		var refusal *jsonrpc.Error
		switch {
		case errors.As(err, &refusal) && ctx.Err() == nil && !errors.Is(err, mcp.ErrSessionMissing) && refusal.Code != rejected:
			if p := barred(refusal, s.secrets); p != nil {
				return p.ask("")
			}
			return tool.Error(fmt.Sprintf("MCP server %q refused the call: %s (code %d). Call it with other arguments, or continue without it", l.target.Server, refusal.Message, refusal.Code)), nil
		case err != nil:
			return tool.Result{}, err
		case asked != nil:
			return asked.ask("")
		case !result.NeedsInput():
			return convert(result), nil
		case len(result.InputRequests) > 0:
			next, err := pendingFrom(result, s.secrets)
			if err != nil {
				return tool.Error(err.Error()), nil
			}
			return next.ask("")
		case tries == busyTries:
			return tool.Error(fmt.Sprintf("MCP server %q is still busy after %d tries. Call it again later", l.target.Server, busyTries+1)), nil
		}
		// The server is busy: it asks for nothing but another request later.
		params.InputResponses, params.RequestState = nil, result.RequestState
		if !pause(ctx, busyPause<<tries) {
			return tool.Result{}, ctx.Err()
		}
	}
}

const (
	busyTries = 3
	busyPause = 500 * time.Millisecond

	// metaKey is the key of the idempotency key in a call's metadata.
	metaKey = "turnpike.dev/idempotencyKey"

	// metaTrace is the key of the W3C trace context in a request's metadata.
	metaTrace = "traceparent"
)

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send makes one request. If the server asks a question inline, send returns the pending question instead of a result.
func (s *session) send(ctx context.Context, params *mcp.CallToolParams, c tool.Call, p *pending) (*mcp.CallToolResult, *pending, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	now := &call{Call: c, stop: stop, over: make(chan struct{})}
	if p != nil && p.Inline {
		now.past = p.Exchanges
	}
	if c.Progress != nil {
		params.SetProgressToken(c.ID)
	}
	s.set(now)
	result, err := s.cs.CallTool(ctx, params)
	s.set(nil)
	close(now.over)

	s.mu.Lock()
	asked, refused, past := now.asked, now.refused, now.past[:now.next]
	s.mu.Unlock()
	if err != nil {
		if ctx.Err() != nil {
			// The server may still be executing the call, so no other call may use this session.
			s.spent.Store(true)
			s.cancelled.Store(true)
		}
		if s.flooded.Load() {
			return nil, nil, errFlood
		}
		if asked != nil {
			return nil, &pending{Inline: true, Exchanges: append(slices.Clone(past), exchange{Asked: asked})}, nil
		}
		return nil, nil, err
	}
	if refused != "" {
		result.Content = append(result.Content, &mcp.TextContent{Text: refused})
	}
	return result, nil, nil
}

// progress passes a progress notification of the server to the call in progress.
func (s *session) progress(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	c := s.current()
	if c == nil || c.Progress == nil || r.Params.ProgressToken != c.ID {
		return
	}
	text := fmt.Sprintf("%g", r.Params.Progress)
	if r.Params.Total > 0 {
		text = fmt.Sprintf("%g of %g", r.Params.Progress, r.Params.Total)
	}
	if r.Params.Message != "" {
		text += ": " + r.Params.Message
	}
	c.Progress(tool.Truncate(s.secrets.Redact(text), maxProgress))
}

// maxProgress is the maximum size of one progress text, in bytes.
const maxProgress = 1000

// intercept handles questions before the SDK checks their forms, because a malicious server could send a schema whose
// check never ends.
func (s *session) intercept(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if asked, ok := r.(*mcp.ElicitRequest); ok {
			return s.elicit(ctx, asked)
		}
		return next(ctx, method, r)
	}
}

// elicit answers a question of a server of the older protocol, which asks during a call and keeps the call open. A
// worker does not wait for a person: if the tool is declared idempotent, it cancels the call, and repeats it with the
// answer (I4, I6). Otherwise it answers cancel, and the result explains this to the model.
func (s *session) elicit(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	asked, err := withoutSecrets(r.Params, s.secrets)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.call
	if c == nil || c.asked != nil {
		return &mcp.ElicitResult{Action: actionCancel}, nil
	}
	if c.next < len(c.past) {
		if e := c.past[c.next]; e.Answer != nil && same(e.Asked, asked) {
			c.next++
			return e.Answer, nil
		}
	}
	if !c.Idempotent {
		c.refused = fmt.Sprintf("[The server asked: %q. Its question was not passed on, and answered with %q: it speaks a version of the protocol "+
			"in which the call must be made again with the answer, and the agent does not declare this tool idempotent: set idempotent: true if a repeated call does no harm]", asked.Message, actionCancel)
		return &mcp.ElicitResult{Action: actionCancel}, nil
	}
	c.asked = asked
	c.stop()
	s.mu.Unlock()
	select {
	case <-c.over:
	case <-ctx.Done():
	}
	s.mu.Lock()
	return &mcp.ElicitResult{Action: actionCancel}, nil
}

// same reports whether two questions have the same text and the same form.
func same(a, b *mcp.ElicitParams) bool {
	schema := func(p *mcp.ElicitParams) string {
		b, err := json.Marshal(p.RequestedSchema)
		if err != nil {
			return ""
		}
		return string(tool.Canonical(b))
	}
	return a.Message == b.Message && schema(a) == schema(b)
}
