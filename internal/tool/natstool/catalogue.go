package natstool

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// fresh is the age at which the catalogue renews the description of a service.
	fresh = 30 * time.Second

	// again is the minimum delay between searches for a service that was not found.
	again = 3 * time.Second
)

// Catalogue caches the descriptions that the services of a deployment give of their tools. It is safe for concurrent
// use.
type Catalogue struct {
	nc     *nats.Conn
	prefix string

	mu      sync.Mutex
	tenants map[string]*listing
}

// listing is the cached tools of one tenant.
type listing struct {
	known  map[string]tool.Description
	asked  time.Time     // when the last answers had arrived
	asking chan struct{} // closed when the next answers have arrived; nil if no query is in progress
}

const (
	// maxTenants is the maximum number of tenants whose tools are cached.
	maxTenants = 1000

	// maxKnown is the maximum number of cached tools of a tenant. Beyond it, tools that no service serves any more are
	// removed.
	maxKnown = 2000
)

// NewCatalogue returns an empty Catalogue for the deployment with this prefix. The caller must keep the connection
// open, and closes it.
func NewCatalogue(nc *nats.Conn, prefix string) *Catalogue {
	return &Catalogue{nc: nc, prefix: prefix, tenants: map[string]*listing{}}
}

// Describe returns the descriptions of the named tools of a tenant that are known. If all are cached, it returns at
// once. Otherwise it waits for a query of the services, half a second or more, but no longer than until ctx ends. If
// the last query ended less than a few seconds ago, it starts none, and returns what is cached. It renews descriptions
// older than half a minute in the background. Descriptions may remain cached after their service has ended.
func (c *Catalogue) Describe(ctx context.Context, tenant string, names []string) map[string]tool.Description {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.tenants[tenant]
	if l == nil {
		if len(c.tenants) >= maxTenants {
			clear(c.tenants)
		}
		l = &listing{known: map[string]tool.Description{}}
		c.tenants[tenant] = l
	}
	missing := slices.ContainsFunc(names, func(name string) bool { _, ok := l.known[name]; return !ok })
	age := time.Since(l.asked)
	if l.asking == nil && (age > fresh || missing && age > again) {
		l.asking = make(chan struct{})
		go c.ask(tenant, l) // ends after some seconds at most
	}
	if asking := l.asking; missing && asking != nil {
		c.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	said := map[string]tool.Description{}
	for _, name := range names {
		if d, ok := l.known[name]; ok {
			said[name] = d
		}
	}
	return said
}

// ask queries the services for all callers that wait, so it does not end with the context of one of them.
func (c *Catalogue) ask(tenant string, l *listing) {
	services, err := Discover(context.Background(), c.nc, c.prefix, tenant)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if len(l.known)+len(services) > maxKnown {
			clear(l.known)
		}
		for _, s := range services {
			l.known[s.Name] = tool.Description{Text: s.Description, Schema: s.Schema}
		}
	}
	l.asked = time.Now()
	close(l.asking)
	l.asking = nil
}
