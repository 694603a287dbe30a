package server

import (
	"bytes"
	"context"
	"errors"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// StrictTransport is the header Strict-Transport-Security of responses over TLS: browsers use TLS only
// for this host, for a year.
const StrictTransport = "max-age=31536000"

const (
	// shutdownTimeout bounds the time in which open requests may finish.
	shutdownTimeout = 10 * time.Second

	// headerTimeout bounds the time in which a client completes a handshake and sends headers.
	headerTimeout = 10 * time.Second
)

// Listen serves h, which Handler has returned, on a listener until ctx ends. Then open requests may
// finish for ten seconds. There is no limit on writing, because streams end with the gateway. The limit
// on reading is for headers only: bodies have their own.
func (s *Server) Listen(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ErrorLog: ConnectionLog(s.cfg.Log), ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 4 * maxHeader,
		ConnContext: s.cfg.Connections.Accept, ConnState: s.cfg.Connections.Changed,
		// Bytes that a client sends before a handler reads them are in memory.
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

// ConnectionLog returns a log for failures of the connections of an http.Server. Its level is debug,
// because strangers control the number of such failures.
func ConnectionLog(log *slog.Logger) *stdlog.Logger {
	return stdlog.New(connectionLog{log}, "", 0)
}

type connectionLog struct{ log *slog.Logger }

func (l connectionLog) Write(b []byte) (int, error) {
	l.log.Debug("connection failed", "what", string(bytes.TrimSpace(b)))
	return len(b), nil
}
