package toolkit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// The permissions in docs/how-to/nats-tools.md are sufficient for a service, and minimal.
func TestPermissions(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/how-to/nats-tools.md")
	if err != nil {
		t.Fatal(err)
	}
	permissions := regexp.MustCompile(`(?m)^permissions .*$`).Find(doc)
	path := filepath.Join(t.TempDir(), "nats.conf")
	conf := fmt.Sprintf("authorization { users = [{user: worker, password: w}, {user: service, password: s, %s}] }", permissions)
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := testbed.NATSWith(t, func(o *server.Options) { o.Users = opts.Users })
	connect := func(user, password string, denied func(error)) *nats.Conn {
		t.Helper()
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, password), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied(err) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	refused := make(chan error, 10)
	service := connect("service", "s", func(err error) { refused <- err })
	worker := connect("worker", "w", func(err error) { t.Error(err) })
	ended := make(chan struct{})
	stop, err := toolkit.Serve(service, "turnpike", toolkit.Tool{Name: "convert", Handler: func(ctx context.Context, _ toolkit.Call) (toolkit.Result, error) {
		<-ctx.Done()
		close(ended)
		return toolkit.Result{}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })

	if _, err := worker.RequestWithContext(t.Context(), "$SRV.INFO.convert", nil); err != nil {
		t.Error(err)
	}
	inbox := worker.NewInbox()
	replies, err := worker.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	call := &nats.Msg{Subject: "turnpike.tool.convert", Reply: inbox, Data: []byte(`{}`), Header: nats.Header{toolkit.HeartbeatHeader: {"50"}}}
	if err := worker.PublishMsg(call); err != nil {
		t.Fatal(err)
	}
	for range 3 { // heartbeats
		if _, err := replies.NextMsgWithContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := worker.Publish(inbox+toolkit.CancelSuffix, nil); err != nil {
		t.Fatal(err)
	}
	<-ended
	if len(refused) > 0 {
		t.Error(<-refused)
	}

	// The service can neither call other tools nor receive their requests.
	if err := service.Publish("turnpike.tool.refund", nil); err != nil {
		t.Fatal(err)
	}
	t.Log(<-refused)
	if _, err := service.SubscribeSync("turnpike.tool.refund"); err != nil {
		t.Fatal(err)
	}
	t.Log(<-refused)
}
