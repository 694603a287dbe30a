package testbed

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// Redis returns the URL of a Redis server shared by the tests of a package: the one that
// TURNPIKE_TEST_REDIS_URL names, a local redis-server, or a container if a Docker engine answers. It never
// skips.
func Redis(tb testing.TB) string {
	tb.Helper()
	url, err := shared()
	if err != nil {
		tb.Fatalf("no Redis for this test: %v\n"+
			"Install redis-server (`apt-get install redis-server`), start Docker, or set TURNPIKE_TEST_REDIS_URL.", err)
	}
	return url
}

var shared = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("TURNPIKE_TEST_REDIS_URL"); url != "" {
		return url, nil
	}
	s, err := startRedis(os.TempDir(), "--save", "", "--appendonly", "no")
	if err == nil {
		return s.URL, nil
	}
	url, dockerErr := startContainer()
	if dockerErr != nil {
		return "", fmt.Errorf("%w (and Docker: %w)", err, dockerErr)
	}
	return url, nil
})

// input keeps a container alive: the container ends when this process does, however that happens.
var input io.WriteCloser //nolint:unused // only held

// startContainer starts Redis in a container that is removed when this process ends.
func startContainer() (url string, err error) {
	port, err := devserver.FreePort()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("docker", "run", "--rm", "-i", "-p", fmt.Sprintf("127.0.0.1:%d:6379", port), "redis:7",
		"sh", "-c", "redis-server --save '' --appendonly no --protected-mode no & cat >/dev/null")
	if input, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	return fmt.Sprintf("redis://127.0.0.1:%d/0", port), startReady(cmd)
}

// RedisServer is the test's own redis-server process.
type RedisServer struct {
	URL  string
	PID  int
	args []string
	cmd  *exec.Cmd
}

// RedisProcess starts a redis-server in a directory of the test, with further command line options.
func RedisProcess(tb testing.TB, args ...string) *RedisServer {
	tb.Helper()
	s, err := startRedis(tb.TempDir(), args...)
	if err != nil {
		tb.Fatalf("%v\nInstall redis-server: `apt-get install redis-server`.", err)
	}
	tb.Cleanup(s.Kill)
	return s
}

func startRedis(dir string, args ...string) (*RedisServer, error) {
	port, err := devserver.FreePort()
	if err != nil {
		return nil, err
	}
	s := &RedisServer{
		URL:  fmt.Sprintf("redis://127.0.0.1:%d/0", port),
		args: append([]string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no"}, args...),
	}
	return s, s.Start()
}

// Start starts the server, or restarts it after Kill.
func (s *RedisServer) Start() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	s.cmd = exec.Command(path, s.args...)
	// The server must not outlive the test binary, however that ends.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startReady(s.cmd); err != nil {
		return err
	}
	s.PID = s.cmd.Process.Pid
	return nil
}

// startReady starts a command that ends in a Redis, and returns when that is ready.
func startReady(cmd *exec.Cmd) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				ready <- true
			}
		}
		close(ready)
	}()
	if !<-ready {
		return fmt.Errorf("%s ended before Redis was ready: %w %s", cmd.Args[0], cmd.Wait(), said.String())
	}
	return nil
}

// Kill ends the server with SIGKILL.
func (s *RedisServer) Kill() {
	if s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}
