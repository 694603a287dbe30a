// Package natstool makes tools of NATS micro services, in any language.
//
// A tool refund is a service that answers on turnpike.tool.refund, for the prefix
// turnpike:
//
//	request  {"call_id", "run_id", "arguments", "idempotency_key", "deadline"}
//	reply    {"content": "text, or any JSON"}  or  {"error": "text"}  or  {"pending": true}
//
// Images may stand beside the content: {"content": …, "images": [{"media_type",
// "data" in base64}, {"url"}]}, for models that take some, see tool.CheckImages.
//
// A tool that is declared async may reply that it is pending: it has taken the
// call, and its result comes later, as the signal tool_results to the run.
//
// An error in the headers of NATS micro services is understood as well. A message
// on <reply subject>.cancel says that the caller no longer listens; a service may
// ignore it.
//
// Request and reply are delivered at most once: a call whose reply does not come
// may or may not have been made.
package natstool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// patience is how long a call waits for a service to appear: long enough for one
// that is being restarted, short enough for a model that may do something else.
const patience = 3 * time.Second

// lastMoment is how long before its deadline a call that nobody took is not tried
// again.
const lastMoment = 200 * time.Millisecond

// Request is what a service is asked.
type Request struct {
	CallID         string          `json:"call_id"`
	RunID          state.RunID     `json:"run_id"`
	Arguments      json.RawMessage `json:"arguments"` // a JSON object
	IdempotencyKey string          `json:"idempotency_key"`

	// Deadline is when the caller stops listening, by the caller's clock; zero if
	// it does not say.
	Deadline time.Time `json:"deadline,omitzero"`
}

type reply struct {
	Content json.RawMessage `json:"content,omitempty"`
	Images  []state.Image   `json:"images,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
	Pending bool            `json:"pending,omitempty"`
}

// Subject is the subject on which the service of a tool answers.
func Subject(prefix, name string) string { return prefix + ".tool." + name }

const cancelSuffix = ".cancel"

// Tool calls NATS services: the name of a call says which.
type Tool struct {
	nc     *nats.Conn
	prefix string
}

var _ tool.Tool = (*Tool)(nil)

// New returns a Tool that calls services on nc. The connection stays the
// caller's.
func New(nc *nats.Conn, prefix string) *Tool { return &Tool{nc, prefix} }

// Call implements tool.Tool. A service that is not there is waited for, for a few
// seconds. An error that wraps ctx's means that the request is out and the
// outcome unknown; no request is ever sent twice.
func (t *Tool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	if c.Name == "" || strings.ContainsAny(c.Name, ".*> \t\r\n") {
		return tool.Error(fmt.Sprintf("Tool %q cannot be called: its name is no token of a NATS subject", c.Name)), nil
	}
	subject := Subject(t.prefix, c.Name)
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	request, err := json.Marshal(Request{CallID: c.ID, RunID: c.Run, Arguments: arguments, IdempotencyKey: c.IdempotencyKey, Deadline: c.Deadline})
	if err != nil {
		return tool.Result{}, fmt.Errorf("encode call of %s: %w", subject, err)
	}
	// A request that nobody took never started a call, so it may be sent again.
	var unsent error
	msg, err := backoff.RetryWithData(func() (*nats.Msg, error) {
		// What is sent in the last moment has an unknown outcome, and so far it is
		// known that nobody was called.
		if end, ok := ctx.Deadline(); ok && unsent != nil && time.Until(end) < lastMoment {
			return nil, backoff.Permanent(unsent)
		}
		msg, err := t.request(ctx, subject, request)
		if unsent = nil; neverStarted(err) {
			unsent = err
			return nil, err
		}
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		return msg, nil
	}, backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond),
		backoff.WithMaxElapsedTime(patience),
	), ctx))
	switch {
	case err == nil:
		return result(c.Name, msg), nil
	case errors.Is(ctx.Err(), context.Canceled):
		return tool.Result{}, fmt.Errorf("call %s: %w", subject, err)
	case errors.Is(unsent, nats.ErrNoResponders):
		return tool.Error(fmt.Sprintf("Tool %q was not called: no service answers on the subject %s. "+
			"Start one that does, for example with natstool.Serve in Go or the micro service library of another language.", c.Name, subject)), nil
	case unsent != nil:
		return tool.Error(fmt.Sprintf("Tool %q was not called: the connection to NATS is down", c.Name)), nil
	case errors.Is(err, nats.ErrMaxPayload):
		return tool.Error(fmt.Sprintf("Tool %q was not called: the request has %d bytes, more than the NATS server takes (%d)", c.Name, len(request), t.nc.MaxPayload())), nil
	default:
		return tool.Result{}, fmt.Errorf("call %s: %w", subject, err)
	}
}

// neverStarted reports whether err proves that no service got the request.
func neverStarted(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// request sends one request on an inbox of its own, so that the service can be
// told when nobody listens any more.
func (t *Tool) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inbox := t.nc.NewInbox()
	sub, err := t.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails on a closed connection only
	if err := t.nc.PublishRequest(subject, inbox, data); err != nil {
		return nil, err
	}
	msg, err := sub.NextMsgWithContext(ctx)
	if err != nil && ctx.Err() != nil && !neverStarted(err) {
		// A courtesy; the outcome is unknown either way.
		_ = t.nc.Publish(inbox+cancelSuffix, nil)
		return nil, fmt.Errorf("no reply came, the outcome is unknown: %w", ctx.Err())
	}
	return msg, err
}

// result reads what a service replied.
func result(name string, msg *nats.Msg) tool.Result {
	var r reply
	err := json.Unmarshal(msg.Data, &r)
	if code, text := msg.Header.Get(micro.ErrorCodeHeader), msg.Header.Get(micro.ErrorHeader); code != "" || text != "" {
		if failure := textOf(r.Error); err == nil && failure != "" {
			return tool.Error(failure)
		}
		return tool.Error(fmt.Sprintf("Tool %q failed: %s (%s)", name, text, code))
	}
	switch {
	case err == nil && textOf(r.Error) != "":
		return tool.Error(textOf(r.Error))
	case err == nil && r.Pending:
		return tool.Result{Pending: true}
	case err == nil && (len(r.Content) > 0 || len(r.Images) > 0):
		return tool.Result{Content: contentOf(r.Content), Images: r.Images}
	default:
		return tool.Error(fmt.Sprintf(`Tool %q was called, but its reply is neither {"content": ...} nor {"error": "..."}: %s`, name, tool.Truncate(string(msg.Data), 300)))
	}
}

// contentOf returns a JSON string as the text that it holds, and any other JSON
// as it is.
func contentOf(raw json.RawMessage) string {
	var text string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// textOf returns the text of an error; null is none.
func textOf(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return contentOf(raw)
}
