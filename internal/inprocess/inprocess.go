// Package inprocess makes HTTP requests to a handler of the same process, without a connection.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// ErrClosed reports a request to a closed Transport.
var ErrClosed = errors.New("closed")

// Transport is an http.RoundTripper that calls a handler. A response arrives as the handler writes
// it: the handler waits until the caller has read what it wrote. A request ends with its context,
// when the caller closes the body, and with Close. A Transport is safe for concurrent use.
type Transport struct {
	handler http.Handler
	closing context.Context //nolint:containedctx // ended by Close
	end     context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New returns a Transport that calls handler.
func New(handler http.Handler) *Transport {
	t := &Transport{handler: handler}
	t.closing, t.end = context.WithCancelCause(context.Background())
	return t
}

// Close ends all requests, waits until their handlers have returned, and makes later requests fail
// with ErrClosed.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.end(ErrClosed)
	t.running.Wait()
}

// Closing returns a context that ends when Close is called.
func (t *Transport) Closing() context.Context { return t.closing }

// RoundTrip implements http.RoundTripper. It returns when the handler has written its header.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Err() != nil {
		closeBody(r)
		return nil, context.Cause(r.Context())
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		closeBody(r)
		return nil, ErrClosed
	}
	t.running.Add(1)
	t.mu.Unlock()

	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(t.closing, func() { cancel(ErrClosed) })
	body, sink := io.Pipe()
	w := &writer{header: http.Header{}, sink: sink, ready: make(chan struct{})}
	// A handler that writes what no caller reads any more gets an error.
	unblock := context.AfterFunc(ctx, func() { _ = sink.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer t.running.Done()
		defer closeBody(r)
		err := w.serve(t.handler, request(ctx, r))
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		stop()
		unblock()
		_ = sink.CloseWithError(err) // nil: io.EOF
	}()
	select {
	case <-w.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	length := int64(-1)
	if n, err := strconv.ParseInt(w.sent.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: length, Request: r, Body: &reader{body, func() { cancel(context.Canceled) }},
	}, nil
}

// request returns r as a server would receive it.
func request(ctx context.Context, r *http.Request) *http.Request {
	in := r.Clone(ctx)
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "in-process"
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	return in
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// reader ends the request when its caller closes the body.
type reader struct {
	*io.PipeReader

	cancel func()
}

func (r *reader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

// writer is the http.ResponseWriter of one request.
type writer struct {
	header http.Header
	sink   *io.PipeWriter

	ready  chan struct{} // closed when the header is written
	status int           // set before ready is closed
	sent   http.Header
}

// serve runs the handler and returns an error if it panicked: half an answer must not look complete.
func (w *writer) serve(h http.Handler, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the handler panicked", io.ErrUnexpectedEOF)
		}
		w.WriteHeader(http.StatusOK)
	}()
	h.ServeHTTP(w, r)
	return nil
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status, w.sent = status, w.header.Clone()
	close(w.ready)
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.sink.Write(b)
}

// Flush implements http.Flusher.
func (w *writer) Flush() { w.WriteHeader(http.StatusOK) }
