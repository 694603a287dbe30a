package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Redis returns the URL of a Redis server that is shared by the tests of a
// package: the one that TURNPIKE_TEST_REDIS_URL names, a container where a Docker
// engine answers, or a redis-server of this machine. It never skips.
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
	url, dockerErr := container()
	if dockerErr == nil {
		return url, nil
	}
	s, err := startRedis(os.TempDir(), "--save", "", "--appendonly", "no")
	if err != nil {
		return "", fmt.Errorf("%w (and Docker: %w)", err, dockerErr)
	}
	return s.URL, nil
})

// container starts Redis through testcontainers, where an engine answers.
func container() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if !dockerAnswers() {
		return "", fmt.Errorf("no Docker engine answers")
	}
	c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{
			Image: "redis:7", ExposedPorts: []string{"6379/tcp"}, Cmd: []string{"redis-server", "--maxmemory-policy", "noeviction"},
			WaitingFor: wait.ForLog("Ready to accept connections"),
		},
		Started: true,
	})
	if err != nil {
		return "", err
	}
	addr, err := c.PortEndpoint(ctx, "6379/tcp", "")
	if err != nil {
		return "", err
	}
	return "redis://" + addr + "/0", nil
}

func dockerAnswers() bool {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	network, addr, ok := strings.Cut(host, "://")
	if !ok {
		return false
	}
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// RedisServer is a redis-server process of a test's own.
type RedisServer struct {
	URL  string
	PID  int
	args []string
	cmd  *exec.Cmd
}

// RedisProcess starts a redis-server on a directory of the test's, with further
// options as on its command line.
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
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	s := &RedisServer{
		URL:  fmt.Sprintf("redis://127.0.0.1:%d/0", port),
		args: append([]string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no"}, args...),
	}
	return s, s.Start()
}

// FreePort returns a port of loopback that nothing listens at. It is not from the
// range out of which the system serves clients, so no connection of another test
// takes it before its server does.
func FreePort() (int, error) {
	for range 100 {
		port := 10_000 + rand.IntN(20_000) //nolint:gosec // not a secret
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found")
}

// Start starts the server, again after Kill.
func (s *RedisServer) Start() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	s.cmd = exec.Command(path, s.args...)
	// The server must not outlive the test binary, however that ends.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.PID = s.cmd.Process.Pid
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
		return fmt.Errorf("redis-server ended before it was ready: %w", s.cmd.Wait())
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
