package natstool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// observed is a context that calls waits when a context with a deadline is derived from it, and checked when its error
// is read. Both are nil until a call has received a heartbeat; one goroutine uses them.
type observed struct {
	context.Context

	waits, checked func()
}

func (o *observed) Deadline() (time.Time, bool) {
	if o.waits != nil {
		o.waits()
	}
	return o.Context.Deadline()
}

func (o *observed) Err() error {
	if o.checked != nil {
		o.checked()
	}
	return o.Context.Err()
}

// silent serves a tool whose instance sends one heartbeat, with a progress text, and then replies when reply is called:
// the reply has reached the server of NATS when reply returns.
func silent(t *testing.T, nc *nats.Conn, name string) (reply func()) {
	t.Helper()
	calls := make(chan *nats.Msg, 1)
	instances(t, nc, name, func(m *nats.Msg) {
		calls <- m
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{toolkit.HeartbeatHeader: {"1"}, toolkit.ProgressHeader: {`"begun"`}}})
	})
	return func() {
		answer(<-calls)
		if err := nc.Flush(); err != nil {
			t.Error(err)
		}
	}
}

// After a reconnection of the caller, the first missing heartbeats say nothing about the instance: they may have been
// sent while the caller was disconnected.
func TestSilenceDuringAReconnection(t *testing.T) {
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
	reply := silent(t, service, "t")
	ctx := &observed{Context: t.Context()}
	periods := 0
	r, err := natstool.New(caller, prefix).WithHeartbeat(20*time.Millisecond).Call(ctx, tool.Call{Name: "t", Progress: func(string) {
		if err := caller.ForceReconnect(); err != nil {
			t.Error(err)
		}
		<-back
		if err := caller.Flush(); err != nil { // its subscriptions are back
			t.Error(err)
		}
		ctx.waits = func() {
			if periods++; periods == 2 { // the heartbeats of one period are missing
				reply()
			}
		}
	}})
	if err != nil || r.Content != "done" {
		t.Errorf("Call = %+v, %v, after %d periods, want the answer of the instance", r, err, periods)
	}
}

// A message that arrives too late for its period, because this process paused, still counts.
func TestSilenceOfAPausedCaller(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	reply := silent(t, nc, "t")
	ctx := &observed{Context: t.Context()}
	r, err := natstool.New(nc, prefix).WithHeartbeat(20*time.Millisecond).Call(ctx, tool.Call{Name: "t", Progress: func(string) {
		ctx.checked = func() { // the period is over
			ctx.checked = nil
			reply()
		}
	}})
	if err != nil || r.Content != "done" {
		t.Errorf("Call = %+v, %v, want the answer of the instance", r, err)
	}
}

// A reply is no heartbeat, although the service copies the headers of the request, or sends no data.
func TestReplyIsNoHeartbeat(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	beat := func(name, value string) nats.Header {
		return nats.Header{toolkit.HeartbeatHeader: {"1"}, name: {value}}
	}
	for name, tt := range map[string]struct {
		reply nats.Msg
		want  string
	}{
		"data":  {nats.Msg{Header: beat("A", "b"), Data: []byte(`{"content":"sold out"}`)}, "sold out"},
		"code":  {nats.Msg{Header: beat(micro.ErrorCodeHeader, "409")}, "(code 409)"},
		"error": {nats.Msg{Header: beat(micro.ErrorHeader, "no stock")}, "no stock"},
		"empty": {nats.Msg{Header: nats.Header{"A": {"b"}}}, "its reply is neither"},
	} {
		instances(t, nc, name, func(m *nats.Msg) { _ = m.RespondMsg(&tt.reply) })
		r, err := natstool.New(nc, prefix).WithHeartbeat(20*time.Millisecond).Call(t.Context(), tool.Call{Name: name})
		if err != nil || !strings.Contains(r.Content, tt.want) {
			t.Errorf("%s: Call = %+v, %v, want %q in it", name, r, err, tt.want)
		}
	}
}
