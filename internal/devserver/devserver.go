// Package devserver embeds a NATS server with JetStream, for `turnpike dev`, the
// demo and tests.
package devserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

// Options of a Server.
type Options struct {
	// Dir holds the data. One server at a time may use it.
	Dir string

	// Listen is the TCP address for clients outside the process; empty is none.
	Listen string

	// SyncAlways syncs every write to the disk before it is acknowledged, so that
	// not even a power cut loses it. Without, a killed process loses nothing.
	SyncAlways bool
}

// Server is an embedded NATS server.
type Server struct {
	srv  *server.Server
	lock *os.File
}

// MaxPayload is the largest message that the embedded server takes.
const MaxPayload = 8 << 20

// Start starts a server on a directory and locks it: JetStream itself does not
// notice when two servers write to one.
func Start(o Options) (*Server, error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	opts := &server.Options{
		ServerName: "turnpike-dev", JetStream: true, StoreDir: o.Dir, NoSigs: true, NoLog: true, DontListen: o.Listen == "",
		SyncAlways: o.SyncAlways, DisableJetStreamBanner: true, MaxPayload: MaxPayload,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 30,
	}
	if o.Listen != "" {
		host, port, err := net.SplitHostPort(o.Listen)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("NATS listen address: %w", err), lock.Close())
		}
		opts.Host = host
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return nil, errors.Join(fmt.Errorf("NATS listen port: %w", err), lock.Close())
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS: %w", err), lock.Close())
	}
	go srv.Start() // ends with Shutdown
	if !srv.ReadyForConnections(10 * time.Second) {
		srv.Shutdown()
		return nil, errors.Join(fmt.Errorf("start NATS: not ready in 10 s; is %s in use?", o.Listen), lock.Close())
	}
	return &Server{srv, lock}, nil
}

// lockDir takes the directory for this process until the file is closed.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "LOCK")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner, _ := os.ReadFile(path)
		_ = f.Close()
		who := "another process"
		if pid := strings.TrimSpace(string(owner)); pid != "" {
			who = "process " + pid
		}
		return nil, fmt.Errorf("data directory %s is in use by %s: stop it, or choose another with --data-dir", dir, who)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // tells people, proves nothing
	}
	return f, nil
}

// Conn opens a connection inside the process.
func (s *Server) Conn(name string, opts ...nats.Option) (*nats.Conn, error) {
	return natsbus.Connect("", name, append([]nats.Option{nats.InProcessServer(s.srv)}, opts...)...)
}

// URL is the address for clients outside the process; empty if there is none.
func (s *Server) URL() string { return s.srv.ClientURL() }

// Close stops the server and gives the directory free.
func (s *Server) Close() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	_ = s.lock.Close()
}
