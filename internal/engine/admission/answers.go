package admission

import (
	"context"
	"slices"
	"sync"
)

// Answers is a memory budget that all turns of a worker share: one for the results of tools and large
// responses of models, others for files in requests to models and for views. A tenant may hold at
// most half of it, or one reservation that is larger, so that a tenant with slow tools leaves memory
// for the others. Waiting turns get memory in the order of their requests, but a turn whose tenant
// would exceed its half does not delay the turns behind it. Answers is safe for concurrent use.
//
// A caller must not wait for a reservation while it holds another one of the same budget: two turns could then wait
// for each other forever.
type Answers struct {
	limit int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
	waiting []*answersWaiter
}

type answersWaiter struct {
	reservation *Reservation
	granted     chan struct{}
}

// Reservation is the memory that one turn has. The turn must call Release when it needs the memory no more.
type Reservation struct {
	of     *Answers
	tenant string
	bytes  int64
}

// NewAnswers returns a budget of limit bytes.
func NewAnswers(limit int64) *Answers {
	return &Answers{limit: limit, tenants: map[string]int64{}}
}

// Limit returns the bytes of the budget.
func (a *Answers) Limit() int64 { return a.limit }

// Share returns the bytes that one tenant may hold, except for a single reservation that is larger.
func (a *Answers) Share() int64 { return max(a.limit/2, 1) }

// Reserve reserves n bytes, or the whole budget if n is more. If the tenant cannot have them now, it calls wait, which
// may be nil, and then waits until the tenant has them or ctx has ended. The error is that of wait, or the cause that
// ended ctx; nothing is reserved then.
func (a *Answers) Reserve(ctx context.Context, tenant string, n int64, wait func() error) (*Reservation, error) {
	r := &Reservation{of: a, tenant: tenant, bytes: min(max(n, 0), a.limit)}
	a.mu.Lock()
	w := &answersWaiter{r, make(chan struct{})}
	a.waiting = append(a.waiting, w)
	a.grant()
	a.mu.Unlock()
	select {
	case <-w.granted:
		return r, nil
	default:
	}
	if wait != nil {
		if err := wait(); err != nil {
			a.cancel(w)
			return nil, err
		}
	}
	select {
	case <-w.granted:
		return r, nil
	case <-ctx.Done():
		a.cancel(w)
		return nil, context.Cause(ctx)
	}
}

// Empty returns a reservation of no bytes for a tenant. It can grow.
func (a *Answers) Empty(tenant string) *Reservation { return &Reservation{of: a, tenant: tenant} }

// cancel removes a waiter, or returns the memory that it was granted just now.
func (a *Answers) cancel(w *answersWaiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.waiting, w); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	} else {
		a.free(w.reservation.tenant, w.reservation.bytes)
		w.reservation.bytes = 0
	}
	a.grant()
}

// fits reports whether a tenant may have n bytes more. One that has none may have more than
// its share.
func (a *Answers) fits(tenant string, n int64) (ofTenant, ofAll bool) {
	own := a.tenants[tenant]
	return own == 0 || own+n <= a.Share(), a.used+n <= a.limit
}

func (a *Answers) grant() {
	for i := 0; i < len(a.waiting); {
		w := a.waiting[i]
		ofTenant, ofAll := a.fits(w.reservation.tenant, w.reservation.bytes)
		switch {
		case !ofTenant:
			i++
		case !ofAll:
			return // a large one must not wait forever behind small ones
		default:
			a.add(w.reservation.tenant, w.reservation.bytes)
			a.waiting = slices.Delete(a.waiting, i, i+1)
			close(w.granted)
		}
	}
}

func (a *Answers) add(tenant string, n int64) {
	a.used += n
	a.tenants[tenant] += n
}

func (a *Answers) free(tenant string, n int64) {
	a.used -= n
	if a.tenants[tenant] -= n; a.tenants[tenant] == 0 {
		delete(a.tenants, tenant)
	}
}

// Waiting returns the number of reservations that a tenant waits for.
func (a *Answers) Waiting(tenant string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waiting {
		if w.reservation.tenant == tenant {
			n++
		}
	}
	return n
}

// Bytes returns the bytes that are reserved.
func (a *Answers) Bytes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// Grow reserves n bytes more if they are free now, and reports whether they were.
func (r *Reservation) Grow(n int64) bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if ofTenant, ofAll := r.of.fits(r.tenant, n); !ofTenant || !ofAll {
		return false
	}
	r.of.add(r.tenant, n)
	r.bytes += n
	return true
}

// GrowTo raises a smaller reservation to n bytes, or to the whole budget if n is more, if the memory for that is free
// now. It reports whether the reservation then has at least those bytes; if not, the reservation is unchanged. The only
// reservation of a tenant may have more than the tenant's share.
func (r *Reservation) GrowTo(n int64) bool {
	a := r.of
	a.mu.Lock()
	defer a.mu.Unlock()
	more := min(n, a.limit) - r.bytes
	if more <= 0 {
		return true
	}
	own := a.tenants[r.tenant]
	if own > r.bytes && own+more > a.Share() || a.used+more > a.limit {
		return false
	}
	a.add(r.tenant, more)
	r.bytes += more
	return true
}

// Shrink returns all but n bytes to the budget.
func (r *Reservation) Shrink(n int64) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if excess := r.bytes - max(n, 0); excess > 0 {
		r.bytes -= excess
		r.of.free(r.tenant, excess)
		r.of.grant()
	}
}

// Release returns all bytes. A reservation that is nil has none.
func (r *Reservation) Release() {
	if r != nil {
		r.Shrink(0)
	}
}
