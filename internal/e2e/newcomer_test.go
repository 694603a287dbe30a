package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const clientToolAgent = `
name: chooser
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: pick_file, id: c1, arguments: {suffix: .txt}}]}
    - {text: You chose it.}
tools:
  - {name: pick_file, kind: client, schema: {type: object}}
`

// What goes wrong in the first hour is answered with what to do, at the command line.
func TestFirstMistakes(t *testing.T) {
	c, dev := startDev(t, t.TempDir(), "TURNPIKE_SLOT=5")
	if log := dev.log(); !strings.Contains(log, "did you mean TURNPIKE_SLOTS?") {
		t.Errorf("a misspelt variable: the log says\n%s", log)
	}
	for name, args := range map[string][]string{"flag": {"run", "--nope"}, "argument": {"show"}, "value": {"ps", "--limit", "many"}, "command": {"shwo"}} {
		out, code := c.run(args...)
		if lines := strings.Count(out, "\n"); code != 80 || lines > 2 || !strings.Contains(out, "--help says more") {
			t.Errorf("a wrong %s exits %d and prints:\n%s", name, code, out)
		}
	}
	other := t.TempDir()
	c.want(1, "--nats-listen", "dev", "--data-dir", other, "--addr", freeAddr(t), "--nats-listen", "foo")
	c.want(1, "--agents: ", "dev", "--data-dir", other, "--addr", freeAddr(t), "--agents", filepath.Join(other, "nope"))
	c.want(0, "turnpike", "version")
	c.want(0, "go1", "--version")

	c.want(1, "name: is missing", "run", file(t, "noname.yaml", "model: {provider: scripted}\n"), "hi")
	if out := c.want(1, "turnpike agents put FILE", "run", "nobody", "hi"); strings.Contains(out, "PUT ") {
		t.Errorf("the command line speaks of requests: %s", out)
	}
	hello := file(t, "hello", "name: hello\nmodel: {provider: scripted, responses: [{text: hello there}]}\n")
	c.want(0, "hello there", "run", hello, "hi")
	c.want(1, "--from wants messages", "run", "hello", "--from", file(t, "big.txt", "plain text"))
	if out := c.want(0, "", "run", "hello", "hi"); strings.Count(out, "hello there") != 1 {
		t.Errorf("the output is not printed once:\n%s", out)
	}

	out := c.want(6, "waiting_client_tool", "run", file(t, "chooser.yaml", clientToolAgent), "choose")
	id := strings.Fields(out)[1]
	if !strings.Contains(out, "turnpike result "+id+" c1 ") {
		t.Errorf("run does not say how to go on:\n%s", out)
	}
	c.want(1, `no JSON object`, "approve", id, "c1", "--arguments", `{"a":`)
	c.want(1, "c1 (pick_file, needs result)", "approve", id)
	c.want(1, "waiting_client_tool: result of call c1 (pick_file)", "result", id, "c9", "notes.txt")
	c.want(0, "c1 (pick_file, needs result)", "message", id, "hurry")
	c.want(0, "accepted", "result", id, "c1", "notes.txt")
	c.want(0, "You chose it.", "watch", id)
	c.want(0, "notes.txt", "show", id)

	c.want(1, "write it like http://127.0.0.1:7070", "--server", "localhost:7070", "ps")
	if _, err := os.Stat(filepath.Join(other, "nats.url")); err == nil {
		t.Error("a dev that did not start has left nats.url")
	}
}

// Whoever watches a run reads that the gateway is unreachable, and that it is back.
func TestWatchTellsOfTheGateway(t *testing.T) {
	data, addr := t.TempDir(), freeAddr(t)
	dev := spawn(t, "turnpike", nil, "dev", "--data-dir", data, "--addr", addr)
	c := cli{t, "http://" + addr}
	ready := func() {
		eventually(t, "turnpike dev is ready", func() error {
			if out, code := c.run("ps"); code != 0 {
				return errors.New(out)
			}
			return nil
		})
	}
	ready()
	slow := file(t, "slow.yaml", "name: slow\nmodel: {provider: scripted, responses: [{text: never, delay: 1h}]}\n")
	id := strings.TrimSpace(c.want(0, "run_", "submit", slow, "hi"))
	watch := spawn(t, "turnpike", nil, "--server", "http://"+addr, "watch", id)
	reads := func(text string) {
		t.Helper()
		eventually(t, "watch prints "+text, func() error {
			if out := watch.log(); strings.Count(out, text) != 1 {
				return errors.New(out)
			}
			return nil
		})
	}
	reads("run " + id)
	dev.kill()
	// Its last words depend on when it died: "nothing listens at …", or it "closed the connection".
	reads("connection lost, trying again: ")
	dev.start()
	ready()
	reads("connected again")
	c.want(0, "abort accepted", "cancel", id)
	reads("cancelled")
}
