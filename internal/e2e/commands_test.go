package e2e_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// The author of an agent cannot start programs through `turnpike dev`, unless its flag allows it.
func TestDevStartsNoPrograms(t *testing.T) {
	t.Parallel()
	for flag, starts := range map[string]bool{"": false, "--allow-commands": true} {
		t.Run("flag "+flag, func(t *testing.T) {
			t.Parallel()
			notes := t.TempDir()
			addr, mark := freeAddr(t), filepath.Join(notes, "started")
			args := []string{"dev", "--data-dir", t.TempDir(), "--addr", addr}
			if flag != "" {
				args = append(args, flag)
			}
			spawn(t, "turnpike", []string{"TURNPIKE_MCP_WRITE=" + notes, testbed.ConfinementSetting(t)}, args...)
			c := cli{t, "http://" + addr}
			eventually(t, "turnpike dev is ready", func() error {
				if out, code := c.run("ps"); code != 0 {
					return errors.New(out)
				}
				return nil
			})
			spy := file(t, "spy.yaml", fmt.Sprintf("name: spy\nmodel: {provider: scripted, responses: [{text: done}]}\ntools: [{kind: mcp, command: [sh, -c, %q]}]\n", "echo > "+mark))
			out, _ := c.run("run", spy, "hi")
			if _, err := os.Stat(mark); (err == nil) != starts {
				t.Errorf("the program was started: %t, want %t:\n%s", err == nil, starts, out)
			}
		})
	}
}

// The NATS of `turnpike dev` requires a password, which only its owner can read and which is never printed. It
// stays the same over restarts, so that running services can continue.
func TestDevAsksForThePassword(t *testing.T) {
	data := t.TempDir()
	c, p := startDev(t, data)
	first := natsURL(t, data)
	at, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := at.User.Password()
	if len(password) < 20 {
		t.Fatalf("nats.url has the password %q", password)
	}
	for _, name := range []string{"nats.url", "nats.password"} {
		if info, err := os.Stat(filepath.Join(data, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for _, user := range []*url.Userinfo{nil, url.User("turnpike"), url.UserPassword("turnpike", "turnpike")} {
		stranger := url.URL{Scheme: "nats", Host: at.Host, User: user}
		if nc, err := nats.Connect(stranger.String()); !errors.Is(err, nats.ErrAuthorization) {
			nc.Close()
			t.Errorf("%v: %v", user, err)
		}
	}
	c.want(1, "Authorization Violation", "tools", "ls", "--nats-url", "nats://"+at.Host)
	c.want(0, "[]", "-o", "json", "tools", "ls", "--nats-url", first)
	t.Setenv("TURNPIKE_DATA_DIR", data)
	c.want(0, "[]", "-o", "json", "tools", "ls", "--nats-url", "nats://"+at.Host) // it is the one of here
	c.want(0, "runs in this directory", "doctor")
	here := cli{t, ""} // without TURNPIKE_URL
	here.want(0, c.url+"/ui/", "open", "--print")
	here.want(0, "", "ps")
	if said := p.log(); strings.Contains(said, password) || !strings.Contains(said, "nats.url has the password") {
		t.Errorf("turnpike dev prints:\n%s", said)
	}
	p.kill()
	here.want(0, "http://127.0.0.1:7070/ui/", "open", "--print") // nobody listens at what it has left behind
	if err := os.WriteFile(filepath.Join(data, "api.url"), []byte("http://192.0.2.1:7070\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	here.want(0, "http://127.0.0.1:7070/ui/", "open", "--print") // only an address of this machine is believed
	startDev(t, data)
	again, err := url.Parse(natsURL(t, data))
	if now, _ := again.User.Password(); err != nil || now != password {
		t.Errorf("the password changed over a restart: %v", err)
	}
}
