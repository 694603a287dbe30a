// Package limit bounds what the callers of a gateway have open at once: connections, event streams,
// waiting requests, and lists that are being answered.
package limit

import (
	"net/http"
	"sync"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
)

// Limits bound what callers may have open at once. The zero value of each field gives its
// default.
type Limits struct {
	// BodyBytes is the memory of request bodies, decoded, and TenantBodyBytes the part of it
	// that one tenant may use. Default 96 MiB and 24 MiB.
	BodyBytes       int64
	TenantBodyBytes int64

	// Connections is the number of open connections. A new connection beyond it closes the
	// oldest one without an authenticated request. Default 10,000.
	Connections int

	// TenantConnections and PrincipalConnections bound those of one tenant and of one
	// principal. Default 4,000 and 2,000.
	TenantConnections    int
	PrincipalConnections int

	// TenantStreams and PrincipalStreams bound open event streams. Default 2,000 and 1,000.
	TenantStreams    int
	PrincipalStreams int

	// TenantWaits and PrincipalWaits bound requests with ?wait. Default 2,000 and 1,000.
	TenantWaits    int
	PrincipalWaits int
}

// WithDefaults returns l with a default for each zero value.
func (l Limits) WithDefaults() Limits {
	def := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	if l.BodyBytes == 0 {
		l.BodyBytes = 96 << 20
	}
	if l.TenantBodyBytes == 0 {
		l.TenantBodyBytes = 24 << 20
	}
	l.TenantBodyBytes = min(l.TenantBodyBytes, l.BodyBytes)
	def(&l.Connections, 10_000)
	def(&l.TenantConnections, 4000)
	def(&l.PrincipalConnections, 2000)
	def(&l.TenantStreams, 2000)
	def(&l.PrincipalStreams, 1000)
	def(&l.TenantWaits, 2000)
	def(&l.PrincipalWaits, 1000)
	return l
}

// Quota bounds what principals and tenants have open at once, of one kind. It is safe for concurrent
// use.
type Quota struct {
	what, code        string
	tenant, principal int // limits

	mu   sync.Mutex
	open map[quotaKey]int
}

// NewQuota returns a quota with a limit for each tenant and one for each principal. The parameter what
// names the things that it counts, in the plural. A refusal is a problem with this code.
func NewQuota(what, code string, tenant, principal int) *Quota {
	return &Quota{what: what, code: code, tenant: tenant, principal: principal, open: map[quotaKey]int{}}
}

// quotaKey is a tenant, or a principal.
type quotaKey struct{ tenant, principal string }

// Take counts one more for a caller. It returns the function that ends it, or the problem
// that refuses the request.
func (q *Quota) Take(c access.Caller) (release func(), err error) {
	tenant, principal := quotaKey{tenant: c.Tenant}, quotaKey{principal: c.Principal.Name}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.open[principal]; n >= q.principal {
		return nil, exchange.Busy(http.StatusTooManyRequests, q.code, "%s has %d %s, at most %d are allowed: close some", c.Principal.Name, n, q.what, q.principal)
	}
	if n := q.open[tenant]; n >= q.tenant {
		return nil, exchange.Busy(http.StatusTooManyRequests, q.code, "tenant %s has %d %s, at most %d are allowed: close some", c.Tenant, n, q.what, q.tenant)
	}
	q.open[tenant]++
	q.open[principal]++
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, key := range []quotaKey{tenant, principal} {
			if q.open[key]--; q.open[key] == 0 {
				delete(q.open, key)
			}
		}
	}), nil
}
