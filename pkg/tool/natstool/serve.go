package natstool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Service is a tool to serve.
type Service struct {
	Name        string // of the tool; letters, digits, - and _
	Version     string // a semantic version; empty is 1.0.0
	Description string

	// Schema is the JSON Schema of the arguments. It travels in the service's
	// metadata, where people and programs find it.
	Schema json.RawMessage

	// Concurrency bounds the calls that run at a time; 0 is 64.
	Concurrency int

	// Handler makes one call and returns what the model reads. Its context ends
	// at the call's deadline and when the caller stops listening. An error is
	// told to the model. It must be safe for concurrent use, and should do
	// nothing twice for one IdempotencyKey.
	Handler func(ctx context.Context, r Request) (string, error)
}

// Serve answers calls of a tool until stop is called. Any number of processes may
// serve one tool; each call goes to one of them. stop takes no more calls, waits
// for those that run, and may be called once.
func Serve(nc *nats.Conn, prefix string, s Service) (stop func() error, err error) {
	if s.Handler == nil {
		return nil, fmt.Errorf("serve tool %s: it has no handler", s.Name)
	}
	if s.Version == "" {
		s.Version = "1.0.0"
	}
	if s.Concurrency <= 0 {
		s.Concurrency = 64
	}
	metadata := map[string]string{"description": s.Description}
	if len(s.Schema) > 0 {
		if !json.Valid(s.Schema) {
			return nil, fmt.Errorf("serve tool %s: its schema is not JSON", s.Name)
		}
		metadata["schema"] = string(s.Schema)
	}
	server := &server{nc: nc, s: s, slots: make(chan struct{}, s.Concurrency)}
	service, err := micro.AddService(nc, micro.Config{
		Name: s.Name, Version: s.Version, Description: s.Description, Metadata: metadata,
		Endpoint: &micro.EndpointConfig{Subject: Subject(prefix, s.Name), Handler: micro.HandlerFunc(server.take), Metadata: metadata},
	})
	if err != nil {
		return nil, fmt.Errorf("serve tool %s: %w", s.Name, err)
	}
	return func() error {
		err := service.Stop()
		// After a round trip, what the server sent us before it took note has
		// arrived; after the second, our replies have.
		err = errors.Join(err, server.flush())
		server.wait()
		return errors.Join(err, server.flush())
	}, nil
}

// server runs the calls of one service.
type server struct {
	nc    *nats.Conn
	s     Service
	slots chan struct{} // one element for each call that runs
}

// take starts one call. The library delivers requests one after the other, so a
// slow call must not hold up the next.
func (v *server) take(r micro.Request) {
	v.slots <- struct{}{}
	go func() { // ends with the call
		defer func() { <-v.slots }()
		v.answer(r)
	}()
}

// wait returns when no call runs: when all slots were its own for a moment.
func (v *server) wait() {
	for range cap(v.slots) {
		v.slots <- struct{}{}
	}
	for range cap(v.slots) {
		<-v.slots
	}
}

func (v *server) flush() error {
	if err := v.nc.Flush(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("stop tool %s: %w", v.s.Name, err)
	}
	return nil
}

func (v *server) answer(r micro.Request) {
	var request Request
	if err := json.Unmarshal(r.Data(), &request); err != nil {
		v.refuse(r, "400", fmt.Sprintf("The request to tool %q is not what it should be: %v", v.s.Name, err))
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !request.Deadline.IsZero() {
		var done context.CancelFunc
		ctx, done = context.WithDeadline(ctx, request.Deadline)
		defer done()
	}
	if sub, err := v.nc.Subscribe(r.Reply()+cancelSuffix, func(*nats.Msg) { cancel() }); err == nil {
		defer sub.Unsubscribe() //nolint:errcheck // it fails on a closed connection only
	}
	content, err := v.handle(ctx, request)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		// The caller stops listening at this very moment, and knows why.
		return
	}
	if err != nil {
		v.refuse(r, "500", err.Error())
		return
	}
	text, err := json.Marshal(content)
	if err != nil {
		v.refuse(r, "500", err.Error())
		return
	}
	// Not by the request itself, which belongs to the library once take returned.
	if err := v.send(r, reply{Content: text}, nil); errors.Is(err, nats.ErrMaxPayload) {
		v.refuse(r, "500", fmt.Sprintf("Tool %q was called, but its result has %d bytes, more than the NATS server takes (%d)", v.s.Name, len(text), v.nc.MaxPayload()))
	}
}

// handle calls the handler; a panic in it is a failure of this call only.
func (v *server) handle(ctx context.Context, request Request) (content string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Tool %q failed: it panicked: %v", v.s.Name, p) //nolint:staticcheck // a sentence for the model
		}
	}()
	return v.s.Handler(ctx, request)
}

// refuse replies with an error, in the body for models and in the headers for
// whoever knows NATS micro services.
func (v *server) refuse(r micro.Request, code, text string) {
	// An empty error would not be seen as one, and a huge one not be sent.
	if text == "" {
		text = fmt.Sprintf("Tool %q failed", v.s.Name)
	}
	text = tool.Truncate(text, 64<<10)
	raw, err := json.Marshal(text)
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(tool.Truncate(text, 200), "\n")
	_ = v.send(r, reply{Error: raw}, nats.Header{micro.ErrorHeader: {first}, micro.ErrorCodeHeader: {code}})
}

func (v *server) send(r micro.Request, body reply, header nats.Header) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return v.nc.PublishMsg(&nats.Msg{Subject: r.Reply(), Header: header, Data: data})
}
