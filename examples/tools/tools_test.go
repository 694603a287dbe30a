package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// language describes how to run the example of one language.
type language struct {
	name    string
	dir     string
	command func() ([]string, error)
}

var languages = []language{
	{"Go", "go", binary},
	{"Python", "python", func() ([]string, error) {
		const old = "import sys; sys.exit(sys.version_info < (3, 11))"
		if out, err := exec.Command("python3", "-c", old).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w %s: install Python 3.11 or later (`apt-get install python3`)", err, out)
		}
		return []string{"python3", "convert.py"}, nil
	}},
	{"TypeScript", "typescript", func() ([]string, error) {
		if _, err := exec.LookPath("node"); err != nil {
			return nil, fmt.Errorf("%w: install Node.js 18.19 or later (`apt-get install nodejs npm`)", err)
		}
		if _, err := os.Stat("typescript/node_modules/tsx"); err != nil {
			return nil, fmt.Errorf("%w: run `npm install` in examples/tools/typescript", err)
		}
		return []string{"node", "--import", "tsx", "convert.ts"}, nil
	}},
}

var binary = sync.OnceValues(func() ([]string, error) {
	dir, err := os.MkdirTemp("", "convert")
	if err != nil {
		return nil, err
	}
	return []string{filepath.Join(dir, "go")}, rig.Build(context.Background(), dir, false, rig.Module+"examples/tools/go")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if command, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(command[0]))
	}
	os.Exit(code)
}

// each runs f for every language. A language that is missing on this machine fails if all are required, and is
// skipped otherwise.
func each(t *testing.T, f func(t *testing.T, l language, s *deployment)) {
	t.Helper()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if _, err := l.command(); err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			server := testbed.NATSServer(t)
			nc, err := server.Conn("caller")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			f(t, l, &deployment{server: server, nc: nc})
		})
	}
}

type deployment struct {
	server *devserver.Server
	nc     *nats.Conn
	tenant string // the tenant whose instances are looked up
}

// instance is a process that serves a tool.
type instance struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // its exit error
}

// start starts an instance whose calls take the given time, and returns when want instances can be found.
func (s *deployment) start(t *testing.T, l language, delay time.Duration, want int) *instance {
	t.Helper()
	env := append(os.Environ(), "TURNPIKE_NATS_URL="+s.server.URL(), "TURNPIKE_PREFIX=tp", fmt.Sprintf("CONVERT_DELAY_MS=%d", delay.Milliseconds()))
	return s.startIn(t, l, env, want)
}

// startIn is start in an environment.
func (s *deployment) startIn(t *testing.T, l language, env []string, want int) *instance {
	t.Helper()
	command, err := l.command()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.Command(command[0], command[1:]...)
	// A child must not outlive the test, however the test ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.dir, &log, &log
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i := &instance{cmd: cmd, ended: make(chan struct{})}
	go func() { i.err = cmd.Wait(); close(i.ended) }() // ends with the process
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-i.ended
		if log.Len() > 0 && t.Failed() {
			t.Logf("the %s tool printed:\n%s", l.name, log.String())
		}
	})
	for {
		services, err := natstool.Discover(t.Context(), s.nc, "tp", s.tenant)
		if err != nil {
			t.Fatal(err)
		}
		if len(services) == 1 && len(services[0].Instances) == want {
			return i
		}
		select {
		case <-i.ended:
			t.Fatalf("the %s tool ended: %v", l.name, i.err)
		default:
		}
	}
}

// call makes a call concurrently with the test. It returns when an instance works on it. An instance that
// misses some heartbeats counts as dead.
func (s *deployment) call(t *testing.T, idempotent bool, heartbeat time.Duration) (result chan tool.Result) {
	t.Helper()
	signs, err := s.nc.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	defer signs.Unsubscribe() //nolint:errcheck // it fails only on a closed connection
	result = make(chan tool.Result, 1)
	go func() { // ends with the call
		r, err := natstool.New(s.nc, "tp").WithHeartbeat(heartbeat).Call(t.Context(), tool.Call{Name: "convert", Arguments: kilometres, Idempotent: idempotent})
		if err != nil {
			r = tool.Error(err.Error())
		}
		result <- r
	}()
	for {
		m, err := signs.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Header.Get(toolkit.HeartbeatHeader) != "" {
			return result
		}
	}
}

var (
	kilometres = json.RawMessage(`{"value":100,"from":"km","to":"mi"}`)
	miles      = `{"value":62.13711922,"unit":"mi"}`
)

// same compares JSON.
func same(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := errors.Join(json.Unmarshal([]byte(want), &w), json.Unmarshal([]byte(got), &g)); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("got %s:\n%s", got, diff)
	}
}

// A tool in any language is found and called in the same way.
func TestCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l language, s *deployment) {
		s.start(t, l, 0, 1)
		tools := natstool.New(s.nc, "tp")
		call := func(arguments string) tool.Result {
			t.Helper()
			r, err := tools.Call(t.Context(), tool.Call{
				Run: "run_1", ID: "c1", Name: "convert", Arguments: json.RawMessage(arguments), IdempotencyKey: "k", Deadline: time.Now().Add(time.Minute),
			})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for arguments, want := range map[string]string{
			string(kilometres):                   miles,
			`{"value":-40,"from":"F","to":"C"}`:  `{"value":-40,"unit":"C"}`,
			`{"value":2.5,"from":"kg","to":"g"}`: `{"value":2500,"unit":"g"}`,
		} {
			r := call(arguments)
			if r.IsError {
				t.Fatalf("%s: %s", arguments, r.Content)
			}
			same(t, r.Content, want)
		}
		for arguments, want := range map[string]string{
			`{"value":1,"from":"km","to":"kg"}`:         "a length is not a mass",
			`{"value":1,"from":"kön\n","to":"kg"}`:      "unknown unit: from \"kön",
			`{"value":"1","from":"km","to":"m"}`:        "arguments",
			`{"value":1,"from":"km","to":"m","more":1}`: "arguments",
		} {
			if r := call(arguments); !r.IsError || !strings.Contains(r.Content, want) {
				t.Errorf("%s: %+v, want an error with %q", arguments, r, want)
			}
		}

		// An instance counts a request after it has answered, and one that answers a search too late is not
		// found.
		var service natstool.Service
		testbed.Eventually(t, "the instance has counted seven requests", func() error {
			services, err := natstool.Discover(t.Context(), s.nc, "tp", "")
			if err != nil || len(services) != 1 || len(services[0].Instances) != 1 || services[0].Instances[0].Requests < 7 {
				return fmt.Errorf("Discover = %+v, %w", services, err)
			}
			service = services[0]
			return nil
		})
		i := service.Instances[0]
		same(t, string(service.Schema), `{"type":"object","required":["value","from","to"],"additionalProperties":false,"properties":{
			"value":{"type":"number"},"from":{"type":"string","description":"unit of the value: m, km, ft, mi, g, kg, lb, C, F or K"},"to":{"type":"string","description":"unit to convert to"}}}`)
		if service.Name != "convert" || service.Description != "Converts a length, a mass or a temperature to another unit." || i.Version != "1.0.0" || i.Started.IsZero() || i.Requests != 7 {
			t.Errorf("Discover = %+v", service)
		}
	})
}

// A tenant's tool can be called and found only by that tenant.
func TestTenant(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l language, s *deployment) {
		env := append(os.Environ(), "TURNPIKE_NATS_URL="+s.server.URL(), "TURNPIKE_PREFIX=tp", "TURNPIKE_TENANT=acme")
		if l.name == "TypeScript" {
			command, err := l.command()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Dir, cmd.Env = l.dir, env
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "TURNPIKE_TENANT") {
				t.Errorf("it ended with %v and printed:\n%s", err, out)
			}
			return
		}
		s.tenant = "acme"
		s.startIn(t, l, env, 1)
		r, err := natstool.New(s.nc, "tp").Call(t.Context(), tool.Call{Name: "convert", Tenant: "acme", Arguments: kilometres})
		if err != nil || r.IsError {
			t.Fatalf("Call = %+v, %v", r, err)
		}
		same(t, r.Content, miles)
		if services, err := natstool.Discover(t.Context(), s.nc, "tp", ""); err != nil || len(services) != 0 {
			t.Errorf("the default tenant finds %+v, %v", services, err)
		}
		if r, err := natstool.New(s.nc, "tp").Call(t.Context(), tool.Call{Name: "convert", Arguments: kilometres}); err != nil || !strings.Contains(r.Content, "no service listens") {
			t.Errorf("the default tenant can call it: %+v, %v", r, err)
		}
	})
}

// An instance that is killed during a call is noticed soon. Another executes the call if it is idempotent,
// otherwise none does (I4).
func TestInstanceIsKilled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l language, s *deployment) {
		for _, idempotent := range []bool{true, false} {
			dies := s.start(t, l, time.Hour, 1)
			called := s.call(t, idempotent, 200*time.Millisecond)
			lives := s.start(t, l, 0, 2)
			if err := dies.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			r := <-called
			if idempotent {
				same(t, r.Content, miles)
			} else if !r.IsError || !strings.Contains(r.Content, "outcome is unknown") {
				t.Errorf("Call = %+v", r)
			}
			if err := lives.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-lives.ended
		}
	})
}

// A call whose caller has left is cancelled. An instance that is stopping answers its calls and accepts no
// more.
func TestStop(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l language, s *deployment) {
		i := s.start(t, l, 3*time.Second, 1)
		called := s.call(t, false, 10*time.Second)
		if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		r := <-called
		same(t, r.Content, miles)
		<-i.ended
		if i.err != nil {
			t.Errorf("the tool ended with %v", i.err)
		}

		i = s.start(t, l, time.Hour, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if r, err := natstool.New(s.nc, "tp").Call(ctx, tool.Call{Name: "convert", Arguments: kilometres}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call = %+v, %v", r, err)
		}
		if err := i.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-i.ended // not after an hour
	})
}

// find returns the environment of a process that finds the NATS server of a `turnpike dev` without
// TURNPIKE_NATS_URL.
func find(t *testing.T, url string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nats.url"), []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "TURNPIKE_NATS_URL=", "TURNPIKE_DATA_DIR="+dir, "TURNPIKE_PREFIX=tp")
}

// Without TURNPIKE_NATS_URL, a tool serves the `turnpike dev` next to it. It also does so with its address but
// no password.
func TestServesDev(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l language, _ *deployment) {
		server, err := devserver.Start(devserver.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Password: "p:/@ %"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		nc, err := server.Conn("caller")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		s := &deployment{server: server, nc: nc}
		env := find(t, server.URL())
		s.startIn(t, l, env, 1)
		s.startIn(t, l, append(env, "TURNPIKE_NATS_URL="+server.Address()), 2)
	})
}

// If no server listens, a tool exits with one line that has the remedy.
func TestSaysThatNobodyListens(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l language, _ *deployment) {
		command, err := l.command()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir, cmd.Env = l.dir, append(find(t, ""), "TURNPIKE_NATS_URL=nats://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		text := strings.TrimSpace(string(out))
		if err == nil || strings.Contains(text, "\n") || !strings.Contains(text, "TURNPIKE_NATS_URL") {
			t.Errorf("it ends with %v and prints:\n%s", err, text)
		}
	})
}
