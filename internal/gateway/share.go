package gateway

import (
	"net/http"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// listsAtOnce is how many lists a gateway answers at a time for one tenant. They are the
	// reads that cost by what a tenant has stored, so one must not have all capacity for them.
	listsAtOnce = 4

	// listsWait is how long one more waits for its turn.
	listsWait = 5 * time.Second
)

// shares are the lists that are being answered, by tenant.
type shares struct {
	mu      sync.Mutex
	tenants map[string]*share
}

type share struct {
	slots chan struct{}
	users int // who have or want a slot
}

// of returns the share of a tenant, and what gives it back.
func (s *shares) of(tenant string) (*share, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.tenants[tenant]
	if h == nil {
		h = &share{slots: make(chan struct{}, listsAtOnce)}
		s.tenants[tenant] = h
	}
	h.users++
	return h, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(s.tenants, tenant)
		}
	}
}

// lists is a route for answers that may be large: those of one tenant wait for each other, until
// the reader has them.
func (g *Gateway) lists(h handler) route {
	return asks(func(w http.ResponseWriter, r *http.Request) error {
		mine, leave := g.shares.of(access.FromContext(r.Context()).Tenant)
		defer leave()
		wait := time.NewTimer(listsWait)
		defer wait.Stop()
		select {
		case mine.slots <- struct{}{}:
			defer func() { <-mine.slots }()
			return h(w, r)
		case <-r.Context().Done():
			return r.Context().Err()
		case <-wait.C:
			p := problem(http.StatusTooManyRequests, api.CodeTooManyReads, "%d lists are being answered for this tenant: ask for fewer at once, or for smaller pages", listsAtOnce)
			p.RetryAfter = service.RetryAfter
			return p
		}
	}, service.Read)
}
