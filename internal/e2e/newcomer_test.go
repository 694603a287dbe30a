package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// Typical first mistakes get an error with the remedy, on the command line.
func TestFirstMistakes(t *testing.T) {
	c, dev := startDev(t, t.TempDir(), "TURNPIKE_SLOT=5")
	if log := dev.log(); !strings.Contains(log, "did you mean TURNPIKE_SLOTS?") {
		t.Errorf("a misspelled variable: the log says\n%s", log)
	}
	for name, args := range map[string][]string{"flag": {"run", "--nope"}, "argument": {"show"}, "value": {"ps", "--limit", "many"}, "command": {"shwo"}} {
		out, code := c.run(args...)
		if lines := strings.Count(out, "\n"); code != 80 || lines > 2 || !strings.Contains(out, "--help for the usage") {
			t.Errorf("a wrong %s exits %d and prints:\n%s", name, code, out)
		}
	}
	other := t.TempDir()
	c.want(80, "--nats-listen", "dev", "--data-dir", other, "--addr", freeAddr(t), "--nats-listen", "foo")
	c.want(80, "--agents: ", "dev", "--data-dir", other, "--addr", freeAddr(t), "--agents", filepath.Join(other, "nope"))
	c.want(0, "turnpike", "version")
	c.want(0, "go1", "--version")

	c.want(1, "the field name is missing", "run", file(t, "noname.yaml", "model: {provider: scripted}\n"), "hi")
	bad := file(t, "bad.yaml", "name: bad\nmodel: {provider: scripted, responses: [{text: hi}]}\ntools:\n  - name: t\n    kind: telepathy\n    descripton: x\n")
	c.want(1, bad+":5:5: tools[0].kind: ", "agents", "put", bad)
	both := file(t, "both.yaml", "name: both\nmodel: {provider: scriptd, responses: [{text: hi}]}\nlimits: {max_turn: 3}\n")
	if out := c.want(1, both+":3:10: limits.max_turn: ", "agents", "put", both); !strings.Contains(out, both+":2:9: model.provider: ") {
		t.Errorf("the provider's error is not printed: %s", out)
	}
	if out := c.want(1, "turnpike agents put FILE", "run", "nobody", "hi"); strings.Contains(out, "PUT ") {
		t.Errorf("the command line prints details of HTTP requests: %s", out)
	}
	hello := file(t, "hello", "name: hello\nmodel: {provider: scripted, responses: [{text: hello there}]}\n")
	c.want(0, "hello there", "run", hello, "hi")
	c.want(1, "--from needs messages", "run", "hello", "--from", file(t, "big.txt", "plain text"))
	if out := c.want(0, "", "run", "hello", "hi"); strings.Count(out, "hello there") != 1 {
		t.Errorf("the output is not printed exactly once:\n%s", out)
	}

	c.want(1, `did you mean "hello"?`, "run", "helo", "hi")
	c.want(0, "hello", "complete", "--", "run", "hel")
	c.want(0, "--priority", "complete", "--", "run", "--pri")

	out := c.want(6, "waiting_client_tool", "run", file(t, "chooser.yaml", clientToolAgent), "choose")
	id := strings.Fields(out)[1]
	if !strings.Contains(out, "turnpike result "+id+" c1 ") {
		t.Errorf("run does not print how to continue:\n%s", out)
	}
	c.want(80, `not a JSON object`, "approve", id, "c1", "--arguments", `{"a":`)
	c.want(1, "c1 (pick_file, needs result)", "approve", id)
	c.want(1, "waiting_client_tool: result of call c1 (pick_file)", "result", id, "c9", "notes.txt")
	c.want(0, "c1 (pick_file, needs result)", "message", id, "hurry")
	c.want(0, "accepted", "result", id, "c1", "notes.txt")
	c.want(0, "You chose it.", "watch", id)
	c.want(0, "notes.txt", "show", id)

	c.want(80, "write http:// or https://", "--server", "nats://localhost:7070", "ps")
	if _, err := os.Stat(filepath.Join(other, "nats.url")); err == nil {
		t.Error("a dev that did not start has left nats.url")
	}
}

// A watcher of a run reads that the gateway is unreachable, and that it is back.
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
	// The last message depends on the moment of the kill: "nothing listens at …" or "closed the connection".
	reads("connection lost, retrying: ")
	dev.start()
	ready()
	reads("connected again")
	c.want(0, "abort accepted", "cancel", id)
	reads("cancelled")
}

// `turnpike init --lang go` writes a tool in Go that serves the agent. internal/verify/clients tests the other
// languages.
func TestInitGo(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	c, _ := startDev(t, data)
	c.want(0, "go run ./tools", "init", "--lang", "go", dir)
	c.want(80, "--lang", "init", "--lang", "cobol", t.TempDir())
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The module under test is not published: a workspace contains both.
	for _, args := range [][]string{{"work", "init", ".", root}, {"build", "-o", "tool", "./tools"}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tool := exec.CommandContext(t.Context(), filepath.Join(dir, "tool"))
	tool.Dir, tool.Env = dir, append(os.Environ(), "TURNPIKE_DATA_DIR="+data, "TURNPIKE_NATS_URL=")
	if err := tool.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tool is there", func() error {
		if out, code := c.run("tools", "ls", "--nats-url", natsURL(t, data)); code != 0 || !strings.Contains(out, "convert") {
			return errors.New(out)
		}
		return nil
	})
	if out := c.want(0, "100 km are 62.1 miles.", "run", filepath.Join(dir, "agents", "converter.yaml"), "How far?"); !strings.Contains(out, "62.13711922") {
		t.Errorf("run prints\n%s", out)
	}
}

// TestFirstSteps starts in an empty folder, builds an agent with a Python tool, changes the agent, and stops
// `turnpike dev`.
func TestFirstSteps(t *testing.T) {
	dir, addr := t.TempDir(), freeAddr(t)
	c := cli{t, "http://" + addr}
	c.want(0, "turnpike dev --agents agents", "init", dir)
	c.want(1, "nothing was written", "init", dir)
	agent, data := filepath.Join(dir, "agents", "converter.yaml"), filepath.Join(dir, "data")
	dev := spawn(t, "turnpike", nil, "dev", "--data-dir", data, "--addr", addr, "--agents", filepath.Dir(agent))
	says := func(p *process, text string) {
		t.Helper()
		eventually(t, "it says "+text, func() error {
			if log := p.log(); !strings.Contains(log, text) {
				return errors.New(log)
			}
			return nil
		})
	}
	says(dev, "agents  converter")
	tool := exec.CommandContext(t.Context(), "python3", "tools/convert.py")
	tool.Dir, tool.Env = dir, append(os.Environ(), "TURNPIKE_DATA_DIR="+data, "TURNPIKE_NATS_URL=")
	if err := tool.Start(); err != nil {
		t.Fatalf("%v: install Python 3.11 or later (`apt-get install python3`)", err)
	}
	eventually(t, "the tool is there", func() error {
		if out, code := c.run("tools", "ls", "--nats-url", natsURL(t, data)); code != 0 || !strings.Contains(out, "convert") {
			return errors.New(out)
		}
		return nil
	})
	out := c.want(0, "100 km are 62.1 miles.", "run", "converter", "How far is 100 km in miles?")
	if !strings.Contains(out, "62.13711922") || !strings.Contains(out, "2 turns") {
		t.Errorf("run prints\n%s", out)
	}
	c.want(0, "/ui/#"+strings.Fields(out)[1], "open", strings.Fields(out)[1])

	text, err := os.ReadFile(agent)
	if err != nil {
		t.Fatal(err)
	}
	save := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(agent, strings.ReplaceAll(string(text), "62.1 miles", "62.14 miles"))
	says(dev, "converter version 2")
	c.want(0, "62.14 miles", "run", "converter", "again")
	save(agent, "name: [")
	says(dev, "its previous version, if any, stays in use")
	c.want(0, "62.14 miles", "run", "converter", "again")

	dev.signal(syscall.SIGINT)
	says(dev, "stopping: ")
	says(dev, "stopped. ")
}

// A user who interrupts `run` reads that the run continues, and sees its child runs.
func TestRunIsFollowed(t *testing.T) {
	c, _ := startDev(t, t.TempDir())
	c.want(0, "version 1", "agents", "put", file(t, "below.yaml", "name: below\nmodel: {provider: scripted, responses: [{text: found}]}\n"))
	above := file(t, "above.yaml", `name: above
model: {provider: scripted, responses: [{tool_calls: [{name: below, arguments: {task: look}}]}, {text: done}]}
tools: [{name: below, kind: agent, agent: below}]
`)
	if out := c.want(0, "done", "run", above, "hi"); !strings.Contains(out, "    └ below run_") || !strings.Contains(out, "      ■ completed") {
		t.Errorf("run does not show the child run:\n%s", out)
	}
	slow := file(t, "slow.yaml", "name: slow\nmodel: {provider: scripted, responses: [{text: never, delay: 1h}]}\n")
	run := spawn(t, "turnpike", nil, "--server", c.url, "run", slow, "hi")
	reads := func(text string) {
		t.Helper()
		eventually(t, "run prints "+text, func() error {
			if out := run.log(); !strings.Contains(out, text) {
				return errors.New(out)
			}
			return nil
		})
	}
	reads("run run_")
	run.signal(syscall.SIGINT)
	reads("The run continues.")
	reads("turnpike cancel run_")
}
