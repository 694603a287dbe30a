// Package turnstile bounds how many costly requests of one tenant are in progress at once in a process.
package turnstile

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrFull reports that a tenant's requests in progress did not make room within the maximum wait.
var ErrFull = errors.New("the tenant has too many costly requests in progress in this process: retry later")

// Turnstile lets requests in, by tenant. It is safe for concurrent use.
type Turnstile struct {
	atOnce int
	wait   time.Duration

	mu      sync.Mutex
	tenants map[string]*share
}

type share struct {
	slots chan struct{}
	users int // requests that have a slot or wait for one
}

// New returns a turnstile that lets in atOnce requests of each tenant. Others wait, at most for wait.
func New(atOnce int, wait time.Duration) *Turnstile {
	return &Turnstile{atOnce: atOnce, wait: wait, tenants: map[string]*share{}}
}

// Enter waits until a request of a tenant may run. The caller must call leave when the request has ended. The error is
// ErrFull, or the error of ctx.
func (t *Turnstile) Enter(ctx context.Context, tenant string) (leave func(), err error) {
	s := t.join(tenant)
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
		return func() {
			<-s.slots
			t.part(tenant, s)
		}, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = ErrFull
	}
	t.part(tenant, s)
	return nil, err
}

func (t *Turnstile) join(tenant string) *share {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.tenants[tenant]
	if s == nil {
		s = &share{slots: make(chan struct{}, t.atOnce)}
		t.tenants[tenant] = s
	}
	s.users++
	return s
}

func (t *Turnstile) part(tenant string, s *share) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(t.tenants, tenant)
	}
}
