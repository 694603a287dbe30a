package natstool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// patience bounds how long a call waits for a service to appear: long enough for a service that is restarting,
// short enough for a model that has alternatives.
const patience = 3 * time.Second

// lastMoment is the time before its deadline in which a call that has reached no service is not sent again.
const lastMoment = 200 * time.Millisecond

const (
	// heartbeat is the interval at which a service must send heartbeats.
	heartbeat = 2 * time.Second

	// missed is the number of consecutive missing heartbeats after which an instance counts as dead.
	missed = 3

	// repeats is the maximum number of repetitions of one cancellation.
	repeats = 3

	// attempts is the maximum number of instances to which one call is sent: the call may be what kills them.
	attempts = 3
)

// maxProgress is the maximum size of one progress text, in bytes.
const maxProgress = 1000

// errDied reports that the instance executing a call has stopped sending heartbeats.
var errDied = errors.New("the instance of the service that executed the call sends no heartbeats any more, so the outcome is unknown")

// Tool calls NATS services. The tenant and the name of a call select the service. It is safe for concurrent use.
type Tool struct {
	nc        *nats.Conn
	prefix    string
	heartbeat time.Duration
}

var _ tool.Tool = (*Tool)(nil)

// New returns a Tool that calls services of the deployment with this prefix. The caller must keep the connection open,
// and closes it.
func New(nc *nats.Conn, prefix string) *Tool { return &Tool{nc, prefix, heartbeat} }

// WithHeartbeat returns a copy of t that asks services for a heartbeat at an interval of at least a millisecond. The
// default is two seconds.
func (t *Tool) WithHeartbeat(every time.Duration) *Tool {
	return &Tool{t.nc, t.prefix, max(every, time.Millisecond)}
}

// Call implements tool.Tool. It waits a few seconds for a missing service. After an error the outcome is unknown,
// because the request may have been sent. After a service has received the request, Call sends it again only for an
// idempotent tool whose instance has died, to at most three instances in total.
func (t *Tool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	if c.Name == "" || strings.ContainsAny(c.Name, ".*> \t\r\n") {
		return tool.Error(fmt.Sprintf("Tool %q cannot be called, because its name cannot be part of a NATS subject: use the name of a tool, of 1 to 64 letters, digits, _ and -", c.Name)), nil
	}
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	subject := toolkit.Subject(toolkit.Root(t.prefix, c.Tenant), c.Name)
	request, err := json.Marshal(toolkit.Call{CallID: c.ID, RunID: string(c.Run), Arguments: arguments, IdempotencyKey: c.IdempotencyKey, Deadline: c.Deadline})
	if err != nil {
		return tool.Result{}, fmt.Errorf("encode call of %s: %w", subject, err)
	}
	call := &nats.Msg{Subject: subject, Data: request, Header: nats.Header{toolkit.HeartbeatHeader: {strconv.FormatInt(t.heartbeat.Milliseconds(), 10)}}}
	if c.TraceParent != "" {
		call.Header[toolkit.TraceHeader] = []string{c.TraceParent}
	}
	for attempt := 1; ; attempt++ {
		msg, unsent, err := t.deliver(ctx, c, call)
		switch {
		case err == nil:
			return result(c.Name, msg), nil
		case errors.Is(ctx.Err(), context.Canceled):
			return tool.Result{}, fmt.Errorf("call %s: %w", subject, err)
		case errors.Is(err, errDied) && c.Idempotent && attempt < attempts && ctx.Err() == nil:
			continue
		case errors.Is(err, errDied):
			return tool.Error(fmt.Sprintf("Tool %q was called %s, but %v. Check what it has done before you call it again", c.Name, times(attempt), errDied)), nil
		case unsent != nil && attempt > 1:
			return tool.Error(fmt.Sprintf("Tool %q was called %s, but %v; no other instance answers. Check what it has done before you call it again", c.Name, times(attempt-1), errDied)), nil
		case errors.Is(unsent, nats.ErrNoResponders):
			return tool.Error(fmt.Sprintf("Tool %q was not called: no service listens on the subject %s. "+
				"Call it again later, or continue without it; the operator must start its service, for example with toolkit.Run in Go.", c.Name, subject)), nil
		case unsent != nil:
			return tool.Error(fmt.Sprintf("Tool %q was not called: the connection to NATS is down. Call it again later", c.Name)), nil
		case errors.Is(err, nats.ErrMaxPayload):
			return tool.Error(fmt.Sprintf("Tool %q was not called: the request has %d bytes, and the NATS server accepts %d. Shorten the arguments; only the operator can raise max_payload of the NATS server", c.Name, len(request), t.nc.MaxPayload())), nil
		default:
			return tool.Result{}, fmt.Errorf("call %s: %w: the call may have had an effect: check that before you repeat it", subject, err)
		}
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// deliver sends the request until an instance receives it, and returns the reply. unsent is not nil if no instance has
// received it.
func (t *Tool) deliver(ctx context.Context, c tool.Call, call *nats.Msg) (msg *nats.Msg, unsent, err error) {
	// A request that no instance received has started no call, so it may be sent again.
	msg, err = backoff.RetryWithData(func() (*nats.Msg, error) {
		// A request sent at the last moment would have an unknown outcome. Without it, it is certain that no instance
		// has started the call.
		if end, ok := ctx.Deadline(); ok && unsent != nil && time.Until(end) < lastMoment {
			return nil, backoff.Permanent(unsent)
		}
		msg, err := t.request(ctx, c, call)
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
	return msg, unsent, err
}

// neverStarted reports whether err proves that no instance has received the request.
func neverStarted(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// request sends one request with its own inbox, so that it can notify the instance when the caller stops waiting. An
// instance cannot guess another inbox from the name of this one, so it cannot answer in place of others.
func (t *Tool) request(ctx context.Context, c tool.Call, call *nats.Msg) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inbox := toolkit.NewInbox(t.nc, t.prefix, c.Tenant)
	sub, err := t.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: call.Subject, Reply: inbox, Data: call.Data, Header: call.Header}
	if err := t.nc.PublishMsg(m); err != nil {
		_ = sub.Unsubscribe() // it fails only on a closed connection
		return nil, err
	}
	msg, err := t.await(ctx, sub, c.Progress)
	if errors.Is(err, errDied) || err != nil && ctx.Err() != nil && !neverStarted(err) {
		// This is optional: the outcome is unknown in any case.
		_ = t.nc.Publish(inbox+toolkit.CancelSuffix, nil)
		go t.repeatCancellation(sub) // ends after a few heartbeats, or when the connection is closed
	} else {
		_ = sub.Unsubscribe() // as above
	}
	if err != nil && ctx.Err() != nil && !neverStarted(err) {
		return nil, fmt.Errorf("no reply arrived, so the outcome is unknown: %w", ctx.Err())
	}
	return msg, err
}

// repeatCancellation repeats the cancellation of the call whose reply sub receives: an instance misses a cancellation
// that arrives before it has subscribed to cancellations of the call. repeatCancellation publishes it after each
// heartbeat, and each time that none arrives within the interval, until the instance replies, at most repeats times.
func (t *Tool) repeatCancellation(sub *nats.Subscription) {
	defer sub.Unsubscribe() //nolint:errcheck // it fails only on a closed connection
	for range repeats {
		msg, err := sub.NextMsg(t.heartbeat)
		if err == nil && !signOfLife(msg) || err != nil && !errors.Is(err, nats.ErrTimeout) {
			return
		}
		_ = t.nc.Publish(sub.Subject+toolkit.CancelSuffix, nil) // as in request
	}
}

// await returns the reply, or errDied if heartbeats arrived and then stopped although this process was connected. If
// the instance never sends a heartbeat, await waits for the reply until ctx ends, and returns the error of ctx. Other
// errors are those of the subscription, such as nats.ErrNoResponders. progress, if not nil, is called with the progress
// text of each heartbeat that has one, shortened to maxProgress.
func (t *Tool) await(ctx context.Context, sub *nats.Subscription, progress func(string)) (*nats.Msg, error) {
	alive := false
	reconnects := t.nc.Stats().Reconnects
	for {
		patient, cancel := ctx, context.CancelFunc(func() {})
		if alive {
			patient, cancel = context.WithTimeout(ctx, missed*t.heartbeat)
		}
		msg, err := sub.NextMsgWithContext(patient)
		cancel()
		switch {
		case err == nil && !signOfLife(msg):
			return msg, nil
		case err == nil:
			alive = true
			if text := textOf(json.RawMessage(msg.Header.Get(toolkit.ProgressHeader))); text != "" && progress != nil {
				progress(tool.Truncate(text, maxProgress))
			}
		case ctx.Err() != nil || !alive || !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		case !t.nc.IsConnected() || t.nc.Stats().Reconnects != reconnects:
			// This process was disconnected, so missing heartbeats say nothing about the instance.
			reconnects = t.nc.Stats().Reconnects
		default:
			// After a pause of this process, heartbeats may still be in transit.
			if err := t.nc.FlushTimeout(missed * t.heartbeat); err != nil {
				continue
			}
			if n, _, err := sub.Pending(); err == nil && n > 0 {
				continue
			}
			return nil, errDied
		}
	}
}

// signOfLife reports whether a message is a heartbeat, and not a reply.
func signOfLife(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get(toolkit.HeartbeatHeader) != "" && m.Header.Get(micro.ErrorCodeHeader) == "" && m.Header.Get(micro.ErrorHeader) == ""
}

// result converts a service's reply.
func result(name string, msg *nats.Msg) tool.Result {
	var r toolkit.Reply
	err := json.Unmarshal(msg.Data, &r)
	if code, text := msg.Header.Get(micro.ErrorCodeHeader), msg.Header.Get(micro.ErrorHeader); code != "" || text != "" {
		if failure := textOf(r.Error); err == nil && failure != "" {
			return tool.Error(failure)
		}
		return tool.Error(fmt.Sprintf("Tool %q failed: %s (code %s). Call it with other arguments, or continue without its result", name, text, code))
	}
	switch {
	case err == nil && textOf(r.Error) != "":
		return tool.Error(textOf(r.Error))
	case err == nil && r.Pending:
		return tool.Result{Pending: true}
	case err == nil && (len(r.Content) > 0 || len(r.Images)+len(r.Files) > 0):
		return tool.Result{Content: contentOf(r.Content), Images: imagesOf(r.Images), Files: filesOf(r.Files)}
	default:
		return tool.Error(fmt.Sprintf(`Tool %q was called, but its reply is neither {"content": ...} nor {"error": "..."}. Continue without its result; the operator must correct its service. The reply: %s`, name, tool.Truncate(string(msg.Data), 300)))
	}
}

// contentOf returns the text of a JSON string, and any other JSON unchanged.
func contentOf(raw json.RawMessage) string {
	var text string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// textOf returns the text of an error; null means no error.
func textOf(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return contentOf(raw)
}

func imagesOf(images []toolkit.Image) (result []state.Image) {
	for _, i := range images {
		result = append(result, state.Image(i))
	}
	return result
}

func filesOf(files []toolkit.File) (result []state.Part) {
	for _, f := range files {
		result = append(result, state.Part{Type: state.PartFile, FileID: f.FileID, Name: f.Name, MediaType: f.MediaType, Data: f.Data, URL: f.URL})
	}
	return result
}
