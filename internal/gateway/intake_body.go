package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// strangerBody is the largest body of a caller that has not been authenticated.
	strangerBody = 1 << 10

	// bodyWindow is the time in which a sender must send windowBytes, or the rest of its
	// body. A stranger must send all of its body in one window.
	bodyWindow  = 5 * time.Second
	windowBytes = 16 << 10 * int64(bodyWindow/time.Second)

	// copies is the number of bytes that a byte of a body takes: as it came, and decoded.
	// valueBytes is the memory of one decoded value besides its text.
	copies     = 2
	valueBytes = 64

	// firstBuffer is the size of the first buffer of a body.
	firstBuffer = 16 << 10
)

// byteBudget counts the bytes of bodies in memory, in all and by tenant.
type byteBudget struct {
	limit, share int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
}

// take reserves n bytes for a tenant, or returns the problem that refuses the request.
func (b *byteBudget) take(tenant string, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tenants[tenant]+n > b.share {
		return busy(http.StatusTooManyRequests, api.CodeTooManyBytes, "requests of tenant %s hold %d bytes of memory and this one needs %d more, at most %d are allowed: send fewer at once", tenant, b.tenants[tenant], n, b.share)
	}
	if b.used+n > b.limit {
		return busy(http.StatusServiceUnavailable, api.CodeOverloaded, "requests hold %d bytes of memory and this one needs %d more, at most %d are allowed: try again", b.used, n, b.limit)
	}
	b.used += n
	b.tenants[tenant] += n
	return nil
}

func (b *byteBudget) give(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.tenants[tenant] -= n; b.tenants[tenant] <= 0 {
		delete(b.tenants, tenant)
	}
}

// inUse returns the bytes of all tenants.
func (b *byteBudget) inUse() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.used)
}

// busy is a problem that ends by itself.
func busy(status int, code, format string, args ...any) *api.Problem {
	p := problem(status, code, format, args...)
	p.RetryAfter = service.RetryAfter
	return p
}

// intakeBody is the body of a request. It is a stranger's until admit: small, and read in
// one window. An admitted body is counted in the budget until release.
type intakeBody struct {
	io.ReadCloser

	rc     *http.ResponseController
	budget *byteBudget
	old    bool // HTTP/1: what is left of a body holds up the next request

	announced int64 // by Content-Length; -1: chunked
	limit     int64
	read      int64
	err       error // of the last read

	tenant  string // "" until admit
	charged int64

	windowEnd  time.Time
	windowRead int64
}

// receiveBody returns r with a body that is bounded, and the function that releases it.
func (g *Gateway) receiveBody(w http.ResponseWriter, r *http.Request) (*http.Request, func()) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, func() {}
	}
	b := &intakeBody{ReadCloser: r.Body, rc: http.NewResponseController(w), budget: g.bodies, old: r.ProtoMajor < 2, announced: r.ContentLength, limit: strangerBody}
	b.openWindow(time.Now())
	// The server looks at the body of its own request to decide whether it reads the rest.
	r = r.WithContext(r.Context())
	r.Body = b
	return r, b.release
}

// admit bounds the body of an authenticated caller and reserves memory for it before any of
// it is read.
func (b *intakeBody) admit(tenant string, limit int64) error {
	b.tenant, b.limit = tenant, limit
	if b.announced > limit {
		return b.fail(tooLarge(limit))
	}
	if err := b.charge(max(b.announced, 0) * copies); err != nil {
		return b.fail(err)
	}
	b.windowEnd = time.Time{} // a new one opens when the handler reads
	return nil
}

func tooLarge(limit int64) error {
	return problem(http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge, "the body is larger than %d bytes", limit)
}

// charge reserves memory. One body never needs more than the share of its tenant: alone, a
// large one is admitted.
func (b *intakeBody) charge(n int64) error {
	if n = min(n, b.budget.share-b.charged); n <= 0 {
		return nil
	}
	if err := b.budget.take(b.tenant, n); err != nil {
		return err
	}
	b.charged += n
	return nil
}

// releaseBody returns the memory of a request's body to the budget before the request has ended.
// The handler must not read the body any more.
func releaseBody(r *http.Request) {
	if b, ok := r.Body.(*intakeBody); ok {
		b.release()
	}
}

// release returns the memory of the body to the budget.
func (b *intakeBody) release() {
	if b.charged > 0 {
		b.budget.give(b.tenant, b.charged)
		b.charged = 0
	}
}

// fail notes that the body is not read any further.
func (b *intakeBody) fail(err error) error {
	b.err = err
	return err
}

// abandon has the server close the connection after a refusal, instead of reading what is left
// of the body. A small rest is cheaper than a new connection.
func (b *intakeBody) abandon(h http.Header) {
	if b.old && !errors.Is(b.err, io.EOF) && (b.announced < 0 || b.announced-b.read > strangerBody) {
		h.Set("Connection", "close")
	}
}

// openWindow gives the sender time for the next bytes.
func (b *intakeBody) openWindow(now time.Time) {
	b.windowEnd, b.windowRead = now.Add(bodyWindow), 0
	_ = b.rc.SetReadDeadline(b.windowEnd) // a recorder has no connection
}

// Read reads within the limits. Its error is a problem, or io.EOF.
func (b *intakeBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.windowEnd.IsZero() || b.tenant != "" && b.windowRead >= windowBytes {
		b.openWindow(time.Now())
	}
	// One byte more than the limit shows that the body is larger.
	p = p[:min(int64(len(p)), b.limit-b.read+1)]
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.windowRead += int64(n)
	switch {
	case b.read > b.limit:
		return 0, b.fail(tooLarge(b.limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, b.fail(problem(http.StatusRequestTimeout, api.CodeBodyTooSlow, "%d bytes of the body came in %s, at least %d are required: send it faster", b.windowRead, bodyWindow, windowBytes))
	case err != nil && !errors.Is(err, io.EOF):
		return 0, b.fail(problem(http.StatusBadRequest, api.CodeInvalidRequest, "the body could not be read: %v", err))
	}
	if b.tenant != "" && b.announced < 0 {
		if err := b.charge(int64(n) * copies); err != nil {
			return 0, b.fail(err)
		}
	}
	b.err = err
	return n, err
}

// all reads the body and reserves the memory that decoding it takes.
func (b *intakeBody) all() ([]byte, error) {
	limit := b.limit
	if b.announced >= 0 {
		limit = min(limit, b.announced)
	}
	buf := make([]byte, 0, min(limit, firstBuffer)+1)
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(2*int64(cap(buf)), limit+1))
			copy(grown, buf)
			buf = grown
		}
		n, err := b.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if b.tenant == "" {
		return buf, nil
	}
	if err := b.charge(int64(valuesIn(buf)) * valueBytes); err != nil {
		return nil, err
	}
	return buf, nil
}

// valuesIn returns the number of values that a document has, or a few more.
func valuesIn(doc []byte) int {
	if start := bytes.TrimLeft(doc, " \t\r\n"); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		return api.Values(doc)
	}
	n := 0 // YAML
	for _, c := range doc {
		switch c {
		case '\n', ',', '[', '{':
			n++
		}
	}
	return n
}

// readBody reads a request's body, bounded.
func readBody(r *http.Request) ([]byte, error) {
	if b, ok := r.Body.(*intakeBody); ok {
		return b.all()
	}
	return nil, nil // it has none
}

// decode reads a request's body into v, strictly.
func decode(r *http.Request, v any) ([]byte, error) {
	b, err := readBody(r)
	if err != nil {
		return nil, err
	}
	if err := api.Decode(b, v); err != nil {
		return nil, problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
	}
	return b, nil
}
