package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// NATSServer is one nats-server.
type NATSServer struct {
	Process
	Addr    string
	Monitor string // the URL of its HTTP monitoring
}

// NewNATS prepares n servers, each with a storage limit in bytes, as if its disk were no larger;
// several form a cluster.
func NewNATS(bin, dir string, n int, storage int64) ([]*NATSServer, error) {
	ports := make([]int, 3*n)
	for i := range ports {
		var err error
		if ports[i], err = devserver.FreePort(); err != nil {
			return nil, err
		}
	}
	var routes []string
	for i := range n {
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", ports[n+i]))
	}
	servers := make([]*NATSServer, n)
	for i := range n {
		name := fmt.Sprintf("nats%d", i+1)
		conf := fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:%d\"\nhttp: \"127.0.0.1:%d\"\njetstream { store_dir: %q, max_file_store: %d }\n",
			name, ports[i], ports[2*n+i], filepath.Join(dir, name), storage)
		if n > 1 {
			// Clients must learn only the proxies' addresses.
			conf += fmt.Sprintf("cluster { name: chaos, listen: \"127.0.0.1:%d\", routes: [%q], no_advertise: true }\n", ports[n+i], strings.Join(routes, `", "`))
			conf = strings.ReplaceAll(conf, `\"`, `"`)
		}
		path := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
			return nil, err
		}
		servers[i] = &NATSServer{
			Process: Process{Name: name, Path: filepath.Join(bin, "nats-server"), Args: []string{"-c", path}},
			Addr:    fmt.Sprintf("127.0.0.1:%d", ports[i]),
			Monitor: fmt.Sprintf("http://127.0.0.1:%d", ports[2*n+i]),
		}
	}
	return servers, nil
}

// RedisServer is one redis-server with an append-only file that is always synced.
type RedisServer struct {
	Process
	Addr   string
	Dir    string
	Client *redis.Client
}

// NewRedis prepares a server with its own directory in dir, and a client of it.
func NewRedis(dir, name string) (*RedisServer, error) {
	return newRedis(dir, name, "redis-server", "")
}

// newRedis is NewRedis with another program, a password if there is one, and more options.
func newRedis(dir, name, program, password string, options ...string) (*RedisServer, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("no %s: %w: `apt-get install %[1]s`", program, err)
	}
	port, err := devserver.FreePort()
	if err != nil {
		return nil, err
	}
	s := &RedisServer{Addr: fmt.Sprintf("127.0.0.1:%d", port), Dir: filepath.Join(dir, name)}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	// Beyond the file size limit a write fails, as on a full disk; the signal that comes with it would hide
	// that.
	s.Process = Process{Name: name, Path: "/bin/sh", Args: append([]string{
		"-c", `trap "" XFSZ; if [ -e "$DISK_FULL" ]; then ulimit -S -f 1; fi; exec "$0" "$@"`, path, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", s.Dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1", "--repl-timeout", "5",
	}, options...)}
	if password != "" {
		s.Args = append(s.Args, "--requirepass", password)
	}
	s.Env = []string{"DISK_FULL=" + s.full()}
	s.Client = redis.NewClient(&redis.Options{Addr: s.Addr, Password: password, DialTimeout: time.Second, ReadTimeout: 2 * time.Second, MaxRetries: -1})
	return s, nil
}

// full returns the path of the file that marks the disk as full.
func (s *RedisServer) full() string { return s.Dir + ".full" }

// FillDisk makes the server's disk full: no file can grow until free is called. A
// server that syncs always gives up then, at each write, until some is free.
func (s *RedisServer) FillDisk() (free func() error, err error) {
	if err := os.WriteFile(s.full(), nil, 0o600); err != nil {
		return nil, err
	}
	free = func() error {
		if err := os.Remove(s.full()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return s.limitFiles(unlimited)
	}
	return free, s.limitFiles(1)
}

// limitFiles bounds the size of files in bytes, if the server is running: it may end at any time, also for
// other reasons.
func (s *RedisServer) limitFiles(size uint64) error {
	pid := s.PID()
	if pid == 0 {
		return nil
	}
	if err := limitFileSize(pid, size); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("limit the files of %s: %w", s.Name, err)
	}
	return nil
}

// FillMemory makes the server refuse writes until the caller calls free, which it must also do
// after an error: a request without an answer may have taken effect.
func (s *RedisServer) FillMemory(ctx context.Context) (free func() error, err error) {
	set := func(ctx context.Context, limit string) error {
		return s.Client.ConfigSet(ctx, "maxmemory", limit).Err()
	}
	return func() error {
		return Until(context.WithoutCancel(ctx), 30*time.Second, s.Name+" has memory", func(ctx context.Context) error { return set(ctx, "0") })
	}, set(ctx, "1mb")
}

// FillStream uses up the storage of NATS, until the caller calls free, which it must also do after
// an error.
func FillStream(ctx context.Context, js jetstream.JetStream) (free func() error, err error) {
	const name = "FILLER"
	free = func() error {
		return Until(context.WithoutCancel(ctx), 30*time.Second, "NATS takes writes", func(ctx context.Context) error {
			err := js.DeleteStream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil
			}
			return err
		})
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"filler"}}); err != nil {
		return free, fmt.Errorf("fill NATS: %w", err)
	}
	for size := 900 << 10; size > 0 && ctx.Err() == nil; {
		if _, err := js.Publish(ctx, "filler", make([]byte, size)); err != nil {
			size /= 8 // to fill what is left
		}
	}
	return free, nil
}

// ConnectNATS returns a connection that bypasses the proxies.
func ConnectNATS(servers []*NATSServer) (*nats.Conn, error) {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = "nats://" + s.Addr
	}
	return nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
}
