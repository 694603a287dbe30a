package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/turnpike-dev/turnpike/internal/testbed"
)

// natsServer is one nats-server.
type natsServer struct {
	process
	addr string
}

// natsStorage bounds what a server stores, so that its disk can be filled.
const natsStorage = 256 << 20

// newNATS prepares n servers; more than one are a cluster.
func newNATS(bin, dir string, n int) ([]*natsServer, error) {
	ports := make([]int, 2*n)
	for i := range ports {
		var err error
		if ports[i], err = testbed.FreePort(); err != nil {
			return nil, err
		}
	}
	var routes []string
	for i := range n {
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", ports[n+i]))
	}
	servers := make([]*natsServer, n)
	for i := range n {
		name := fmt.Sprintf("nats%d", i+1)
		conf := fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:%d\"\njetstream { store_dir: %q, max_file_store: %d }\n",
			name, ports[i], filepath.Join(dir, name), natsStorage)
		if n > 1 {
			// Clients are to know the proxies only.
			conf += fmt.Sprintf("cluster { name: chaos, listen: \"127.0.0.1:%d\", routes: [%q], no_advertise: true }\n", ports[n+i], strings.Join(routes, `", "`))
			conf = strings.ReplaceAll(conf, `\"`, `"`)
		}
		path := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
			return nil, err
		}
		servers[i] = &natsServer{
			process: process{name: name, path: filepath.Join(bin, "nats-server"), args: []string{"-c", path}},
			addr:    fmt.Sprintf("127.0.0.1:%d", ports[i]),
		}
	}
	return servers, nil
}

// redisServer is one redis-server with an append-only file that is synced always.
type redisServer struct {
	process
	addr string
	dir  string
	rdb  *redis.Client
}

func newRedis(dir, name string) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("chaos needs redis-server: %w: `apt-get install redis-server`", err)
	}
	port, err := testbed.FreePort()
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: fmt.Sprintf("127.0.0.1:%d", port), dir: filepath.Join(dir, name)}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	// Beyond the limit on the size of files a write fails, as on a full disk; the
	// signal that comes with it would hide that.
	s.process = process{name: name, path: "/bin/sh", args: []string{
		"-c", `trap "" XFSZ; exec "$0" "$@"`, path, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1", "--repl-timeout", "5",
	}}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr, DialTimeout: time.Second, ReadTimeout: 2 * time.Second, MaxRetries: -1})
	return s, nil
}

// fillDisk makes the server's disk full for a while: no file can grow any more. A
// server that syncs always gives up then, and comes back when there is room.
func (s *redisServer) fillDisk(ctx context.Context, d time.Duration) error {
	pid := s.pid()
	if pid == 0 {
		return nil
	}
	var before unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: unix.RLIM_INFINITY}, &before)
	if err == nil {
		pause(ctx, d)
		err = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &before, nil)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // another fault may have ended it
		return fmt.Errorf("limit the files of %s: %w", s.name, err)
	}
	return nil
}

// fillMemory makes the server refuse writes for a while, unless another fault has
// taken it away.
func (s *redisServer) fillMemory(ctx context.Context, d time.Duration) error {
	if s.rdb.ConfigSet(ctx, "maxmemory", "1mb").Err() == nil {
		pause(ctx, d)
	}
	// What got no answer may have been done all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for {
		err := s.rdb.ConfigSet(ctx, "maxmemory", "0").Err()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// fillStream uses up what NATS may store, for a while, unless another fault has taken
// the server away.
func fillStream(ctx context.Context, js jetstream.JetStream, d time.Duration) error {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}}); err != nil {
		return nil //nolint:nilerr // as above
	}
	defer js.DeleteStream(context.WithoutCancel(ctx), "FILLER") //nolint:errcheck // the phase ends with its servers
	block := make([]byte, 900<<10)
	for ctx.Err() == nil {
		if _, err := js.Publish(ctx, "filler", block); err != nil {
			break
		}
	}
	pause(ctx, d)
	return nil
}

// connectNATS is the campaign's own connection, past the proxies.
func connectNATS(servers []*natsServer) (*nats.Conn, error) {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = "nats://" + s.addr
	}
	return nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
}
