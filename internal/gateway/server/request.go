package server

import (
	"crypto/rand"
	"errors"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// maxHeader is the maximum size of the URL and the headers of a request, in bytes.
	maxHeader = 64 << 10

	// writePiece is the number of bytes that a client must receive within Config.WriteTimeout.
	writePiece = 64 << 10
)

// receive sets the headers that every response has, and returns a writer for this one.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	h := w.Header()
	id := r.Header.Get(exchange.HeaderRequestID)
	if !sane(id) {
		id = rand.Text()
	}
	h.Set(exchange.HeaderRequestID, id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", StrictTransport)
	}
	p := &patient{ResponseWriter: w, rc: http.NewResponseController(w), limit: s.cfg.WriteTimeout}
	// The previous request of the connection may have left its deadline.
	p.timed = !errors.Is(p.rc.SetWriteDeadline(time.Time{}), http.ErrNotSupported)
	return p
}

// sane reports whether the request id that a client sent may appear in logs and responses.
func sane(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

// headerBytes returns the size of the URL and the headers of a request.
func headerBytes(r *http.Request) int {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	return size
}

// patient writes to a slow client as long as each piece is received within limit.
type patient struct {
	http.ResponseWriter

	rc    *http.ResponseController
	limit time.Duration
	timed bool // the connection supports deadlines
}

// Unwrap lets http.ResponseController flush.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *patient) wait() {
	if p.timed {
		_ = p.rc.SetWriteDeadline(time.Now().Add(p.limit)) // the write reports the error
	}
}

func (p *patient) WriteHeader(status int) {
	p.wait()
	p.ResponseWriter.WriteHeader(status)
}

func (p *patient) Write(b []byte) (written int, err error) {
	for {
		piece := b[:min(len(b), writePiece)]
		p.wait()
		n, err := p.ResponseWriter.Write(piece)
		if written += n; err != nil {
			return written, err
		}
		if b = b[len(piece):]; len(b) == 0 {
			return written, nil
		}
	}
}

// recovered runs a handler, and logs and converts a panic to an error. If a part of the response was sent, it panics
// with http.ErrAbortHandler instead, so that net/http ends the connection or the HTTP/2 stream: a partial response
// must not look complete. It passes on a panic with http.ErrAbortHandler.
func (s *Server) recovered(h exchange.Handler, rec *recorder, r *http.Request) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // it is what was thrown
			panic(p)
		}
		s.cfg.Log.Error("request panicked", "panic", p, "path", service.Clip(r.URL.Path, service.MaxEcho), "request_id", rec.Header().Get(exchange.HeaderRequestID), "stack", string(debug.Stack()), "hint", "report this bug in Turnpike with the stack")
		if rec.status != 0 {
			panic(http.ErrAbortHandler)
		}
		err = exchange.Problem(http.StatusInternalServerError, api.CodeInternal, "internal error, a bug in Turnpike: report it with the stack, which the gateway logs under the id of this request")
	}()
	return h(rec, r)
}

// recorder records the status of a response, and the time at which it began.
type recorder struct {
	http.ResponseWriter

	status          int
	received, began time.Time
}

func (r *recorder) WriteHeader(status int) {
	r.note(status)
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.note(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

func (r *recorder) note(status int) { r.status, r.began = status, time.Now() }

// Unwrap lets http.ResponseController flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// headOnly records the status and the headers of a response and drops its body.
type headOnly struct {
	header http.Header
	status int
}

func (h *headOnly) Header() http.Header         { return h.header }
func (h *headOnly) WriteHeader(status int)      { h.status = status }
func (h *headOnly) Write(b []byte) (int, error) { return len(b), nil }
