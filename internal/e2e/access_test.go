package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// An operator bootstraps a deployment of processes with authentication, and two tenants use it side by side,
// over HTTP and NATS.
func TestTenantsOfOneDeployment(t *testing.T) {
	t.Parallel()
	operators := freeAddr(t)
	s := newDeployment(t, 1, "TURNPIKE_AUTH=keys", "TURNPIKE_EVENT_FEED=on", "TURNPIKE_ADMIN_ADDR="+operators)
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cli := func(token string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "turnpike"), append([]string{"--server", s.url}, args...)...)
		cmd.Env = append(cmd.Environ(), append(s.env, "TURNPIKE_TOKEN="+token)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("turnpike %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if _, err := s.client.List(t.Context(), nil); !hasStatus(err, http.StatusUnauthorized) {
		t.Fatalf("a list without a key: %v", err)
	}
	for url, want := range map[string]int{"http://" + operators + "/metrics": http.StatusOK, s.url + "/metrics": http.StatusNotFound} {
		eventually(t, url, func() error {
			code, body, err := get(t, url)
			if err == nil && (code != want || want == http.StatusOK && !strings.Contains(body, "turnpike_http_requests_total")) {
				err = fmt.Errorf("%d, want %d: %.200s", code, want, body)
			}
			return err
		})
	}
	admin := cli("", "keys", "create", "--bootstrap")
	of := func(tenant string) *api.Client {
		key := cli(admin, "--tenant", tenant, "keys", "create", "--role", "author,submitter,approver,operator,admin", "--name", "all of "+tenant)
		return api.New(s.url, api.WithToken(key))
	}
	one, two := of("one"), of("two")
	for name, c := range map[string]*api.Client{"one": one, "two": two} {
		definition := fmt.Sprintf("model: {provider: scripted, responses: [{text: answer of %s, delay: 1ms}]}", name)
		if _, err := c.PutAgent(t.Context(), "a", []byte(definition)); err != nil {
			t.Fatal(err)
		}
		run, events, err := c.Do(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("x")}, "", nil)
		if err != nil || run.Output == nil || *run.Output != "answer of "+name || run.Tenant != name {
			t.Fatalf("run of tenant %s = %+v, %v", name, run, err)
		}
		if len(events) == 0 || !strings.Contains(string(events[0].Data), `"by":{"principal":"key:`) {
			t.Errorf("the first event does not name the submitter: %s", events[0].Data)
		}
	}

	js, err := jetstream.New(s.nats)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(subject, body string, header ...string) {
		t.Helper()
		m := nats.NewMsg(s.prefix() + "." + subject)
		m.Data = []byte(body)
		for i := 0; i < len(header); i += 2 {
			m.Header.Set(header[i], header[i+1])
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	// Over NATS, the subject names the tenant and bounds where the reply may go.
	replies, err := s.nats.SubscribeSync(s.prefix() + ".t.one.reply.>")
	if err != nil {
		t.Fatal(err)
	}
	feed, err := s.nats.SubscribeSync(s.prefix() + ".t.one.events.*")
	if err != nil {
		t.Fatal(err)
	}
	publish("t.one.submit.a", `{"input":"x"}`, "Turnpike-Reply", s.prefix()+".t.one.reply.here")
	m, err := replies.NextMsg(30 * time.Second)
	if err != nil || !strings.Contains(string(m.Data), "answer of one") {
		t.Fatalf("reply = %v, %v", m, err)
	}
	for submitted := ""; !strings.Contains(submitted, `"by":{"principal":"nats:one"`); submitted = string(m.Data) { // the feed may still get events of the previous run
		if m, err = feed.NextMsg(30 * time.Second); err != nil {
			t.Fatalf("the feed has no event of the run: %v", err)
		}
	}
	// An abort on one tenant's subject does not reach another tenant's run.
	if _, err := two.PutAgent(t.Context(), "slow", []byte("model: {provider: scripted, responses: [{text: late, delay: 1h}]}")); err != nil {
		t.Fatal(err)
	}
	run, err := two.Submit(t.Context(), api.SubmitRequest{Agent: "slow", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run is at work", func() error {
		if run, err = two.Get(t.Context(), run.ID); err == nil && run.Status != "running" {
			err = errors.New(run.Status)
		}
		return err
	})
	publish("t.one.abort."+run.ID, `{"reason":"not yours"}`)
	publish("abort."+run.ID, `{"reason":"not yours"}`)
	eventually(t, "the abort of another's run is a dead letter", func() error {
		dead, err := one.Dead(t.Context(), 0, 10)
		if err == nil && len(dead.Items) != 1 {
			err = fmt.Errorf("%d dead letters", len(dead.Items))
		}
		return err
	})
	if run, err = two.Get(t.Context(), run.ID); err != nil || run.Status != "running" {
		t.Errorf("after another tenant's abort: %s, %v", run.Status, err)
	}
	publish("t.two.abort."+run.ID, `{"reason":"ours"}`)
	eventually(t, "the tenant's own abort ends it", func() error {
		if run, err = two.Get(t.Context(), run.ID); err == nil && run.Status != "cancelled" {
			err = errors.New(run.Status)
		}
		return err
	})
	if _, err := one.Get(t.Context(), run.ID); !hasStatus(err, http.StatusNotFound) {
		t.Errorf("a run of another tenant: %v", err)
	}
	eventually(t, "the audit says who aborted it", func() error {
		if out := cli(admin, "--tenant", "two", "audit"); !strings.Contains(out, "nats:two") || !strings.Contains(out, "run.cancel") || strings.Contains(out, "nats:one") {
			return errors.New(out)
		}
		return nil
	})
}

func hasStatus(err error, status int) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status == status
}

// A gateway on a public address refuses to start without authentication, unless a flag confirms it.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(freeAddr(t), ":")
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "turnpike"), "dev", "--data-dir", t.TempDir(), "--addr", "0.0.0.0:"+port)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "TURNPIKE_AUTH=keys") || !strings.Contains(string(out), "TURNPIKE_INSECURE=1") {
		t.Errorf("turnpike dev on all addresses: %v\n%s", err, out)
	}
}
