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

// StrictTransport is the value of the header Strict-Transport-Security in responses over TLS: browsers use only TLS for
// this host, for a year.
const StrictTransport = "max-age=31536000"

const (
	// shutdownTimeout is the time in which open requests may finish.
	shutdownTimeout = 10 * time.Second

	// headerTimeout is the time in which a client must complete a handshake and send headers.
	headerTimeout = 10 * time.Second
)

// Listen serves h, the result of Handler, on a listener until ctx ends. Then open requests may finish for ten seconds.
// If some do not, Listen returns context.DeadlineExceeded and leaves their connections open. The http.Server has no
// WriteTimeout, because streams last as long as the gateway: h limits the time of each write. The limit for reading
// applies to headers only, because bodies have their own.
func (s *Server) Listen(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ErrorLog: ConnectionLog(s.cfg.Log), ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 4 * maxHeader,
		ConnContext: s.cfg.Connections.Accept, ConnState: s.cfg.Connections.Changed,
		// The server holds bytes in memory that a client sends before a handler reads them.
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

// ConnectionLog returns a log for errors of the connections of an http.Server. It logs them with level debug, because
// strangers control their number.
func ConnectionLog(log *slog.Logger) *stdlog.Logger {
	return stdlog.New(connectionLog{log}, "", 0)
}

type connectionLog struct{ log *slog.Logger }

func (l connectionLog) Write(b []byte) (int, error) {
	l.log.Debug("connection failed", "what", string(bytes.TrimSpace(b)))
	return len(b), nil
}
