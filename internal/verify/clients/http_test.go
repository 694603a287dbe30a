//go:build clients

package clients

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// deploy starts NATS, a gateway and a worker as processes, with extra variables.
func deploy(t *testing.T, env ...string) *rig.Deployment {
	t.Helper()
	bin, err := services()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := rig.Deploy(ctx, rig.Config{Bin: bin, Dir: t.TempDir(), JetStream: true, Env: env})
	t.Cleanup(func() {
		cancel()
		_ = s.Wait()
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The test program of each client passes against a real deployment.
func TestClient(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(receiver.Close)
	s := deploy(t, "TURNPIKE_SECRET_GITHUB=It's a Secret to Everybody", "TURNPIKE_SECRET_RECEIVER=a secret", "TURNPIKE_HTTP_ALLOW="+receiver.Listener.Addr().String())
	keys, err := s.StartGateway(t.Context(), "keys", "TURNPIKE_AUTH=keys")
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Client.CreateKey(t.Context(), api.KeyRequest{Name: "client", Tenant: "default", Roles: []string{"viewer", "issuer"}})
	if err != nil {
		t.Fatal(err)
	}
	feed(t, s)
	t.Run("programs", func(t *testing.T) { // returns after its parallel subtests
		each(t, clients(), func(t *testing.T, l language) {
			p := start(t, l, "test_client", "TURNPIKE_URL="+s.URL, "TURNPIKE_KEYS_URL="+keys, "TURNPIKE_KEY="+made.Key, "TURNPIKE_RECEIVER_URL="+receiver.URL)
			p.succeeds(t)
		})
	})
}

// feed publishes what test_client reads: a message for triggers, and a submission for an unknown agent, which
// becomes a dead letter.
func feed(t *testing.T, s *rig.Deployment) {
	t.Helper()
	publish(t, s, "ANSWERS", "answers.color", `{"text": "The red one."}`)
	for _, l := range clients() {
		publish(t, s, "", rig.Prefix+".submit.late-"+strings.ToLower(l.name), `{"input": "Hi"}`)
	}
	testbed.Eventually(t, "the submissions are dead letters", func() error {
		letters, err := s.Client.Dead(t.Context(), 0, 0)
		if err == nil && len(letters.Items) != len(clients()) {
			err = fmt.Errorf("there are %d dead letters", len(letters.Items))
		}
		return err
	})
}

// publish publishes a message to a JetStream stream, which it creates unless its name is empty.
func publish(t *testing.T, s *rig.Deployment, stream, subject, message string) {
	t.Helper()
	js, err := jetstream.New(s.Conn)
	if err == nil && stream != "" {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}})
	}
	if err == nil {
		_, err = js.Publish(t.Context(), subject, []byte(message))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The examples in the docs work: a tool, a program that runs an agent with it, one that uses memory and
// schedules, one with files, and one with a hook and a trigger.
func TestExamples(t *testing.T) {
	t.Parallel()
	s := deploy(t, "TURNPIKE_SECRET_GITHUB_WEBHOOK=It's a Secret to Everybody")
	publish(t, s, "ORDERS", "orders.paid", `{"number": 17}`)
	t.Run("programs", func(t *testing.T) {
		each(t, clients(), func(t *testing.T, l language) {
			run(t, l, exampleCommand(l, "greet"), "TURNPIKE_NATS_URL=nats://"+s.NATS.Addr, "TURNPIKE_PREFIX="+rig.Prefix).until(t, "answers calls on")
			p := run(t, l, exampleCommand(l, "submit"), "TURNPIKE_URL="+s.URL)
			p.until(t, "Ada was greeted: ")
			p.succeeds(t)
			p = run(t, l, exampleCommand(l, "remember"), "TURNPIKE_URL="+s.URL)
			p.until(t, "has version 2 now, not 1")
			p.until(t, "Nothing is new.")
			p.succeeds(t)
			p = run(t, l, exampleCommand(l, "read"), "TURNPIKE_URL="+s.URL)
			p.until(t, "I have read both.")
			p.succeeds(t)
			p = run(t, l, exampleCommand(l, "receive"), "TURNPIKE_URL="+s.URL)
			p.until(t, "GitHub delivers to /v1/hooks/triage.")
			p.until(t, "0 orders became dead letters.")
			p.succeeds(t)
		})
	})
	testbed.Eventually(t, "the order starts a run", func() error {
		page, err := s.Client.List(t.Context(), url.Values{"metadata.trigger": {"orders"}, "status": {"completed"}})
		if err == nil && len(page.Items) != 1 {
			err = fmt.Errorf("there are %d runs", len(page.Items))
		}
		return err
	})
}

// The unit tests of each client pass; they need no server.
func TestUnits(t *testing.T) {
	t.Parallel()
	each(t, clients(), func(t *testing.T, l language) { start(t, l, "test_unit").succeeds(t) })
}

const (
	hello    = `{"model": {"provider": "scripted", "responses": [{"text": "Hello."}]}}`
	approval = `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "pay", "id": "c1", "arguments": {}}]}, {"text": "Done."}]},
		"tools": [{"name": "pay", "kind": "client", "approval": "always", "schema": {"type": "object"}}]}`
)

// The gateway is killed while a client follows a run, after changes whose responses are lost, and while the
// client waits for a schedule's run. The client receives each event once, and each change is made once.
func TestGatewayIsKilled(t *testing.T) {
	t.Parallel()
	each(t, clients(), func(t *testing.T, l language) {
		s := deploy(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		at, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := rig.NewProxy(at.Host)
		if err != nil {
			t.Fatal(err)
		}
		go proxy.Run(ctx) // ends with ctx
		prepare(t, s.Client)
		p := start(t, l, "crash_client", "TURNPIKE_URL=http://"+proxy.Addr())
		p.until(t, "following")
		s.Gateway.Kill(0)
		finish(t, s.Client, p.after("run "))
		p.until(t, "followed")

		proxy.LoseReplies(true)
		p.say(t, "change")
		testbed.Eventually(t, "the changes are made", func() error { return changed(ctx, s.Client) })
		s.Gateway.Kill(time.Second)
		proxy.LoseReplies(false)
		p.until(t, "submitted")

		p.until(t, "waits")
		s.Gateway.Kill(0)
		finish(t, s.Client, p.after("waits "))
		p.until(t, "done")
		p.succeeds(t)
	})
}

// prepare creates what crash_client uses.
func prepare(t *testing.T, c *api.Client) {
	t.Helper()
	for name, definition := range map[string]string{"hello": hello, "approval": approval} {
		if _, err := c.PutAgent(t.Context(), name, []byte(definition)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"asks", "old"} {
		settings := api.ScheduleSettings{Cron: "@yearly", Paused: true, Run: api.SubmitRequest{Agent: "approval", Input: api.Text("Hi")}}
		if _, err := c.PutSchedule(t.Context(), name, settings); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.PutMemoryFile(t.Context(), "tenant", "old.md", "old", 0); err != nil {
		t.Fatal(err)
	}
}

// changed returns nil once the changes of crash_client have taken effect.
func changed(ctx context.Context, c *api.Client) error {
	for key, value := range map[string]string{"metadata.once": "yes", "metadata.schedule": "asks", "status": "cancelled"} {
		page, err := c.List(ctx, url.Values{key: {value}})
		if err == nil && len(page.Items) != 1 {
			err = fmt.Errorf("there are %d runs with %s=%s", len(page.Items), key, value)
		}
		if err != nil {
			return err
		}
	}
	if _, err := c.MemoryFile(ctx, "tenant", "new.md"); err != nil {
		return err
	}
	_, file := c.MemoryFile(ctx, "tenant", "old.md")
	_, schedule := c.Schedule(ctx, "old")
	for _, err := range []error{file, schedule} {
		if problem, ok := errors.AsType[*api.Problem](err); !ok || problem.Status != http.StatusNotFound {
			return cmp.Or(err, errors.New("a document to be deleted is still readable"))
		}
	}
	return nil
}

// finish ends a run of the agent approval, once the gateway answers.
func finish(t *testing.T, c *api.Client, id string) {
	t.Helper()
	for _, signal := range []api.SignalRequest{
		{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}, {ToolResults: []api.ToolResult{{CallID: "c1", Content: api.Text("paid")}}},
	} {
		testbed.Eventually(t, "the signal is accepted", func() error {
			_, err := c.Signal(t.Context(), id, signal)
			return err
		})
	}
}
