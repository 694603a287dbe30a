// Package limit bounds what the callers of a gateway have open at once: connections, event streams, waiting requests,
// and responses with lists.
package limit

import (
	"net/http"
	"sync"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
)

// Limits bound what callers may have open at once at one gateway. A zero field has the default that its comment names.
type Limits struct {
	// BodyBytes is the maximum memory of request bodies with their decoded values, and TenantBodyBytes the part of it
	// that one tenant may use. Defaults: 96 MiB and 24 MiB.
	BodyBytes       int64
	TenantBodyBytes int64

	// Connections is the maximum number of open connections. Beyond it, the gateway accepts a new connection by
	// closing the oldest one without an authenticated request; if there is none, it closes the new one. Default:
	// 10,000.
	Connections int

	// TenantConnections and PrincipalConnections are the maximum numbers of open connections of one tenant and of one
	// principal. Defaults: 4,000 and 2,000.
	TenantConnections    int
	PrincipalConnections int

	// TenantStreams and PrincipalStreams are the maximum numbers of open event streams. Defaults: 2,000 and 1,000.
	TenantStreams    int
	PrincipalStreams int

	// TenantWaits and PrincipalWaits are the maximum numbers of requests with ?wait. Defaults: 2,000 and 1,000.
	TenantWaits    int
	PrincipalWaits int
}

// WithDefaults returns l with a default for each zero field. TenantBodyBytes is at most BodyBytes.
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

// Quota bounds how many things of one kind each principal and each tenant have open at once. It is safe for concurrent
// use.
type Quota struct {
	what, code        string
	tenant, principal int // limits

	mu   sync.Mutex
	open map[quotaKey]int
}

// NewQuota returns a quota with a limit for each tenant and one for each principal. what is the plural name of the
// things, for the problem of a refusal, which has the code.
func NewQuota(what, code string, tenant, principal int) *Quota {
	return &Quota{what: what, code: code, tenant: tenant, principal: principal, open: map[quotaKey]int{}}
}

// quotaKey is a tenant, a principal, or both.
type quotaKey struct{ tenant, principal string }

// Take counts one more use for c. The caller must call release when the use ends; further calls of release have no
// effect. The error is the problem that refuses the request, with status 429.
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
