package limit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
)

// A connection counts for the caller of its last request only.
func TestConnectionChangesItsCaller(t *testing.T) {
	t.Parallel()
	c := limit.NewConnections(limit.Limits{Connections: 10, TenantConnections: 1, PrincipalConnections: 1})
	accept := func() context.Context {
		conn, other := net.Pipe()
		t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
		return c.Accept(t.Context(), conn)
	}
	by := func(name string) access.Caller {
		return access.Caller{Principal: access.Principal{Name: name}, Tenant: "of-" + name}
	}
	first, second := accept(), accept()
	for _, name := range []string{"ann", "bob"} {
		if err := c.Use(first, by(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Use(second, by("bob")); err == nil {
		t.Error("two connections of bob are accepted, want one at most")
	}
	if err := c.Use(second, by("ann")); err != nil {
		t.Errorf("the connection that ann has used before counts for ann: %v", err)
	}
}

// Beyond the maximum, the oldest connection without an authenticated request makes room for a new one; if all have one,
// the new connection is closed.
func TestOldestStrangerGoes(t *testing.T) {
	t.Parallel()
	c := limit.NewConnections(limit.Limits{Connections: 3, TenantConnections: 9, PrincipalConnections: 9})
	accept := func() (context.Context, net.Conn) {
		conn, other := net.Pipe()
		t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
		return c.Accept(t.Context(), conn), other
	}
	closed := func(other net.Conn) bool {
		_ = other.SetReadDeadline(time.Now().Add(5 * time.Second)) // an open connection sends nothing
		_, err := other.Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	}
	use := func(ctx context.Context) {
		t.Helper()
		if err := c.Use(ctx, access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: "acme"}); err != nil {
			t.Fatal(err)
		}
	}
	known, _ := accept()
	use(known)
	_, oldest := accept()
	second, _ := accept()
	third, _ := accept()
	if !closed(oldest) {
		t.Error("the oldest connection is open")
	}
	use(second)
	use(third)
	if _, newest := accept(); !closed(newest) {
		t.Error("the new connection is open although all others are in use")
	}
}

// A closed connection counts for no caller, and is no longer closed for others.
func TestClosedConnectionDoesNotCount(t *testing.T) {
	t.Parallel()
	for _, state := range []http.ConnState{http.StateClosed, http.StateHijacked} {
		c := limit.NewConnections(limit.Limits{Connections: 9, TenantConnections: 1, PrincipalConnections: 1})
		ann := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: "acme"}
		for range 3 {
			conn, other := net.Pipe()
			ctx := c.Accept(t.Context(), conn)
			if err := c.Use(ctx, ann); err != nil {
				t.Fatalf("%s: %v", state, err)
			}
			c.Changed(conn, http.StateIdle)
			c.Changed(conn, state)
			c.Changed(conn, state)
			if err := c.Use(ctx, ann); err != nil { // a request that is still in progress
				t.Errorf("%s: %v", state, err)
			}
			_, _ = conn.Close(), other.Close()
		}
	}
}

// A connection that was closed for another one counts for no caller, though a request of it may be in progress, and not
// as an open one.
func TestClosedStrangerDoesNotCount(t *testing.T) {
	t.Parallel()
	c := limit.NewConnections(limit.Limits{Connections: 1, TenantConnections: 1, PrincipalConnections: 1})
	accept := func() (context.Context, net.Conn) {
		conn, other := net.Pipe()
		t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
		return c.Accept(t.Context(), conn), conn
	}
	ann := access.Caller{Principal: access.Principal{Name: "ann"}, Tenant: "acme"}
	closed, _ := accept()
	open, conn := accept()
	for _, ctx := range []context.Context{closed, open} {
		if err := c.Use(ctx, ann); err != nil {
			t.Error(err)
		}
	}
	c.Changed(conn, http.StateClosed)
	if ctx, _ := accept(); ctx == t.Context() {
		t.Error("a connection is refused although no other is open")
	}
}

// A use ends once, however often it is released.
func TestQuotaIsReleasedOnce(t *testing.T) {
	t.Parallel()
	q := limit.NewQuota("streams", "too_many", 2, 1)
	by := func(name string) access.Caller {
		return access.Caller{Principal: access.Principal{Name: name}, Tenant: "acme"}
	}
	take := func(name string, want bool) (release func()) {
		t.Helper()
		release, err := q.Take(by(name))
		if (err == nil) != want {
			t.Fatalf("%s: %v, want success %t", name, err, want)
		}
		return release
	}
	first := take("ann", true)
	take("ann", false)
	take("bob", true)
	take("eve", false)
	first()
	first()
	take("eve", true)
	take("ann", false)
}

// The bodies of one tenant fit into those of all.
func TestDefaultsOfLimits(t *testing.T) {
	t.Parallel()
	for in, want := range map[limit.Limits]int64{
		{}:                                  24 << 20,
		{BodyBytes: 1 << 20}:                1 << 20,
		{TenantBodyBytes: 1 << 10}:          1 << 10,
		{BodyBytes: 9, TenantBodyBytes: 10}: 9,
		{BodyBytes: 10, TenantBodyBytes: 9}: 9,
	} {
		if got := in.WithDefaults(); got.TenantBodyBytes != want || got.BodyBytes < want || got.Connections == 0 || got.TenantWaits == 0 {
			t.Errorf("%+v becomes %+v, want %d bytes of a tenant", in, got, want)
		}
	}
}
