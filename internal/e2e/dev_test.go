package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// cli runs the command line as a user would.
type cli struct {
	t   *testing.T
	url string
}

// run returns the output and the exit code of a command.
func (c cli) run(args ...string) (out string, code int) {
	c.t.Helper()
	dir, err := build()
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "turnpike"), args...)
	cmd.Env = append(os.Environ(), "TURNPIKE_URL="+c.url)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("turnpike %s: %v", strings.Join(args, " "), err)
	}
	return b.String(), cmd.ProcessState.ExitCode()
}

// want runs a command that must print text and exit with code.
func (c cli) want(code int, text string, args ...string) string {
	c.t.Helper()
	out, got := c.run(args...)
	if got != code || !strings.Contains(out, text) {
		c.t.Fatalf("turnpike %s\nexits %d and prints:\n%s\nwant %d and %q", strings.Join(args, " "), got, out, code, text)
	}
	return out
}

// soon is want for a command that discovers services. On a busy machine, a service may not answer within its
// limit of half a second, so soon retries.
func (c cli) soon(code int, texts []string, args ...string) {
	c.t.Helper()
	eventually(c.t, "turnpike "+strings.Join(args, " "), func() error {
		out, got := c.run(args...)
		for _, text := range texts {
			if got != code || !strings.Contains(out, text) {
				return fmt.Errorf("it exits %d and prints:\n%s\nwant %d and %q", got, out, code, text)
			}
		}
		return nil
	})
}

// file writes a file for the test and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func startDev(t *testing.T, data string, env ...string) (cli, *process) {
	t.Helper()
	addr := freeAddr(t)
	p := spawn(t, "turnpike", env, "dev", "--data-dir", data, "--addr", addr)
	c := cli{t, "http://" + addr}
	eventually(t, "turnpike dev is ready", func() error {
		if out, code := c.run("ps"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	return c, p
}

const gatedAgent = `
name: gated
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: pay, id: c1, arguments: {amount: 500}}, {name: ask_user, id: c2, arguments: {question: "which card?"}}]}
    - {text: paid}
tools:
  - {name: pay, kind: client, schema: {type: object}, approval: "args.amount > 100"}
  - {name: ask_user, kind: human}
`

// The command line works against `turnpike dev`, as a new user would use it.
func TestDev(t *testing.T) {
	data := t.TempDir()
	c, dev := startDev(t, data)
	hello := file(t, "hello.yaml", "name: hello\nmodel: {provider: scripted, responses: [{text: hello there}, {text: and again}]}\n")
	slow := file(t, "slow.yaml", "name: slow\nmodel: {provider: scripted, responses: [{text: never, delay: 1h}]}\n")
	broken := file(t, "broken.yaml", "name: broken\nmodel: {provider: scripted, responses: [{error: auth}]}\n")
	gated := file(t, "gated.yaml", gatedAgent)

	c.want(0, "hello there", "run", hello, "hi")
	c.want(4, "auth", "run", broken, "hi")
	c.want(1, "agent_not_found", "run", "nobody", "hi")
	c.want(1, "surprise", "run", file(t, "bad.yaml", "surprise: 1"), "hi")
	c.want(1, "in use by process", "dev", "--data-dir", data, "--addr", freeAddr(t))
	c.want(1, "start `turnpike dev`", "--server", "http://127.0.0.1:1", "ps")
	c.want(0, "gateway", "doctor", "--nats-url", natsURL(t, data))

	// A waiting run is resumed from other processes.
	out := c.want(6, "waiting_approval", "run", gated, "pay")
	id := strings.Fields(out)[1]
	c.want(0, "accepted", "approve", id)
	c.want(0, "which card?", "show", id)
	c.want(0, "accepted", "answer", id, "the blue one")
	var run api.Run
	eventually(t, "the client's call is awaited", func() error {
		text, _ := c.run("-o", "json", "show", id)
		if err := json.Unmarshal([]byte(text), &run); err != nil {
			return err
		}
		if run.Reason == nil || *run.Reason != "waiting_client_tool" || len(run.Waiting.Calls) != 1 {
			return errors.New(text)
		}
		return nil
	})

	// Runs survive kill -9 and a restart.
	stuck := strings.TrimSpace(c.want(0, "run_", "submit", slow, "hi"))
	dev.kill()
	c, _ = startDev(t, data)
	c.want(0, stuck, "ps")
	c.want(0, "abort accepted", "cancel", stuck)
	c.want(5, "cancelled", "watch", stuck)
	c.want(0, "accepted", "cancel", id, "--reason", "The shop is closed.")
	c.want(5, "The shop is closed.", "watch", id)
	c.want(0, "because   The shop is closed.", "show", id)
	c.want(0, "hello", "agents")
	if out := c.want(0, "", "ps", "-q", "--agent", "slow"); out != stuck+"\n" {
		t.Errorf("ps -q prints %q, want the id alone", out)
	}
}

// A tool next to dev keeps working after dev was killed and restarted, because its NATS uses the same port. If
// another program has taken that port, dev says so.
func TestDevKeepsItsPort(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	c, dev := startDev(t, data)
	address := natsURL(t, data)
	var log bytes.Buffer
	service := exec.CommandContext(t.Context(), python, "../../examples/tools/python/convert.py")
	service.Env = append(os.Environ(), "TURNPIKE_DATA_DIR="+data, "TURNPIKE_NATS_URL=", "PYTHONDONTWRITEBYTECODE=1")
	service.Stdout, service.Stderr = &log, &log
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- service.Wait() }() // killed with the test
	t.Cleanup(func() { _ = service.Process.Kill(); <-ended })
	converts := func(c cli) {
		t.Helper()
		eventually(t, "the tool answers", func() error {
			out, code := c.run("tools", "call", "convert", "--nats-url", natsURL(t, data), "--timeout", "2s", "--arguments", `{"value": 100, "from": "km", "to": "mi"}`)
			if code != 0 || !strings.Contains(out, "62.1") {
				return errors.New(out)
			}
			return nil
		})
	}
	converts(c)
	for range 2 {
		dev.kill()
		c, dev = startDev(t, data)
		if again := natsURL(t, data); again != address {
			t.Errorf("NATS is at %s now, and was at %s", again, address)
		}
		converts(c)
	}
	dev.kill()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, dev = startDev(t, data)
	if natsURL(t, data) == address {
		t.Errorf("NATS is at %s, although another program uses that port", address)
	}
	eventually(t, "dev names the port", func() error { // it may be ready before it has printed where it listens
		if said := dev.log(); !strings.Contains(said, "another program uses port "+at.Port()) {
			return fmt.Errorf("dev says:\n%s", said)
		}
		return nil
	})
}

// natsURL returns the address of the embedded NATS of a data directory.
func natsURL(t *testing.T, data string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "nats.url"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Other services use NATS only: they submit, receive the end, and abort.
func TestNATSSurface(t *testing.T) {
	data := t.TempDir()
	c, _ := startDev(t, data)
	c.want(0, "version 1", "agents", "put", file(t, "hello.yaml", "name: hello\nmodel: {provider: scripted, responses: [{text: hello there}]}\n"))
	c.want(0, "version 1", "agents", "put", file(t, "slow.yaml", "name: slow\nmodel: {provider: scripted, responses: [{text: never, delay: 1h}]}\n"))
	nc, err := nats.Connect(natsURL(t, data))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	replies := make(chan *nats.Msg, 10)
	if _, err := nc.ChanSubscribe("answers", replies); err != nil {
		t.Fatal(err)
	}
	submit := func(agent, key string) {
		m := nats.NewMsg("turnpike.submit." + agent)
		m.Data = []byte(`{"input":"hi"}`)
		m.Header.Set("Turnpike-Reply", "answers")
		m.Header.Set("Nats-Msg-Id", key)
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	answer := func() api.Run {
		t.Helper()
		select {
		case m := <-replies:
			var run api.Run
			if err := json.Unmarshal(m.Data, &run); err != nil {
				t.Fatalf("reply %s: %v", m.Data, err)
			}
			return run
		case <-time.After(2 * time.Minute):
			t.Fatal("no reply")
			return api.Run{}
		}
	}
	submit("hello", "k1")
	if run := answer(); run.Status != "completed" || *run.Output != "hello there" {
		t.Errorf("reply = %+v", run)
	}
	submit("slow", "k2")
	var id string
	eventually(t, "the slow run is in flight", func() error {
		out, _ := c.run("-o", "json", "ps", "--agent", "slow", "--status", "running")
		var page api.Page[api.Run]
		if err := json.Unmarshal([]byte(out), &page); err != nil || len(page.Items) != 1 {
			return errors.New(out)
		}
		id = page.Items[0].ID
		return nil
	})
	if err := nc.Publish("turnpike.abort."+id, []byte(`{"reason":"enough"}`)); err != nil {
		t.Fatal(err)
	}
	// The abort may arrive between the claim of the turn and its model call.
	if run := answer(); run.ID != id || run.Status != "cancelled" || *run.Reason != "aborted_streaming" && *run.Reason != "aborted_queued" {
		t.Errorf("reply = %+v", run)
	}
}

// One variable makes every agent deterministic, including native tool calls (K8).
func TestMockResponses(t *testing.T) {
	env := []string{`DEBUG_MOCK_RESPONSES=["{\"tool_calls\":[{\"name\":\"nobody\",\"arguments\":{}}]}","all done"]`}
	c, _ := startDev(t, t.TempDir(), env...)
	agent := file(t, "a.yaml", "name: a\nmodel: {provider: openai, name: gpt-5-mini}\n")
	out := c.want(0, "all done", "run", agent, "hi")
	if !strings.Contains(out, "Unknown tool: nobody") {
		t.Errorf("the unknown tool is not answered:\n%s", out)
	}
}

// Responses that are JSON actions drive a two_phase agent, and each run starts with the first (K2, K8).
func TestMockActions(t *testing.T) {
	env := []string{`DEBUG_MOCK_RESPONSES=["{\"tool\": \"nobody\", \"arguments\": {}}","{}","all done"]`}
	c, _ := startDev(t, t.TempDir(), env...)
	agent := file(t, "a.yaml", "name: a\nloop: {type: two_phase}\nmodel: {provider: openai, name: gpt-5-mini}\n")
	for range 2 {
		out := c.want(0, "all done", "run", agent, "hi")
		if !strings.Contains(out, "Unknown tool: nobody") || !strings.Contains(out, "final_response") {
			t.Errorf("the run is not what it should be:\n%s", out)
		}
	}
}

func TestDemo(t *testing.T) {
	out := cli{t, ""}.want(0, "0 repeated", "demo")
	if !strings.Contains(out, "recovered") {
		t.Errorf("the output has no recovery:\n%s", out)
	}
}
