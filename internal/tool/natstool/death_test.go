package natstool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// instances serves a tool whose n-th call goes to the n-th of handlers, and reports the keys of the calls.
func instances(t *testing.T, nc *nats.Conn, name string, handlers ...func(m *nats.Msg)) (keys chan string) {
	t.Helper()
	keys = make(chan string, 100)
	n := 0
	_, err := nc.Subscribe(toolkit.Subject(prefix, name), func(m *nats.Msg) {
		var c toolkit.Call
		if err := json.Unmarshal(m.Data, &c); err != nil || n == len(handlers) {
			t.Errorf("call %d of %s: %s, %v", n+1, name, m.Data, err)
			return
		}
		keys <- c.IdempotencyKey
		handlers[n](m)
		n++
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func sign(m *nats.Msg) {
	_ = m.RespondMsg(&nats.Msg{Header: nats.Header{toolkit.HeartbeatHeader: {"1"}}})
}

func answer(m *nats.Msg) { _ = m.Respond([]byte(`{"content":"done"}`)) }

// An instance that dies during a call is noticed long before the deadline. Only an idempotent tool is called
// again, with the same key (I4).
func TestInstanceDies(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	tools := natstool.New(nc, prefix).WithHeartbeat(200 * time.Millisecond)
	cancelled := make(chan struct{}, 100)
	dies := func(m *nats.Msg) {
		if _, err := nc.Subscribe(m.Reply+toolkit.CancelSuffix, func(*nats.Msg) { cancelled <- struct{}{} }); err != nil {
			t.Error(err)
		}
		sign(m)
	}
	once := instances(t, nc, "once", dies)
	r, err := tools.Call(t.Context(), tool.Call{Name: "once", IdempotencyKey: "k"})
	wantError(t, r, err, "called once", "outcome is unknown")
	<-cancelled // it may be alive
	if len(once) != 1 {
		t.Errorf("a tool that is not idempotent was called %d times (I4)", len(once))
	}

	again := instances(t, nc, "again", dies, func(m *nats.Msg) { sign(m); answer(m) })
	r, err = tools.Call(t.Context(), tool.Call{Name: "again", IdempotencyKey: "k", Idempotent: true})
	if err != nil || r.Content != "done" || len(again) != 2 || <-again != "k" || <-again != "k" {
		t.Errorf("Call = %+v, %v, want an answer to the second call", r, err)
	}

	// A call that kills every instance is not sent forever.
	instances(t, nc, "deadly", dies, dies, dies)
	r, err = tools.Call(t.Context(), tool.Call{Name: "deadly", Idempotent: true})
	wantError(t, r, err, "called 3 times", "outcome is unknown")
}

// The last instance dies, and no other is left.
func TestLastInstanceDies(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	sub, err := nc.Subscribe(toolkit.Subject(prefix, "t"), func(m *nats.Msg) { sign(m); _ = m.Sub.Unsubscribe() })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is about to close
	r, err := natstool.New(nc, prefix).WithHeartbeat(200*time.Millisecond).Call(t.Context(), tool.Call{Name: "t", Idempotent: true})
	wantError(t, r, err, "called once", "outcome is unknown", "no other instance")
}

// A slow call does not count as a dead instance, whether or not the service supports heartbeats.
func TestSlowIsNotDead(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	const beat = time.Second // a busy machine may pause the service for two of them
	wait := func(context.Context, toolkit.Call) (toolkit.Result, error) {
		<-time.After(4 * beat) // longer than the silence after which an instance counts as dead
		return toolkit.Result{Content: "done"}, nil
	}
	serve(t, nc, toolkit.Tool{Name: "beats", Handler: wait})
	instances(t, nc, "silent", func(m *nats.Msg) { <-time.After(4 * beat); answer(m) })
	for _, name := range []string{"beats", "silent"} {
		r, err := natstool.New(nc, prefix).WithHeartbeat(beat).Call(t.Context(), tool.Call{Name: name})
		if want := (tool.Result{Content: "done"}); err != nil || !cmp.Equal(r, want) {
			t.Errorf("%s: Call = %+v, %v", name, r, err)
		}
	}
	// A caller of a service that died without having sent a heartbeat waits for the deadline.
	instances(t, nc, "gone", func(*nats.Msg) {})
	ctx, cancel := context.WithTimeout(t.Context(), 5*beat)
	defer cancel()
	if r, err := natstool.New(nc, prefix).WithHeartbeat(beat).Call(ctx, tool.Call{Name: "gone", Idempotent: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Call = %+v, %v", r, err)
	}
}

// Silence while NATS itself is unreachable does not count as a death.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port, err := devserver.FreePort() // no connection takes it while the server is down
	if err != nil {
		t.Fatal(err)
	}
	options := devserver.Options{Dir: dir, Listen: fmt.Sprint("127.0.0.1:", port)}
	server, err := devserver.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() }) // the last one
	url := server.URL()
	back := make(chan struct{}, 10)
	connect := func() *nats.Conn {
		t.Helper()
		nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	caller, service := connect(), connect()
	started, release := make(chan struct{}, 10), make(chan struct{})
	serve(t, service, toolkit.Tool{Name: "t", Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) {
		started <- struct{}{}
		<-release
		return toolkit.Result{Content: "done"}, nil
	}})
	working := make(chan struct{}, 1000)
	if _, err := caller.Subscribe("_INBOX.>", func(*nats.Msg) { working <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	const beat = time.Second // the service may come back up to two of them after the caller
	result := make(chan tool.Result, 1)
	go func() { // ends with the call
		r, err := natstool.New(caller, prefix).WithHeartbeat(beat).Call(t.Context(), tool.Call{Name: "t"})
		if err != nil {
			r = tool.Error(err.Error())
		}
		result <- r
	}()
	<-started
	<-working
	server.Close()
	<-time.After(4 * beat) // longer than the silence after which an instance counts as dead
	if server, err = devserver.Start(options); err != nil {
		t.Fatal(err)
	}
	<-back
	<-back
	// Its subscriptions must be back: an earlier reply would be lost.
	if err := caller.Flush(); err != nil {
		t.Fatal(err)
	}
	close(release)
	if r := <-result; r.IsError || r.Content != "done" {
		t.Errorf("Call = %+v", r)
	}
}

// A progress text of any service is shortened, not only one of a service that uses toolkit.
func TestLargeProgress(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	instances(t, nc, "t", func(m *nats.Msg) {
		header := nats.Header{toolkit.HeartbeatHeader: {"1"}, toolkit.ProgressHeader: {fmt.Sprintf("%q", strings.Repeat("x", 5000))}}
		_ = m.RespondMsg(&nats.Msg{Header: header})
		answer(m)
	})
	var got []string
	r, err := natstool.New(nc, prefix).Call(t.Context(), tool.Call{Name: "t", Progress: func(text string) { got = append(got, text) }})
	if err != nil || r.Content != "done" || len(got) != 1 || len(got[0]) > 1100 {
		t.Errorf("Call = %+v, %v, with %d progress texts: %.20q", r, err, len(got), got)
	}
}

// A disconnection during a call only delays that a death is noticed.
func TestInstanceDiesAfterReconnection(t *testing.T) {
	t.Parallel()
	server := testbed.NATSServer(t)
	service, err := server.Conn("service")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	back := make(chan struct{}, 10)
	caller, err := nats.Connect(server.URL(), nats.ReconnectWait(time.Millisecond), nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(caller.Close)
	instances(t, service, "t", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{toolkit.HeartbeatHeader: {"1"}, toolkit.ProgressHeader: {`"begun"`}}})
	}, answer)
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	r, err := natstool.New(caller, prefix).WithHeartbeat(20*time.Millisecond).Call(ctx, tool.Call{Name: "t", Idempotent: true, Progress: func(string) {
		if err := caller.ForceReconnect(); err != nil {
			t.Error(err)
		}
		<-back
	}})
	if err != nil || r.Content != "done" {
		t.Errorf("Call = %+v, %v, want the answer of another instance", r, err)
	}
}
