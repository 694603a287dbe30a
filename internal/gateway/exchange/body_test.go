package exchange_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// connected is a response whose request arrives on a connection.
type connected struct {
	*httptest.ResponseRecorder

	conn net.Conn
}

func (c connected) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// A sender that never stalls must send 16 KB a second all the same: each byte that arrives gives it no more time. A
// caller without a key must send all of its body within 5 seconds.
func TestTricklingSenders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tenant      string
		size, steps int // the sender sends the body in steps, ten a second
		slow        bool
	}{
		"a caller at 10 KB/s":          {"acme", 300_000, 300, true},
		"a caller at 10 bytes/s":       {"acme", 1_000, 1_000, true},
		"a caller at 20 KB/s":          {"acme", 300_000, 150, false},
		"a caller who is done in time": {"acme", 1_000, 40, false},
		"a stranger at 10 bytes/s":     {"", 1_000, 1_000, true},
		"a stranger at 1 KB/s":         {"", 1_000, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, announced := range []int64{int64(c.size), -1} {
				synctest.Test(t, func(t *testing.T) {
					server, client := net.Pipe()
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						defer client.Close()
						for range c.steps {
							time.Sleep(time.Second / 10) // the clock of the bubble
							if _, err := client.Write(bytes.Repeat([]byte{'x'}, c.size/c.steps)); err != nil {
								return
							}
						}
					}()
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/runs", server)
					r.ContentLength = announced
					r, release := exchange.Receive(connected{httptest.NewRecorder(), server}, r, exchange.NewMemory(1<<20, 1<<20))
					defer release()
					if c.tenant != "" {
						if err := exchange.Admit(r, c.tenant, 1<<20); err != nil {
							t.Fatal(err)
						}
					}
					got, err := exchange.ReadBody(r)
					p, refused := errors.AsType[*api.Problem](err)
					switch {
					case c.slow && (!refused || p.Code != api.CodeBodyTooSlow):
						t.Errorf("length %d: %d bytes were read, %v; want %s", announced, len(got), err, api.CodeBodyTooSlow)
					case !c.slow && (err != nil || len(got) != c.size):
						t.Errorf("length %d: %d bytes were read, %v; want all", announced, len(got), err)
					}
					_ = server.Close()
					<-sent
				})
			}
		})
	}
}

// A body may have as many bytes as its limit, whether it states its length or not.
func TestLimitOfABody(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for name, admit := range map[string]func(*http.Request) error{
		"whole":    func(r *http.Request) error { return exchange.Admit(r, "acme", limit) },
		"streamed": func(r *http.Request) error { return exchange.AdmitStream(r, "acme", limit, 10) },
		"unsigned": func(r *http.Request) error { return exchange.AdmitUnsigned(r, "*hook", limit) },
	} {
		for _, size := range []int{limit, limit + 1} {
			for _, announced := range []int{size, -1} {
				memory := exchange.NewMemory(1<<20, 1<<20)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/runs", bytes.NewReader(make([]byte, size)))
				r.ContentLength = int64(announced)
				r, release := exchange.Receive(httptest.NewRecorder(), r, memory)
				err := admit(r)
				if (err != nil) != (announced > limit) {
					t.Errorf("%s, length %d of %d: admitted with %v", name, announced, size, err)
				}
				got, readErr := exchange.ReadBody(r)
				p, refused := errors.AsType[*api.Problem](readErr)
				if refused != (size > limit) || !refused && len(got) != size || refused && p.Code != api.CodeBodyTooLarge {
					t.Errorf("%s, length %d of %d: %d bytes were read, %v", name, announced, size, len(got), readErr)
				}
				if release(); memory.InUse() != 0 {
					t.Errorf("%s, length %d of %d: %v bytes are in use at last", name, announced, size, memory.InUse())
				}
			}
		}
	}
}

// A body that is processed while it arrives takes the memory of its buffers only, whether it states its length or not.
func TestMemoryOfAStream(t *testing.T) {
	t.Parallel()
	for _, announced := range []int64{1000, -1} {
		memory := exchange.NewMemory(1<<20, 1<<20)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/files", bytes.NewReader(make([]byte, 1000)))
		r.ContentLength = announced
		r, release := exchange.Receive(httptest.NewRecorder(), r, memory)
		if err := exchange.AdmitStream(r, "acme", 1000, 10); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r.Body)
		if n != 1000 || err != nil || memory.InUse() != 10 {
			t.Errorf("length %d: %d bytes were read, %v; %v bytes are in use, want 10", announced, n, err, memory.InUse())
		}
		release()
	}
}

// A body gives its memory back once, whether its handler, the end of the request or both release it: otherwise the
// limits of the memory would grow with each request.
func TestMemoryIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	memory := exchange.NewMemory(1<<20, 4000) // two bodies of a tenant, each as received and decoded
	receive := func(tenant string, size int) (*http.Request, func()) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/runs", bytes.NewReader(make([]byte, size)))
		r, end := exchange.Receive(httptest.NewRecorder(), r, memory)
		if err := exchange.Admit(r, tenant, 1<<20); err != nil {
			t.Fatal(err)
		}
		return r, end
	}
	_, endOther := receive("acme", 1000) // stays in memory
	_, endEvil := receive("evil", 500)
	held := memory.InUse()
	if held <= 0 {
		t.Fatalf("%v bytes are in use for two bodies", held)
	}
	for name, release := range map[string]func(r *http.Request, end func()){
		"by the handler, then at the end": func(r *http.Request, end func()) { exchange.Release(r); end() },
		"by the handler twice":            func(r *http.Request, _ func()) { exchange.Release(r); exchange.Release(r) },
		"at the end":                      func(_ *http.Request, end func()) { end() },
	} {
		r, end := receive("acme", 1000)
		if got := memory.InUse(); got <= held {
			t.Errorf("%v bytes are in use with one more body, %v without it", got, held)
		}
		if release(r, end); memory.InUse() != held {
			t.Errorf("released %s: %v bytes are in use, want %v", name, memory.InUse(), held)
		}
	}
	endOther()
	endEvil()
	if got := memory.InUse(); got != 0 {
		t.Errorf("%v bytes are in use at last", got)
	}
}
