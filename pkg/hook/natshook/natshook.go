package natshook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Kind returns the kind of hooks that services of the deployment with this prefix answer, each
// below the root of its tenant. The connection stays the caller's.
func Kind(nc *nats.Conn, prefix string) hook.Kind {
	return hook.KindOf(hookspec.NATSSpec, func(ctx context.Context, s *hookspec.Service, r hook.Request) (hook.Answer, error) {
		if err := s.CheckTenant(prefix, r.Tenant); err != nil {
			return hook.Answer{}, err
		}
		return New(nc, prefix, s.Subject).Call(ctx, r)
	})
}

// New returns the hook that answers on subject, in the deployment with this prefix. The
// connection stays the caller's.
func New(nc *nats.Conn, prefix, subject string) hook.Hook {
	return hook.Func(func(ctx context.Context, r hook.Request) (hook.Answer, error) {
		data, err := json.Marshal(r.Traced())
		if err != nil {
			return hook.Answer{}, fmt.Errorf("encode request: %w", err)
		}
		msg, err := ask(ctx, nc, toolkit.NewInbox(nc, prefix, r.Tenant), subject, data)
		if errors.Is(err, nats.ErrNoResponders) {
			return hook.Answer{}, fmt.Errorf("no service answers on the subject %s", subject)
		}
		if err != nil {
			return hook.Answer{}, fmt.Errorf("ask %s: %w", subject, err)
		}
		var failure struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(msg.Data, &failure) == nil && failure.Error != "" {
			return hook.Answer{}, errors.New(failure.Error)
		}
		return hook.Decode(msg.Data, r.Point)
	})
}

// ask sends a request on an inbox of its own, from whose name a service can guess no other one.
func ask(ctx context.Context, nc *nats.Conn, inbox, subject string, data []byte) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails on a closed connection only
	if err := nc.PublishRequest(subject, inbox, data); err != nil {
		return nil, err
	}
	return sub.NextMsgWithContext(ctx)
}

// Serve answers on subject with h until stop is called. Any number of processes
// may serve one subject; each request goes to one of them. Requests are answered
// one at a time in each.
func Serve(nc *nats.Conn, subject string, h hook.Hook) (stop func() error, err error) {
	if subject == "" || strings.ContainsAny(subject, "*> \t\r\n") {
		return nil, fmt.Errorf("serve hook: %q is not the subject of a service", subject)
	}
	ctx, cancel := context.WithCancel(context.Background())
	sub, err := nc.QueueSubscribe(subject, "turnpike-hooks", func(msg *nats.Msg) {
		_ = msg.Respond(answer(ctx, h, msg.Data)) // the asker has a time-out
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve hook: %w", err)
	}
	return func() error {
		cancel()
		return sub.Drain()
	}, nil
}

func answer(ctx context.Context, h hook.Hook, data []byte) []byte {
	var r hook.Request
	err := json.Unmarshal(data, &r)
	if err == nil {
		var a hook.Answer
		if a, err = call(ctx, h, r); err == nil {
			var b []byte
			if b, err = json.Marshal(a); err == nil {
				return b
			}
		}
	}
	b, _ := json.Marshal(map[string]string{"error": err.Error()}) //nolint:errchkjson // a string encodes
	return b
}

func call(ctx context.Context, h hook.Hook, r hook.Request) (a hook.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	return h.Call(ctx, r)
}
