// Package devserver embeds a NATS server with JetStream, for `turnpike dev`, the
// demo and tests.
package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

// Options of a Server.
type Options struct {
	// Dir holds the data. One server at a time may use it.
	Dir string

	// Listen is the TCP address for clients outside the process; empty means that only this
	// process connects.
	Listen string

	// Password is the password of the user turnpike, which every client must give. Empty
	// means no password.
	Password string

	// SyncAlways syncs every write to the disk before it is acknowledged, so that not even
	// a power cut loses it. Without it a power cut may lose writes, but a killed process
	// loses none.
	SyncAlways bool

	// Logger receives the messages of the server. Default: none.
	Logger *slog.Logger
}

// Limits of the embedded server. Without them it would size itself by the host.
const (
	// MaxPayload is the largest message that the embedded server takes, in bytes.
	MaxPayload = 8 << 20

	maxMemory = 64 << 20
	maxStore  = 64 << 30
)

// user is the one who has the password.
const user = "turnpike"

// startTimeout is the time that Start waits until the server accepts connections. The
// server reads its data first.
const startTimeout = 30 * time.Second

// Server is an embedded NATS server.
type Server struct {
	srv      *server.Server
	password string
	released chan struct{} // closed when the directory is free again
}

// Start starts a server on a directory and locks it: JetStream itself does not
// notice when two servers write to one. It returns when the server takes
// connections.
func Start(o Options) (*Server, error) {
	opts, err := options(o)
	if err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	// The data includes conversations, so only its owner may read it.
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w: set --data-dir to a directory that this user may write to", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	srv, err := start(opts, o.Logger)
	if err != nil {
		unlockDir(lock)
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	s := &Server{srv: srv, password: o.Password, released: make(chan struct{})}
	// The lock lasts as long as the server writes, even if the caller forgets both:
	// a file that nothing refers to is closed by the garbage collector.
	go func() { // ends with Close
		defer close(s.released)
		srv.WaitForShutdown()
		unlockDir(lock)
	}()
	return s, nil
}

func options(o Options) (*server.Options, error) {
	if o.Dir == "" {
		return nil, errors.New("start NATS: the data directory is not set: name one with --data-dir")
	}
	opts := &server.Options{
		ServerName: "turnpike-dev", JetStream: true, StoreDir: o.Dir, NoSigs: true, DontListen: o.Listen == "",
		SyncAlways: o.SyncAlways, DisableJetStreamBanner: true, MaxPayload: MaxPayload,
		JetStreamMaxMemory: maxMemory, JetStreamMaxStore: maxStore,
	}
	if o.Password != "" {
		opts.Username, opts.Password = user, o.Password
	}
	if o.Listen == "" {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("NATS listen address %q: %w: write one such as 127.0.0.1:4222", o.Listen, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("NATS listen address %q: the port is not a number from 0 to 65535: write one such as 127.0.0.1:4222", o.Listen)
	}
	opts.Host, opts.Port = host, int(n)
	if n == 0 {
		opts.Port = server.RANDOM_PORT
	}
	return opts, nil
}

func start(opts *server.Options, log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	out := &logger{log: log.With("part", "nats"), fatal: make(chan error, 1)}
	srv.SetLogger(out, false, false)
	ready := make(chan bool, 1)
	go srv.Start() // ends with Shutdown
	go func() { ready <- srv.ReadyForConnections(startTimeout) }()
	select {
	case ok := <-ready:
		if ok {
			return srv, nil
		}
		err = fmt.Errorf("the embedded NATS server was not ready within %v: correct what it reports in this log; if it reports nothing, check that the disk is neither full nor slow, and start again", startTimeout)
	case err = <-out.fatal:
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil, err
}

// Conn opens a connection inside the process.
func (s *Server) Conn(name string, opts ...nats.Option) (*nats.Conn, error) {
	own := []nats.Option{nats.InProcessServer(s.srv)}
	if s.password != "" {
		own = append(own, nats.UserInfo(user, s.password))
	}
	return natsbus.Connect("", name, append(own, opts...)...)
}

// Address is the address for clients outside the process, if it listens, for people to see.
func (s *Server) Address() string { return s.srv.ClientURL() }

// URL is Address with the user and the password, if there is one.
func (s *Server) URL() string {
	u, err := url.Parse(s.Address())
	if err != nil || s.password == "" {
		return s.Address()
	}
	u.User = url.UserPassword(user, s.password)
	return u.String()
}

// Close stops the server and gives the directory free.
func (s *Server) Close() {
	s.srv.Shutdown()
	<-s.released
}

// logger hands the server's words on. Its Fatalf must return: the process belongs
// to others.
type logger struct {
	log   *slog.Logger
	fatal chan error
}

func (l *logger) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.write(slog.LevelWarn, format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.write(slog.LevelError, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }

func (l *logger) write(level slog.Level, format string, v []any) {
	if ctx := context.Background(); l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, fmt.Sprintf(format, v...))
	}
}

func (l *logger) Fatalf(format string, v ...any) {
	err := fmt.Errorf(format, v...)
	l.log.Error("the embedded NATS server failed", "error", err, "hint", "check that the port is free and the disk has free space, then start again")
	select {
	case l.fatal <- err:
	default:
	}
}
