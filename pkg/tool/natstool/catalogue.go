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
	// fresh is how long what a service said of itself is taken for true.
	fresh = 30 * time.Second

	// again is how soon a service that was not found is looked for once more.
	again = 3 * time.Second
)

// Catalogue remembers what the services of a deployment say of their tools. It is safe
// for concurrent use.
type Catalogue struct {
	nc     *nats.Conn
	prefix string

	mu     sync.Mutex
	known  map[string]tool.Description
	asked  time.Time     // when the last answers were in
	asking chan struct{} // closed when they are; nil if nobody asks
}

// NewCatalogue returns an empty Catalogue of the deployment with this prefix. The
// connection stays the caller's.
func NewCatalogue(nc *nats.Conn, prefix string) *Catalogue {
	return &Catalogue{nc: nc, prefix: prefix, known: map[string]tool.Description{}}
}

// Describe returns what the services of these tools say of them, as far as it is
// known. What is known is returned at once and renewed behind the caller's back
// when it is half a minute old; it is not forgotten when the service goes. A tool
// that is not known yet is asked for, which takes half a second, or as long as ctx
// allows; every few seconds at most.
func (c *Catalogue) Describe(ctx context.Context, names []string) map[string]tool.Description {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing := slices.ContainsFunc(names, func(name string) bool { _, ok := c.known[name]; return !ok })
	age := time.Since(c.asked)
	if c.asking == nil && (age > fresh || missing && age > again) {
		c.asking = make(chan struct{})
		go c.ask() // ends with the answers, after some seconds at most
	}
	if asking := c.asking; missing && asking != nil {
		c.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	said := map[string]tool.Description{}
	for _, name := range names {
		if d, ok := c.known[name]; ok {
			said[name] = d
		}
	}
	return said
}

// ask serves all who wait, so it does not end with the context of one.
func (c *Catalogue) ask() {
	services, err := Discover(context.Background(), c.nc, c.prefix)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		for _, s := range services {
			c.known[s.Name] = tool.Description{Text: s.Description, Schema: s.Schema}
		}
	}
	c.asked = time.Now()
	close(c.asking)
	c.asking = nil
}
