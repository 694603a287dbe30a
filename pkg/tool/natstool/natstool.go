// Package natstool calls tools that are NATS micro services, in any language: a
// request on <prefix>.tool.<name>, one reply.
package natstool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Request is what a service gets.
type Request struct {
	CallID         string          `json:"call_id"`
	RunID          string          `json:"run_id"`
	Arguments      json.RawMessage `json:"arguments"`
	IdempotencyKey string          `json:"idempotency_key"`
	Deadline       time.Time       `json:"deadline"`
}

// Reply is what it answers: content, as text or any JSON, or an error for the
// model to read.
type Reply struct {
	Content json.RawMessage `json:"content,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// Tool calls services over one connection.
type Tool struct {
	nc     *nats.Conn
	prefix string
}

var _ tool.Tool = (*Tool)(nil)

// New returns a tool whose calls go to the service of their name.
func New(nc *nats.Conn, prefix string) *Tool { return &Tool{nc, prefix} }

// Call sends the request and waits for the reply. Nobody there is retried for a
// moment, since such a call never started; after that the outcome of a request
// without a reply is unknown, which is an error.
func (t *Tool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	data, err := json.Marshal(Request{
		CallID: c.ID, RunID: string(c.Run), Arguments: c.Arguments, IdempotencyKey: c.IdempotencyKey, Deadline: c.Deadline,
	})
	if err != nil {
		return tool.Result{}, err
	}
	subject := t.prefix + ".tool." + c.Name
	var m *nats.Msg
	patience := backoff.WithContext(backoff.WithMaxRetries(backoff.NewConstantBackOff(200*time.Millisecond), 10), ctx)
	err = backoff.Retry(func() error {
		var err error
		m, err = t.nc.RequestWithContext(ctx, subject, data)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			return backoff.Permanent(err)
		}
		return err
	}, patience)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return tool.Error(fmt.Sprintf("Tool %q is not available: no service listens on %s", c.Name, subject)), nil
	case err != nil:
		return tool.Result{}, fmt.Errorf("call tool %q: %w", c.Name, err)
	}
	if text := m.Header.Get(micro.ErrorHeader); text != "" {
		return tool.Error(text), nil
	}
	var r Reply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return tool.Error(fmt.Sprintf("Tool %q answered something else than {\"content\"} or {\"error\"}", c.Name)), nil
	}
	if r.Error != "" {
		return tool.Error(r.Error), nil
	}
	var text string
	if json.Unmarshal(r.Content, &text) != nil {
		text = string(r.Content)
	}
	return tool.Result{Content: text}, nil
}

// Service is a tool in Go, offered to every worker of a site.
type Service struct {
	Name        string
	Description string
	Schema      json.RawMessage

	// Handler returns the content for the model, or an error for it to read.
	Handler func(ctx context.Context, r Request) (string, error)
}

// Serve offers a service until stop is called. Any number of processes may serve
// the same tool; each call goes to one of them.
func Serve(nc *nats.Conn, prefix string, s Service) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	svc, err := micro.AddService(nc, micro.Config{Name: s.Name, Version: "1.0.0", Description: s.Description})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve tool %s: %w", s.Name, err)
	}
	handle := micro.HandlerFunc(func(m micro.Request) {
		go func() { // micro calls one after the other; calls are independent
			var r Request
			if err := json.Unmarshal(m.Data(), &r); err != nil {
				_ = m.Error("400", "malformed request: "+err.Error(), nil) // the caller may be gone
				return
			}
			callCtx, done := context.WithDeadline(ctx, r.Deadline)
			defer done()
			text, err := s.Handler(callCtx, r)
			if err != nil {
				_ = m.RespondJSON(Reply{Error: err.Error()}) // as above
				return
			}
			content, err := json.Marshal(text)
			if err != nil {
				content = []byte(`""`)
			}
			_ = m.RespondJSON(Reply{Content: content}) // as above
		}()
	})
	err = svc.AddEndpoint(s.Name, handle, micro.WithEndpointSubject(prefix+".tool."+s.Name),
		micro.WithEndpointMetadata(map[string]string{"description": s.Description, "schema": string(s.Schema)}))
	if err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("serve tool %s: %w", s.Name, err), svc.Stop())
	}
	return func() error { cancel(); return svc.Stop() }, nil
}
