package limit

import (
	"net/http"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// listsAtOnce is the number of lists that a gateway answers at once for one tenant. The cost of these reads grows
	// with what a tenant has stored, so one tenant must not use all capacity for them.
	listsAtOnce = 4

	// listsWait bounds how long another list waits for its turn.
	listsWait = 5 * time.Second
)

// Lists bounds how many lists are being answered at once, by tenant. The zero value is ready to use. It is safe for
// concurrent use.
type Lists struct {
	mu      sync.Mutex
	tenants map[string]*share
}

type share struct {
	slots chan struct{}
	users int // requests that have a slot or wait for one
}

// of returns the share of a tenant, and a function that the caller must call when it no longer uses the share.
func (l *Lists) of(tenant string) (*share, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenants == nil {
		l.tenants = map[string]*share{}
	}
	s := l.tenants[tenant]
	if s == nil {
		s = &share{slots: make(chan struct{}, listsAtOnce)}
		l.tenants[tenant] = s
	}
	s.users++
	return s, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(l.tenants, tenant)
		}
	}
}

// Handler returns h for responses that may be large. At most four such requests of a tenant (listsAtOnce) run at the
// same time, each until the client has received the response. Others wait up to 5 s (listsWait), and are then refused
// with status 429. The context of a request must contain its caller.
func (l *Lists) Handler(h exchange.Handler) exchange.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		mine, leave := l.of(access.FromContext(r.Context()).Tenant)
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
			return exchange.Busy(http.StatusTooManyRequests, api.CodeTooManyReads, "%d lists are in progress for this tenant, the maximum: request fewer at once, or smaller pages", listsAtOnce)
		}
	}
}
