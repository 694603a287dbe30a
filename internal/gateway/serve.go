package gateway

import (
	"bytes"
	"context"
	"errors"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// shutdownTimeout bounds how long open requests may finish.
	shutdownTimeout = 10 * time.Second

	// headerTimeout bounds how long a client may take to shake hands and to send headers.
	headerTimeout = 10 * time.Second
)

// Serve answers requests on the listener and takes submissions and aborts from the bus,
// until ctx ends or one of the two fails. When ctx has ended GET /readyz is 503 while
// everything goes on for Config.ShutdownDelay. Then the listener closes and open requests may finish
// for ten seconds: event streams and those with ?wait end at once, and readers resume
// elsewhere. Finally, messages on their way to the bus get two seconds.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener) error {
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	work, stop := context.WithCancel(failed)
	defer stop()
	group.Go(func() error { return g.Run(work) })
	group.Go(func() error { return g.serveHTTP(work, listener) })
	group.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
			g.awaitDrain(failed)
		case <-failed.Done():
		}
		return nil
	})
	err := group.Wait()
	g.Close()
	return err
}

// awaitDrain says that the process is to end soon, and waits until everybody has heard it.
func (g *Gateway) awaitDrain(ctx context.Context) {
	if g.cfg.ShutdownDelay <= 0 {
		return
	}
	g.draining.Store(true)
	g.log.Info("gateway drains", "drain_ms", g.cfg.ShutdownDelay.Milliseconds())
	timer := time.NewTimer(g.cfg.ShutdownDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// serveHTTP runs an HTTP server until ctx ends. Streams end with the gateway, so there is no
// limit on writing. The limit on reading is for headers only: bodies have their own.
func (g *Gateway) serveHTTP(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: g.Handler(), ErrorLog: ConnectionLog(g.log), ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 4 * maxHeader,
		ConnContext: g.conns.Accept, ConnState: g.conns.Changed,
		// What a client sends before a handler reads it is held in memory.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 250, MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 32 << 10},
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(down)
	})
	err := server.Serve(listener)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// ConnectionLog is where an HTTP server says what is wrong with connections, at level debug:
// strangers decide how often.
func ConnectionLog(log *slog.Logger) *stdlog.Logger {
	return stdlog.New(connectionLog{log}, "", 0)
}

type connectionLog struct{ log *slog.Logger }

func (l connectionLog) Write(b []byte) (int, error) {
	l.log.Debug("connection failed", "what", string(bytes.TrimSpace(b)))
	return len(b), nil
}
