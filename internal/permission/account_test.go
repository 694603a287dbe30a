package permission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/permission"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// JetStream acknowledges a submission on any reply subject. An acknowledgement on the abort subject of any
// tenant ends no run, and makes no dead letter.
func TestAnswersAreNoAborts(t *testing.T) {
	t.Parallel()
	d := start(t)
	c, _ := d.runs(noRedis(t))
	if _, err := c.PutTenant(t.Context(), "acme", api.TenantSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutAgent(t.Context(), "slow", []byte(slow)); err != nil {
		t.Fatal(err)
	}
	run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "slow", Input: json.RawMessage(`"go"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	aborted, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "slow", Input: json.RawMessage(`"go"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	observer, _ := d.connect("observer")
	aborts, err := observer.SubscribeSync("turnpike.abort.*")
	if err != nil {
		t.Fatal(err)
	}
	dead, err := observer.SubscribeSync("turnpike.dead.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := observer.Flush(); err != nil {
		t.Fatal(err)
	}
	acme, _ := d.connect("client-acme")
	if err := acme.PublishRequest("turnpike.t.acme.submit.nobody", "turnpike.abort."+run.ID, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if m, err := aborts.NextMsgWithContext(ctx); err != nil || !strings.Contains(string(m.Data), "TURNPIKE_SUBMIT_acme") {
		t.Fatalf("the acknowledgement did not arrive: %v, %v", m, err)
	}
	// The gateway takes aborts in their order.
	client, _ := d.connect("client")
	if err := client.Publish("turnpike.abort."+aborted.ID, nil); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the other run is cancelled", func() error {
		got, err := c.Get(t.Context(), aborted.ID)
		if err == nil && got.Status != "cancelled" {
			err = fmt.Errorf("its status is %s", got.Status)
		}
		return err
	})
	if got, err := c.Get(t.Context(), run.ID); err != nil || got.Status == "cancelled" {
		t.Errorf("the run is %+v, %v before it is cancelled", got, err)
	}
	if n, _, err := dead.Pending(); err != nil || n > 0 {
		t.Errorf("%d dead letters, %v; want none", n, err)
	}
	if _, err := c.Cancel(t.Context(), run.ID, "enough"); err != nil {
		t.Error(err)
	}
}

// Clients in their own account can submit, abort and subscribe, and cannot direct replies to other subjects.
func TestAccountOfClients(t *testing.T) {
	t.Parallel()
	account, err := permission.ForAccount(permission.Scope{Prefix: "turnpike", Tenant: "acme"}, "ACME", "TURNPIKE")
	if err != nil {
		t.Fatal(err)
	}
	of := func(names ...string) string {
		var conf strings.Builder
		for _, name := range names {
			u := users[name]
			u.scope.Prefix = "turnpike"
			n, err := permission.ForNATS(u.role, u.scope)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&conf, "{user: %s, password: of-%s\n%s}\n", name, name, n)
		}
		return "users: [" + conf.String() + "]\n"
	}
	conf := "accounts {\nTURNPIKE {\njetstream: enabled\n" + of("gateway", "worker", "observer") + account.Exports + "}\nACME {\n" + of("client-acme") + account.Imports + "}\n}\n"
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatalf("%v in\n%s", err, conf)
	}
	d := deployment{t, testbed.NATSWith(t, func(o *server.Options) { o.Users, o.Accounts = opts.Users, opts.Accounts }).ClientURL()}
	c, at := d.runs(noRedis(t))
	if _, err := c.PutTenant(t.Context(), "acme", api.TenantSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.New(at, api.WithTenant("acme")).PutAgent(t.Context(), "slow", []byte(slow)); err != nil {
		t.Fatal(err)
	}
	if ended := d.submits("client-acme", "turnpike.t.acme.", "slow", true); ended.Status != "cancelled" || ended.Tenant != "acme" {
		t.Errorf("the aborted run of acme ended %+v", ended)
	}

	inside, _ := d.connect("gateway")
	aborts, err := inside.SubscribeSync("turnpike.abort.*")
	if err != nil {
		t.Fatal(err)
	}
	state, err := inside.SubscribeSync("turnpike.state.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.Flush(); err != nil {
		t.Fatal(err)
	}
	acme, _ := d.connect("client-acme")
	for _, subject := range []string{"turnpike.abort.run_1", "turnpike.state.document.tenant.acme"} {
		if err := acme.PublishRequest("turnpike.t.acme.submit.nobody", subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := acme.RequestWithContext(t.Context(), "turnpike.t.acme.submit.nobody", []byte("{}")); err != nil { // it is answered after those
		t.Fatal(err)
	}
	if err := inside.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, heard := range []*nats.Subscription{aborts, state} {
		for n, _, _ := heard.Pending(); n > 0; n-- {
			m, err := heard.NextMsgWithContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(m.Data), `"stream"`) {
				t.Errorf("a reply arrived at %s: %s", m.Subject, m.Data)
			}
		}
	}
}

func TestForAccountRefuses(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"", "T"}, {"A B", "T"}, {"T", "T"}, {"A", "T}"}} {
		if a, err := permission.ForAccount(permission.Scope{Prefix: "turnpike", Tenant: "acme"}, names[0], names[1]); err == nil {
			t.Errorf("ForAccount %q = %+v", names, a)
		}
	}
}
