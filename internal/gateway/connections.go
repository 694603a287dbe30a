package gateway

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/turnpike-dev/turnpike/internal/access"
)

// connections bounds the open connections of a server: in all, and those of a principal and
// of a tenant. A connection counts for the caller of its last authenticated request.
type connections struct {
	most  int
	quota *quota

	mu        sync.Mutex
	open      map[net.Conn]*connection
	strangers list.List // of *connection without an authenticated request, the oldest first
}

type connection struct {
	conn     net.Conn
	stranger *list.Element // nil after an authenticated request

	mu      sync.Mutex
	caller  quotaKey // with tenant and principal
	release func()   // nil: it counts for no caller
	closed  bool
}

type connectionKey struct{}

// accept is http.Server.ConnContext. When there are too many connections it closes the oldest
// one of a stranger, or else the new one.
func (c *connections) accept(ctx context.Context, conn net.Conn) context.Context {
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
		go func() { _ = victim.conn.Close() }() // with TLS it may have to write
	}
	one.stranger = c.strangers.PushBack(one)
	if c.open == nil {
		c.open = map[net.Conn]*connection{}
	}
	c.open[conn] = one
	return context.WithValue(ctx, connectionKey{}, one)
}

// changed is http.Server.ConnState.
func (c *connections) changed(conn net.Conn, s http.ConnState) {
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

// use counts the connection of a request for its caller. A request that came over no
// connection of this server counts for none.
func (c *connections) use(ctx context.Context, caller access.Caller) error {
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
	release, err := c.quota.take(caller)
	if err != nil {
		return err
	}
	if one.release != nil {
		one.release()
	}
	one.caller, one.release = key, release
	return nil
}
