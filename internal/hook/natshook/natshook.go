package natshook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Kind returns the kind of hooks that services of the deployment with this prefix answer, each below the root
// of its tenant. The caller owns the connection.
func Kind(nc *nats.Conn, prefix string) hook.Kind {
	return hook.KindOf(hookspec.NATSSpec, func(ctx context.Context, s *hookspec.Service, r hook.Request) (hook.Answer, error) {
		if err := s.CheckTenant(prefix, r.Tenant); err != nil {
			return hook.Answer{}, err
		}
		return New(nc, prefix, s.Subject).Call(ctx, r)
	})
}

// New returns the hook that answers on subject, in the deployment with this prefix. It waits for the answer until the
// context of the call ends, and fails at once if no service listens on subject. It does not check that the tenant of a
// request may use subject: see Kind. The caller owns the connection.
func New(nc *nats.Conn, prefix, subject string) hook.Hook {
	return hook.Func(func(ctx context.Context, r hook.Request) (hook.Answer, error) {
		data, err := json.Marshal(r.Traced())
		if err != nil {
			return hook.Answer{}, fmt.Errorf("encode request: %w", err)
		}
		msg, err := ask(ctx, nc, toolkit.NewInbox(nc, prefix, r.Tenant), subject, data)
		if errors.Is(err, nats.ErrNoResponders) {
			return hook.Answer{}, fmt.Errorf("no service listens on the subject %s: start the service of the hook, or correct the subject", subject)
		}
		if err != nil {
			return hook.Answer{}, fmt.Errorf("the request to the hook on the subject %s failed (%w): check that the service answers in time, and that NATS is reachable, permits the subject and has a max_payload that fits", subject, err)
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

// ask sends a request with an inbox that it uses only once, so that a service cannot guess another inbox.
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

// Serve answers on subject with h until stop is called. Any number of processes may serve one subject; each request
// goes to one of them. Each call of Serve answers one request at a time. A panic of h becomes a failure. stop ends the
// context of the call in progress, and of the requests that have arrived and still wait for h; it does not wait for
// them. Gateways find the hook through the discovery protocol of NATS micro when an author saves a definition.
func Serve(nc *nats.Conn, subject string, h hook.Hook) (stop func() error, err error) {
	if subject == "" || strings.ContainsAny(subject, "*> \t\r\n") {
		return nil, fmt.Errorf("serve hook: %q cannot be the subject of a service: use one without wildcards, spaces and empty tokens, such as hooks.review", subject)
	}
	ctx, cancel := context.WithCancel(context.Background())
	sub, err := nc.QueueSubscribe(subject, queue, func(msg *nats.Msg) {
		if msg.Reply == "" {
			return // not a request, but a response to one that named this subject for the reply
		}
		_ = msg.Respond(answer(ctx, h, msg.Data)) // the asker has a time-out
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve hook: %w", err)
	}
	found, err := announce(nc, subject)
	if err != nil {
		cancel()
		_ = sub.Unsubscribe() // it fails on a closed connection only
		return nil, fmt.Errorf("serve hook: %w", err)
	}
	return func() error {
		cancel()
		for _, f := range found {
			_ = f.Unsubscribe() // it fails on a closed connection only
		}
		return sub.Drain()
	}, nil
}

// tenantHook is the subject of a hook of a tenant that has a root of its own.
var tenantHook = regexp.MustCompile(`^(.+\.t\.[a-z0-9-]{1,40})\.hook\.`)

// announce answers the requests PING and INFO, which clients use to find NATS micro services.
func announce(nc *nats.Conn, subject string) (subs []*nats.Subscription, err error) {
	root := micro.APIPrefix
	if m := tenantHook.FindStringSubmatch(subject); m != nil {
		root = m[1] + ".srv"
	}
	self := micro.ServiceIdentity{Name: "turnpike-hook", ID: nuid.Next(), Version: "1.0.0", Metadata: map[string]string{}}
	for verb, answer := range map[micro.Verb]any{
		micro.PingVerb: micro.Ping{ServiceIdentity: self, Type: micro.PingResponseType},
		micro.InfoVerb: micro.Info{
			ServiceIdentity: self, Type: micro.InfoResponseType, Description: "a hook of agents",
			Endpoints: []micro.EndpointInfo{{Name: "hook", Subject: subject, QueueGroup: queue}},
		},
	} {
		data, err := json.Marshal(answer)
		if err != nil {
			return nil, err
		}
		sub, err := nc.Subscribe(root+"."+verb.String(), func(m *nats.Msg) { _ = m.Respond(data) }) // the asker has a time-out
		if err != nil {
			for _, s := range subs {
				_ = s.Unsubscribe() // it fails on a closed connection only
			}
			return nil, err
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// queue is the queue group of the processes that serve one subject: each request goes to one of them.
const queue = "turnpike-hooks"

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
			err = fmt.Errorf("the hook's program panicked (%v): correct the program", p)
		}
	}()
	return h.Call(ctx, r)
}
