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

// Run takes submissions and abort requests from the bus, sends heartbeats, and deletes runs whose
// retention has passed, until ctx ends. It acknowledges a message once its effect is in the store; a
// message that is refused becomes a dead letter with the cause.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.stop()
	defer context.AfterFunc(ctx, g.stop)()  // streams end before the intake has
	group, ctx := errgroup.WithContext(ctx) // one part that fails ends the others
	group.Go(func() error { return g.intake.Run(ctx) })
	group.Go(func() error { return g.member.Run(ctx) })
	group.Go(func() error {
		g.service.Runs.Clean(ctx)
		return nil
	})
	group.Go(func() error {
		g.service.Tenants.Keep(ctx)
		return nil
	})
	group.Go(func() error {
		g.unpulled.Run(ctx)
		return nil
	})
	return group.Wait()
}

// Attend does the part of Run that every process needs that reads stored runs, until ctx ends: it
// sends heartbeats, so that no other process writes a format that this one cannot read, and opens
// the streams of tenants. Do not call it together with Run. It returns an error if it cannot
// subscribe.
func (g *Gateway) Attend(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.member.Run(ctx) })
	group.Go(func() error {
		g.service.Tenants.Keep(ctx)
		return nil
	})
	return group.Wait()
}

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
