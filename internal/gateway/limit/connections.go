package limit

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Connections limits the open connections of a server: in total, for each principal and for each tenant. A connection
// counts for the caller of the last request that Use has permitted. Hijacked connections do not count. The server must
// use Accept and Changed, and call Use for each authenticated request. Connections is safe for concurrent use.
type Connections struct {
	most  int
	quota *Quota

	mu        sync.Mutex
	open      map[net.Conn]*connection
	strangers list.List // *connection values without an authenticated request, the oldest first
}

// NewConnections returns the connections of a server with limits l. None may be zero: see Limits.WithDefaults.
func NewConnections(l Limits) *Connections {
	return &Connections{most: l.Connections, quota: NewQuota("connections", api.CodeTooManyConnections, l.TenantConnections, l.PrincipalConnections), open: map[net.Conn]*connection{}}
}

type connection struct {
	conn     net.Conn
	stranger *list.Element // its element of strangers; nil after an authenticated request

	mu      sync.Mutex
	caller  quotaKey // with both tenant and principal
	release func()   // nil: the connection counts for no caller
	closed  bool
}

type connectionKey struct{}

// Accept is for http.Server.ConnContext. If there are too many connections, it closes the oldest one without an
// authenticated request, or else the new one.
func (c *Connections) Accept(ctx context.Context, conn net.Conn) context.Context {
	one := &connection{conn: conn}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.most {
		oldest := c.strangers.Front()
		if oldest == nil {
			_ = conn.Close()
			return ctx
		}
		victim := c.strangers.Remove(oldest).(*connection) //nolint:forcetypeassert // see strangers
		victim.stranger = nil
		delete(c.open, victim.conn)
		victim.close()
		go func() { _ = victim.conn.Close() }() // closing a TLS connection may block
	}
	one.stranger = c.strangers.PushBack(one)
	c.open[conn] = one
	return context.WithValue(ctx, connectionKey{}, one)
}

// Changed is for http.Server.ConnState.
func (c *Connections) Changed(conn net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	c.mu.Lock()
	one := c.open[conn]
	delete(c.open, conn)
	if one != nil && one.stranger != nil {
		c.strangers.Remove(one.stranger)
		one.stranger = nil
	}
	c.mu.Unlock()
	if one != nil {
		one.close()
	}
}

func (one *connection) close() {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.closed = true
	if one.release != nil {
		one.release()
		one.release = nil
	}
}

// Use counts the connection of a request for its caller, and no longer for the caller before. If the limits do not
// permit that, Use returns the problem that refuses the request, and the connection counts as before. It counts no
// connection that is closed or that Accept has not accepted. ctx must be that of the request.
func (c *Connections) Use(ctx context.Context, caller access.Caller) error {
	one, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return nil
	}
	c.mu.Lock()
	if one.stranger != nil && c.open[one.conn] == one {
		c.strangers.Remove(one.stranger)
		one.stranger = nil
	}
	c.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	key := quotaKey{tenant: caller.Tenant, principal: caller.Principal.Name}
	if one.closed || one.release != nil && one.caller == key {
		return nil
	}
	release, err := c.quota.Take(caller)
	if err != nil {
		return err
	}
	if one.release != nil {
		one.release()
	}
	one.caller, one.release = key, release
	return nil
}
