package gateway

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

// StrictTransport is the header Strict-Transport-Security of what is served with TLS: for a
// year browsers ask this host with TLS only.
const StrictTransport = "max-age=31536000"

const (
	// maxHeader bounds the address and the headers of a request, in bytes.
	maxHeader = 64 << 10

	// writePiece is how many bytes a reader must take in Config.WriteTimeout.
	writePiece = 64 << 10
)

// receive sets what all answers have, and returns the writer for this one.
func (g *Gateway) receive(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
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
	p := &patient{ResponseWriter: w, rc: http.NewResponseController(w), limit: g.cfg.WriteTimeout}
	// The request before on this connection may have left its deadline.
	p.timed = !errors.Is(p.rc.SetWriteDeadline(time.Time{}), http.ErrNotSupported)
	return p
}

// sane reports whether the id that a caller gave its request may stand in logs and answers.
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

// headerBytes is how large the address and the headers of a request are.
func headerBytes(r *http.Request) int {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	return size
}

// patient writes for a reader as long as it takes something.
type patient struct {
	http.ResponseWriter

	rc    *http.ResponseController
	limit time.Duration
	timed bool // there is a connection that can be told
}

// Unwrap lets http.ResponseController flush.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *patient) wait() {
	if p.timed {
		_ = p.rc.SetWriteDeadline(time.Now().Add(p.limit)) // the write says what is wrong
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

// calm runs a handler, and makes an answer of a panic. One that comes when a part of the
// answer was sent ends the connection: half an answer must not look like a whole one.
func (g *Gateway) calm(h exchange.Handler, rec *recorder, r *http.Request) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // it is what was thrown
			panic(p)
		}
		g.log.Error("request panicked", "panic", p, "path", service.Clip(r.URL.Path, service.MaxEcho), "request_id", rec.Header().Get(exchange.HeaderRequestID), "stack", string(debug.Stack()), "hint", "report this mistake in Turnpike with the stack")
		if rec.status != 0 {
			panic(http.ErrAbortHandler)
		}
		err = exchange.Problem(http.StatusInternalServerError, api.CodeInternal, "the gateway has made a mistake: its log has it under the request id")
	}()
	return h(rec, r)
}
