package limit_test

import (
	"context"
	"net"
	"testing"

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
