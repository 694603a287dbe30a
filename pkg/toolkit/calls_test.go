package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// However a call ends, its service keeps neither the subscription for its cancellation nor its slot. A cancelled call
// is not answered, and not made if it still waited for its slot.
func TestEndedCallsLeaveNothing(t *testing.T) {
	t.Parallel()
	server := testbed.NATSServer(t)
	connect := func(name string) *nats.Conn {
		nc, err := server.Conn(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	service, caller := connect("service"), connect("caller")
	var made []string // one at a time
	waiting := make(chan struct{})
	stop := serve(t, service, toolkit.Tool{Name: "t", Concurrency: 1, Handler: func(ctx context.Context, c toolkit.Call) (toolkit.Result, error) {
		made = append(made, string(c.Arguments))
		switch string(c.Arguments) {
		case `"fails"`:
			return toolkit.Result{}, errors.New("no")
		case `"panics"`:
			panic("no")
		case `"waits"`:
			close(waiting)
			<-ctx.Done()
			return toolkit.Result{}, ctx.Err()
		}
		until, _ := ctx.Deadline()
		return toolkit.Result{Content: until}, nil
	}})
	idle := service.NumSubscriptions()
	ended := func(calls int) {
		t.Helper()
		for {
			m, err := caller.RequestWithContext(t.Context(), "$SRV.STATS.t", nil)
			if err != nil {
				t.Fatal(err)
			}
			var s micro.Stats
			if err := json.Unmarshal(m.Data, &s); err != nil {
				t.Fatal(err)
			}
			if s.Endpoints[0].NumRequests >= calls {
				return
			}
		}
	}
	// begin sends a call and returns the subscription to its replies once it can be cancelled.
	begin := func(arguments string) *nats.Subscription {
		t.Helper()
		replies, err := caller.SubscribeSync(caller.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		m := &nats.Msg{Subject: toolkit.Subject(prefix, "t"), Reply: replies.Subject, Data: []byte(`{"arguments":` + arguments + `}`), Header: nats.Header{toolkit.HeartbeatHeader: {"3600000"}}}
		if err := caller.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		if _, err := replies.NextMsgWithContext(t.Context()); err != nil { // a heartbeat
			t.Fatal(err)
		}
		return replies
	}
	cancel := func(replies *nats.Subscription) {
		t.Helper()
		if err := caller.Publish(replies.Subject+toolkit.CancelSuffix, nil); err != nil {
			t.Fatal(err)
		}
	}

	if err := caller.Publish(toolkit.Subject(prefix, "t"), []byte(`{"arguments":"nobody asks"}`)); err != nil {
		t.Fatal(err)
	}
	far := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range [][2]string{
		{`{"arguments":"works","deadline":"` + far + `"}`, `{"content":"` + far + `"}`},
		{`{"arguments":"fails"}`, `500{"error":"no"}`},
		{`{"arguments":"panics"}`, ""},
		{`nonsense`, ""},
	} {
		if got := ask(t, caller, "t", c[0]); got != c[1] && c[1] != "" {
			t.Errorf("%s = %s, want %s", c[0], got, c[1])
		}
	}
	waits := begin(`"waits"`)
	<-waiting
	queued := begin(`"is queued"`)
	cancel(queued)
	ended(5)
	cancel(waits)
	ended(6)
	ask(t, caller, "t", `{"arguments":"works again"}`)
	ended(7)
	if n := service.NumSubscriptions(); n != idle {
		t.Errorf("%d subscriptions after the calls, want the %d from before", n, idle)
	}
	if err := errors.Join(stop(), caller.Flush()); err != nil {
		t.Fatal(err)
	}
	if n := service.NumSubscriptions(); n != 0 {
		t.Errorf("%d subscriptions after the service has stopped", n)
	}
	for name, replies := range map[string]*nats.Subscription{"a call": waits, "a queued call": queued} {
		if n, _, err := replies.Pending(); n != 0 || err != nil {
			t.Errorf("%s has %d replies after its cancellation, %v", name, n, err)
		}
	}
	if want := []string{`"works"`, `"fails"`, `"panics"`, `"waits"`, `"works again"`}; !slices.Equal(made, want) {
		t.Errorf("the calls %s were made, want %s", made, want)
	}
}
