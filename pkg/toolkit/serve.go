package toolkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"
)

// leastHeartbeat is the minimum heartbeat interval that a caller can request.
const leastHeartbeat = 50 * time.Millisecond

// maxProgress bounds the bytes of one report of progress.
const maxProgress = 1000

// Serve answers calls of the default tenant's tools on nc until stop is called. prefix is that of the deployment's
// subjects, usually "turnpike". Any number of processes may serve one tool; each call goes to one of them. The error
// reports an invalid tool or a failed connection.
//
// stop accepts no more calls and waits until those in flight are answered. It must be called at most once. It does not
// close nc.
func Serve(nc *nats.Conn, prefix string, tools ...Tool) (stop func() error, err error) {
	return ServeTenant(nc, prefix, DefaultTenant, tools...)
}

// ServeTenant is Serve for the tools of a tenant, which only runs of that tenant can call. An empty tenant means the
// default one.
func ServeTenant(nc *nats.Conn, prefix, tenant string, tools ...Tool) (stop func() error, err error) {
	if tenant != "" && !tenantPattern.MatchString(tenant) {
		return nil, fmt.Errorf("serve tools: the tenant %.100q is not valid: use 1 to 40 lowercase letters, digits and hyphens", tenant)
	}
	var servers []*server
	stop = func() error {
		var errs []error
		for _, s := range servers {
			errs = append(errs, s.leave())
		}
		for _, s := range servers {
			s.finish()
		}
		// The server has received the replies when Flush returns.
		if err := nc.Flush(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, fmt.Errorf("stop tools: %w", err))
		}
		return errors.Join(errs...)
	}
	for _, t := range tools {
		s, err := serve(nc, prefix, tenant, t)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		servers = append(servers, s)
	}
	// The server has received the subscriptions when Flush returns.
	if err := nc.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("serve tools: %w", err), stop())
	}
	return stop, nil
}

// server runs the calls of one tool.
//
// It implements the NATS micro protocol without its library: the library counts and times a call by
// its handler alone, and drops on Stop the calls that it has not started. Here calls run
// concurrently.
type server struct {
	nc      *nats.Conn
	prefix  string
	tenant  string
	tool    Tool
	subject string
	id      string
	started time.Time

	slots   chan struct{} // one element for each call that runs
	calls   sync.WaitGroup
	sub     *nats.Subscription
	drained chan struct{}
	control []*nats.Subscription

	mu    sync.Mutex
	stats micro.EndpointStats
}

func serve(nc *nats.Conn, prefix, tenant string, t Tool) (*server, error) {
	t, err := t.checked()
	if err != nil {
		return nil, err
	}
	s := &server{
		nc: nc, prefix: prefix, tenant: tenant, tool: t, subject: Subject(Root(prefix, tenant), t.Name), id: nuid.Next(), started: time.Now().UTC(),
		slots: make(chan struct{}, t.Concurrency), drained: make(chan struct{}),
	}
	if err := s.answerDiscovery(); err != nil {
		return nil, fmt.Errorf("serve tool %s: %w", t.Name, err)
	}
	if s.sub, err = nc.QueueSubscribe(s.subject, micro.DefaultQueueGroup, s.take); err != nil {
		s.stopDiscovery()
		return nil, fmt.Errorf("serve tool %s: %w", t.Name, err)
	}
	s.sub.SetClosedHandler(func(string) { close(s.drained) })
	return s, nil
}

// leave stops discovery and unsubscribes. Calls that the NATS server has already sent are still accepted.
func (s *server) leave() error {
	s.stopDiscovery()
	if err := s.sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("stop tool %s: %w", s.tool.Name, err)
	}
	return nil
}

// finish waits until every call is answered.
func (s *server) finish() {
	<-s.drained
	s.calls.Wait()
}

// take starts one call in a goroutine of its own: the client library calls take sequentially, so a slow call would
// delay the next.
func (s *server) take(m *nats.Msg) {
	if m.Reply == "" {
		return // the caller expects no answer
	}
	s.calls.Go(func() {
		began := time.Now()
		failure := s.answer(m)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stats.NumRequests++
		s.stats.ProcessingTime += time.Since(began)
		s.stats.AverageProcessingTime = s.stats.ProcessingTime / time.Duration(s.stats.NumRequests)
		if failure != "" {
			s.stats.NumErrors++
			s.stats.LastError = failure
		}
	})
}

// answer makes one call and replies. It returns the error text that the caller received, or "".
func (s *server) answer(m *nats.Msg) (failure string) {
	var c Call
	if err := json.Unmarshal(m.Data, &c); err != nil {
		return s.refuse(m, "400", fmt.Sprintf("The request to tool %q is not a valid request of a worker (%v): send a JSON object with the field arguments", s.tool.Name, err))
	}
	c.TraceParent = m.Header.Get(TraceHeader)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !c.Deadline.IsZero() {
		var done context.CancelFunc
		ctx, done = context.WithDeadline(ctx, c.Deadline)
		defer done()
	}
	if sub, err := s.nc.Subscribe(m.Reply+CancelSuffix, func(*nats.Msg) { cancel() }); err == nil {
		defer sub.Unsubscribe() //nolint:errcheck // it fails only on a closed connection
	}
	progress, stop := s.heartbeats(m)
	defer stop()
	ctx = context.WithValue(ctx, progressKey{}, progress)
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return "" // the caller no longer listens
	}
	result, err := s.handle(ctx, c)
	stop()
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return "" // as above
	}
	if _, ok := errors.AsType[*ArgumentsError](err); ok {
		return s.refuse(m, "400", err.Error())
	}
	if err != nil {
		return s.refuse(m, "500", err.Error())
	}
	reply := Reply{Images: result.Images, Files: result.Files, Pending: result.Pending}
	if result.Content == nil {
		result.Content = ""
	}
	if reply.Content, err = json.Marshal(result.Content); err != nil {
		return s.refuse(m, "500", fmt.Sprintf("Tool %q was called, but its result cannot be written as JSON (%v). Continue without it; the author of the tool must correct it", s.tool.Name, err))
	}
	data, err := json.Marshal(reply)
	if err == nil {
		err = s.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Data: data})
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return s.refuse(m, "500", fmt.Sprintf("Tool %q was called, but its result has %d bytes, and the NATS server accepts at most %d: return less, or raise max_payload of the server", s.tool.Name, len(data), s.nc.MaxPayload()))
	}
	return ""
}

// handle calls the handler; a panic in it fails this call only.
func (s *server) handle(ctx context.Context, c Call) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Tool %q failed: it panicked: %v. The call may have had an effect: check that before you repeat it; the author of the tool must correct it", s.tool.Name, p) //nolint:staticcheck // a sentence for the model
		}
	}()
	return s.tool.Handler(ctx, c)
}

// heartbeats sends heartbeats until stop is called, if the request asks for them. progress sends a heartbeat with a
// report of progress; after stop, or if the request asks for no heartbeats, it sends nothing. stop may be called again.
func (s *server) heartbeats(m *nats.Msg) (progress func(text string), stop func()) {
	ms, err := strconv.Atoi(m.Header.Get(HeartbeatHeader))
	if err != nil || ms <= 0 {
		return func(string) {}, func() {}
	}
	var mu sync.Mutex // no progress follows the reply
	over := false
	progress = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if raw, err := json.Marshal(strings.ToValidUTF8(text[:min(len(text), maxProgress)], "")); err == nil && !over {
			_ = s.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{HeartbeatHeader: {strconv.Itoa(ms)}, ProgressHeader: {string(raw)}}})
		}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	sign := &nats.Msg{Subject: m.Reply, Header: nats.Header{HeartbeatHeader: {strconv.Itoa(ms)}}}
	_ = s.nc.PublishMsg(sign)
	go func() { // ends with stop
		defer close(ended)
		tick := time.NewTicker(max(time.Duration(ms)*time.Millisecond, leastHeartbeat))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = s.nc.PublishMsg(sign)
			case <-done:
				return
			}
		}
	}()
	return progress, sync.OnceFunc(func() {
		mu.Lock()
		over = true
		mu.Unlock()
		close(done)
		<-ended
	})
}

// refuse replies with an error, in the body for models and in the headers for clients of NATS micro. It returns the
// first line of the error.
func (s *server) refuse(m *nats.Msg, code, text string) string {
	// An empty error would not be seen as one, and a huge one not be sent.
	if text == "" {
		text = fmt.Sprintf("Tool %q failed without a message. The call may have had an effect: check that before you repeat it", s.tool.Name)
	}
	text = strings.ToValidUTF8(text[:min(len(text), 64<<10)], "")
	first, _, _ := strings.Cut(text, "\n")
	first = strings.ToValidUTF8(first[:min(len(first), 200)], "")
	raw, err := json.Marshal(text)
	if err != nil {
		return first
	}
	data, err := json.Marshal(Reply{Error: raw})
	if err != nil {
		return first
	}
	_ = s.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{micro.ErrorHeader: {first}, micro.ErrorCodeHeader: {code}}, Data: data})
	return first
}
