package exchange

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// strangerBody is the largest body of a caller that has not been authenticated.
	strangerBody = 1 << 10

	// bodyWindow is the time in which a sender must send windowBytes, or the rest of its
	// body. A stranger must send all of its body in one window.
	bodyWindow  = 5 * time.Second
	windowBytes = 16 << 10 * int64(bodyWindow/time.Second)

	// copies is the number of bytes of memory for a byte of a body: as received, and decoded. valueBytes is the memory
	// of one decoded value in addition to its text, in bytes.
	copies     = 2
	valueBytes = 64

	// firstBuffer is the size of the first buffer of a body, in bytes.
	firstBuffer = 16 << 10
)

// Memory counts the bytes of request bodies in memory, in total and by tenant. It is safe for concurrent use.
type Memory struct {
	limit, share int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
}

// NewMemory returns a Memory for at most limit bytes. One tenant may use share of them.
func NewMemory(limit, share int64) *Memory {
	return &Memory{limit: limit, share: share, tenants: map[string]int64{}}
}

// take reserves n bytes for a tenant. The error is the problem for the client: too_many_bytes if the tenant exceeds its
// share, overloaded if all tenants exceed the limit.
func (m *Memory) take(tenant string, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenants[tenant]+n > m.share {
		return Busy(http.StatusTooManyRequests, api.CodeTooManyBytes, "%s use %d bytes of memory and this one needs %d more, at most %d are allowed in total: send fewer requests at once", requestsOf(tenant), m.tenants[tenant], n, m.share)
	}
	if m.used+n > m.limit {
		return Busy(http.StatusServiceUnavailable, api.CodeOverloaded, "requests use %d bytes of memory of this gateway and this one needs %d more, at most %d are allowed in total: retry", m.used, n, m.limit)
	}
	m.used += n
	m.tenants[tenant] += n
	return nil
}

// requestsOf describes the requests of a tenant, or of another owner of memory.
func requestsOf(owner string) string {
	if strings.HasPrefix(owner, "*") {
		return "unverified deliveries"
	}
	return "requests of tenant " + owner
}

func (m *Memory) give(tenant string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.tenants[tenant] -= n; m.tenants[tenant] <= 0 {
		delete(m.tenants, tenant)
	}
}

// InUse returns the reserved bytes of all tenants.
func (m *Memory) InUse() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(m.used)
}

// body is the body of a request. Until one of the Admit functions admits it, it belongs to a stranger: it must be small
// and arrive in one window. Memory counts an admitted body, or only the buffers of its handler, until it is released.
type body struct {
	io.ReadCloser

	rc     *http.ResponseController
	memory *Memory
	old    bool // HTTP/1: an unread rest of the body delays the next request of the connection

	announced int64 // the Content-Length; -1: unknown
	limit     int64
	read      int64
	err       error // the error of later reads

	tenant   string // empty until Admit
	streamed bool   // only the buffers of its handler count, not its bytes
	arriving bool   // its bytes count as they arrive, whatever the Content-Length is

	charged int64

	windowEnd  time.Time
	windowRead int64
}

// Receive returns r with a body whose size and speed are limited as for a caller who is not authenticated yet, and a
// function that releases the memory of the body. The caller must call the function when the request ends.
func Receive(w http.ResponseWriter, r *http.Request, memory *Memory) (*http.Request, func()) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, func() {}
	}
	b := &body{ReadCloser: r.Body, rc: http.NewResponseController(w), memory: memory, old: r.ProtoMajor < 2, announced: r.ContentLength, limit: strangerBody}
	b.openWindow(time.Now())
	// The server examines the body of its own request to decide whether to read the rest.
	r = r.WithContext(r.Context())
	r.Body = b
	return r, b.release
}

// Admit allows the body of a request up to limit bytes, for an authenticated caller of the tenant. If the request
// states its length, Admit reserves the memory for the body; otherwise reads of the body reserve it. One body reserves
// at most the share of its tenant. The error is a problem: the stated length is too large, or there is not enough
// memory. Later reads also return it. Admit always admits a request without a body from Receive.
func Admit(r *http.Request, tenant string, limit int64) error {
	b, ok := r.Body.(*body)
	if !ok {
		return nil
	}
	b.tenant, b.limit = tenant, limit
	if b.announced > limit {
		return b.fail(b.tooLarge())
	}
	if !b.arriving {
		if err := b.charge(max(b.announced, 0) * copies); err != nil {
			return b.fail(err)
		}
	}
	b.windowEnd = time.Time{} // the first read opens a window
	return nil
}

// AdmitStream is Admit for a handler that processes the body while it arrives. It reserves only buffers bytes, for the
// part of the body that the handler keeps at once.
func AdmitStream(r *http.Request, tenant string, limit, buffers int64) error {
	b, ok := r.Body.(*body)
	if !ok {
		return nil
	}
	b.tenant, b.limit, b.streamed = tenant, limit, true
	if b.announced > limit {
		return b.fail(b.tooLarge())
	}
	if err := b.charge(buffers); err != nil {
		return b.fail(err)
	}
	b.windowEnd = time.Time{}
	return nil
}

// AdmitUnsigned is Admit for a sender that is authenticated only by a signature of the body. Memory is reserved while
// the body arrives, because any sender can claim any length. owner is counted like a tenant in the memory; it begins
// with *, which no tenant's name does.
func AdmitUnsigned(r *http.Request, owner string, limit int64) error {
	b, ok := r.Body.(*body)
	if !ok {
		return nil
	}
	b.arriving = true
	return Admit(r, owner, limit)
}

// TooLarge returns the problem of a body that is larger than limit bytes.
func TooLarge(limit int64) error {
	return Problem(http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge, "the body is larger than %d bytes, the maximum: send less; upload the files of a run first, and send their ids", limit)
}

// tooLarge returns the problem of a body that is larger than its limit.
func (b *body) tooLarge() error {
	if b.streamed {
		return Problem(http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge, "the body is larger than %d bytes, the maximum for a file and its headers: upload a smaller file", b.limit)
	}
	return TooLarge(b.limit)
}

// charge reserves n bytes more, but for one body at most the share of its tenant: alone, a large one is admitted.
func (b *body) charge(n int64) error {
	if n = min(n, b.memory.share-b.charged); n <= 0 {
		return nil
	}
	if err := b.memory.take(b.tenant, n); err != nil {
		return err
	}
	b.charged += n
	return nil
}

// Release releases the memory of a request's body before the request ends. The handler must not use the body or its
// bytes afterwards.
func Release(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.release()
	}
}

func (b *body) release() {
	if b.charged > 0 {
		b.memory.give(b.tenant, b.charged)
		b.charged = 0
	}
}

// fail makes all later reads return err, and returns it.
func (b *body) fail(err error) error {
	b.err = err
	return err
}

// abandon makes a server of HTTP/1 close the connection after it has refused a request, unless the body was read to
// its end or its rest is known to be small: reading that is cheaper than a new connection.
func (b *body) abandon(h http.Header) {
	if b.old && !errors.Is(b.err, io.EOF) && (b.announced < 0 || b.announced-b.read > strangerBody) {
		h.Set("Connection", "close")
	}
}

// openWindow starts the time in which the sender must send the next windowBytes.
func (b *body) openWindow(now time.Time) {
	b.windowEnd, b.windowRead = now.Add(bodyWindow), 0
	_ = b.rc.SetReadDeadline(b.windowEnd) // a recorder in tests has no connection
}

// Read reads the body within the limits. The error is a problem or io.EOF.
func (b *body) Read(p []byte) (int, error) {
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
		return 0, b.fail(b.tooLarge())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, b.fail(Problem(http.StatusRequestTimeout, api.CodeBodyTooSlow, "%d bytes of the body arrived in %s, at least %d or the rest of the body are required: send the request again, over a faster connection if this repeats", b.windowRead, bodyWindow, windowBytes))
	case err != nil && !errors.Is(err, io.EOF):
		return 0, b.fail(Invalid("the body could not be read to its end, send it again: %v", err))
	}
	if b.tenant != "" && (b.announced < 0 || b.arriving) && !b.streamed {
		if err := b.charge(int64(n) * copies); err != nil {
			return 0, b.fail(err)
		}
	}
	b.err = err
	return n, err
}

// all reads the body and reserves the memory for its decoded values.
func (b *body) all() ([]byte, error) {
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

// valuesIn returns an upper bound of the number of values in a document.
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

// ReadBody reads the body of a request that Receive has returned. It returns nil without a body. The error is a
// problem.
func ReadBody(r *http.Request) ([]byte, error) {
	if b, ok := r.Body.(*body); ok {
		return b.all()
	}
	return nil, nil
}
