package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// shutdownTimeout bounds how long open requests may finish.
const shutdownTimeout = 10 * time.Second

// Serve answers requests on the listener and takes submissions and aborts from the bus,
// until ctx ends or one of the two fails. Open requests may finish for ten seconds;
// event streams end at once, and their readers resume elsewhere. It closes the listener.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.Run(ctx) })
	group.Go(func() error { return serve(ctx, listener, g.Handler()) })
	return group.Wait()
}

// serve runs an HTTP server until ctx ends. Streams end with the gateway, so there is no
// limit on writing.
func serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
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
