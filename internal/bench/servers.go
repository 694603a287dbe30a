package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// servers are NATS and Redis as processes of their own, so that their work is not
// ours.
type servers struct {
	natsURL, redisURL string
	dir               string
	procs             []*exec.Cmd
	rdb               *redis.Client
}

// ticksPerSecond of /proc/PID/stat on Linux.
const ticksPerSecond = 100

func startServers(ctx context.Context, profile string) (*servers, error) {
	dir, err := os.MkdirTemp("", "turnpike-bench-")
	if err != nil {
		return nil, err
	}
	s := &servers{dir: dir}
	if err := s.startNATS(ctx); err != nil {
		s.stop()
		return nil, err
	}
	if err := s.startRedis(ctx, profile); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// startNATS runs the embedded server in a child of this program.
func (s *servers) startNATS(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "nats-server", filepath.Join(s.dir, "nats"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	s.procs = append(s.procs, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	s.natsURL = strings.TrimSpace(line)
	return nil
}

func (s *servers) startRedis(ctx context.Context, profile string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("bench needs redis-server: `apt-get install redis-server`")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	_, port, _ := strings.Cut(addr, ":")
	_ = l.Close()
	args := []string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir}
	if profile == "durable" {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	}
	cmd := exec.CommandContext(ctx, path, args...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	s.procs = append(s.procs, cmd)
	s.redisURL = "redis://" + addr + "/0"
	s.rdb = redis.NewClient(&redis.Options{Addr: addr})
	for range 500 {
		if s.rdb.Ping(ctx).Err() == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("redis-server does not answer")
}

func (s *servers) stop() {
	if s.rdb != nil {
		_ = s.rdb.Close()
	}
	for _, p := range s.procs {
		_ = p.Process.Signal(syscall.SIGKILL)
		_ = p.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// written is how many bytes Redis has been sent.
func (s *servers) written(ctx context.Context) int64 {
	info, err := s.rdb.InfoMap(ctx, "stats").Result()
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(info["Stats"]["total_net_input_bytes"], 10, 64)
	return n
}

// watch measures a stretch of work.
type watch struct {
	s     *servers
	began time.Time
	cpu   cpu
}

// cpu is the processor time of this process, of NATS and of Redis.
type cpu [3]time.Duration

func (s *servers) start() watch { return watch{s, time.Now(), s.cpu()} }

func (w watch) stop(turns int) Throughput {
	took, used := time.Since(w.began), w.s.cpu()
	t := Throughput{TurnsPerSecond: float64(turns) / took.Seconds()}
	for i := range used {
		t.CPUParts[i] = float64(used[i]-w.cpu[i]) / 1e6 / float64(turns)
		t.CPUPerTurnMS += t.CPUParts[i]
	}
	return t
}

func (s *servers) cpu() (used cpu) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err == nil {
		used[0] = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for i, p := range s.procs { // NATS was started first
		used[i+1] = cpuOf(p)
	}
	return used
}

// cpuOf is the processor time of another process.
func cpuOf(p *exec.Cmd) (used time.Duration) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for _, f := range fields[11:13] { // utime, stime
		n, _ := strconv.ParseInt(f, 10, 64)
		used += time.Duration(n) * time.Second / ticksPerSecond
	}
	return used
}
