//go:build clients

package clients

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// deploy starts NATS, a gateway and a worker as processes, with more variables.
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
	s := deploy(t)
	keys, err := s.StartGateway(t.Context(), "keys", "TURNPIKE_AUTH=keys")
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Client.CreateKey(t.Context(), api.KeyRequest{Name: "client", Tenant: "default", Roles: []string{"viewer", "issuer"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("programs", func(t *testing.T) { // returns after its parallel subtests
		each(t, clients(), func(t *testing.T, l language) {
			p := start(t, l, "test_client", "TURNPIKE_URL="+s.URL, "TURNPIKE_KEYS_URL="+keys, "TURNPIKE_KEY="+made.Key)
			p.succeeds(t)
		})
	})
}

// The examples of the docs work: a tool, and a program that runs an agent with it.
func TestExamples(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	t.Run("programs", func(t *testing.T) {
		each(t, clients(), func(t *testing.T, l language) {
			run(t, l, exampleCommand(l, "greet"), "TURNPIKE_NATS_URL=nats://"+s.NATS.Addr, "TURNPIKE_PREFIX="+rig.Prefix).until(t, "answers calls on")
			p := run(t, l, exampleCommand(l, "submit"), "TURNPIKE_URL="+s.URL)
			p.until(t, "Ada was greeted: ")
			p.succeeds(t)
		})
	})
}

// Tests of a client that need no server.
func TestUnits(t *testing.T) {
	t.Parallel()
	each(t, clients(), func(t *testing.T, l language) { start(t, l, "test_unit").succeeds(t) })
}

const (
	hello    = `{"model": {"provider": "scripted", "responses": [{"text": "Hello."}]}}`
	approval = `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "pay", "id": "c1", "arguments": {}}]}, {"text": "Done."}]},
		"tools": [{"name": "pay", "kind": "client", "approval": "always", "schema": {"type": "object"}}]}`
)

// The gateway is killed while a client follows a run, and after it has made a run whose submission it
// does not answer. The client sees each event once, and its submission makes one run.
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
		for name, definition := range map[string]string{"hello": hello, "approval": approval} {
			if _, err := s.Client.PutAgent(ctx, name, []byte(definition)); err != nil {
				t.Fatal(err)
			}
		}
		p := start(t, l, "crash_client", "TURNPIKE_URL=http://"+proxy.Addr())
		p.until(t, "following")
		_, id, _ := strings.Cut(p.output(), "run ")
		id, _, _ = strings.Cut(id, "\n")
		s.Gateway.Kill(0)
		if err := rig.Until(ctx, testbed.Patience, "the gateway is back", s.Client.Ready); err != nil {
			t.Fatal(err)
		}
		for _, signal := range []api.SignalRequest{
			{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}, {ToolResults: []api.ToolResult{{CallID: "c1", Content: api.Text("paid")}}},
		} {
			testbed.Eventually(t, "the signal is accepted", func() error {
				_, err := s.Client.Signal(ctx, id, signal)
				return err
			})
		}
		p.until(t, "followed")

		proxy.LoseReplies(true)
		p.say(t, "submit")
		if err := rig.Until(ctx, testbed.Patience, "the run is made", func(ctx context.Context) error {
			page, err := s.Client.List(ctx, url.Values{"metadata.once": {"yes"}})
			if err == nil && len(page.Items) != 1 {
				err = fmt.Errorf("there are %d runs", len(page.Items))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		s.Gateway.Kill(time.Second)
		proxy.LoseReplies(false)
		p.until(t, "submitted")
		p.succeeds(t)
	})
}
