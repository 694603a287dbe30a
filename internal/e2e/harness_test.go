package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// built is the directory of the compiled commands, if any test needed them.
var built string

// build compiles the commands once for all tests of the package.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "turnpike-e2e-")
	if err != nil {
		return "", err
	}
	built = dir
	return dir, rig.Build(context.Background(), dir, false, rig.Module+"cmd/turnpike", rig.Module+"cmd/gateway", rig.Module+"cmd/worker", rig.Module+"examples/tools/go")
})

func TestMain(m *testing.M) {
	if key := os.Getenv(parrotMode); key != "" {
		_ = testbed.ServeParrot(key) // it ends with its input
		return
	}
	waitSideBySide()
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// waitSideBySide runs twice as many tests at once as there are processors, unless the command line says how many: the
// tests wait for processes that they killed more than they compute.
func waitSideBySide() {
	flag.Parse()
	limited := false
	flag.Visit(func(f *flag.Flag) { limited = limited || f.Name == "test.parallel" })
	if !limited {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	}
}

// process is a child process that can be killed and restarted.
type process struct {
	t    *testing.T
	name string
	args []string
	env  []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	out  *bytes.Buffer
	logs sync.Mutex // guards out
	done chan struct{}
}

// log returns everything the process has written so far, over all restarts.
func (p *process) log() string {
	p.logs.Lock()
	defer p.logs.Unlock()
	return p.out.String()
}

func (p *process) start() {
	p.t.Helper()
	dir, err := build()
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = exec.Command(filepath.Join(dir, p.name), p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	// A child must not outlive the test, however the test ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.out == nil {
		p.out = &bytes.Buffer{}
	}
	log := &lockedWriter{mu: &p.logs, w: p.out}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	done := make(chan struct{})
	p.done = done
	cmd := p.cmd
	go func() { _ = cmd.Wait(); close(done) }()
}

// signal sends a signal to the process.
func (p *process) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s)
}

// kill sends SIGKILL and waits for the end.
func (p *process) kill() {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-done
}

// started is in the log of a worker that takes turns.
const started = `"message":"worker started"`

// logged returns the number of occurrences of a text in the log.
func (p *process) logged(text string) int {
	p.logs.Lock()
	defer p.logs.Unlock()
	return bytes.Count(p.out.Bytes(), []byte(text))
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// spawn starts a process that is killed when the test ends; its output is shown if the test failed.
func spawn(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, args: args, env: env}
	p.start()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			out := p.log()
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), out[max(0, len(out)-4000):])
		}
	})
	return p
}

func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	testbed.Eventually(t, what, ok)
}

// deployment is NATS, Redis, a gateway and workers, as processes.
type deployment struct {
	t       *testing.T
	env     []string
	nats    *nats.Conn
	client  *api.Client
	url     string
	gateway *process
	workers []*process
}

func newDeployment(t *testing.T, workers int, env ...string) *deployment {
	t.Helper()
	server, err := devserver.Start(devserver.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	addr := freeAddr(t)
	s := &deployment{t: t, url: "http://" + addr}
	s.env = []string{
		"TURNPIKE_NATS_URL=" + server.URL(),
		"TURNPIKE_REDIS_URL=" + testbed.Redis(t),
		"TURNPIKE_ADDR=" + addr,
		"TURNPIKE_PREFIX=" + strings.ToLower("e2e"+fmt.Sprint(time.Now().UnixNano())),
		"TURNPIKE_LOG_LEVEL=info",
		"TURNPIKE_MODEL_ALLOW=127.0.0.0/8",
	}
	s.env = append(s.env, env...)
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	s.nats = conn
	s.client = api.New(s.url)
	s.gateway = spawn(t, "gateway", s.env)
	eventually(t, "gateway is ready", func() error {
		resp, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	for range workers {
		s.workers = append(s.workers, spawn(t, "worker", s.env))
	}
	return s
}

func (s *deployment) prefix() string {
	for _, e := range s.env {
		if v, ok := strings.CutPrefix(e, "TURNPIKE_PREFIX="); ok {
			return v
		}
	}
	return "turnpike"
}
