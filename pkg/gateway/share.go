package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// listsAtOnce is how many lists a gateway answers at a time for one tenant. They are the
	// reads that cost by what a tenant has stored, so one must not have all capacity for them.
	listsAtOnce = 4

	// listsWait is how long one more waits for its turn.
	listsWait = 5 * time.Second

	// listBytes ends a page early: a run, and a definition, has up to a megabyte.
	listBytes = 8 << 20

	// readsAtOnce is how many of the items of a page are read at a time, where each is read
	// by itself.
	readsAtOnce = 8
)

// eachRun visits the newest runs that an index of the store has for a filter, f.Limit at most, and
// returns where more of them begin. It does not hold them at once.
func (g *Gateway) eachRun(ctx context.Context, f state.Filter, visit func(state.State)) (next string, err error) {
	f.Bytes = listBytes
	for {
		page, err := g.store.List(ctx, f)
		if err != nil {
			return "", err
		}
		for _, st := range page.Runs {
			visit(st)
		}
		if f.Limit -= len(page.Runs); f.Limit <= 0 || page.Next == "" {
			return page.Next, nil
		}
		f.Cursor = page.Next
	}
}

// readEach calls read for each number below n, some at a time: one after the other they would
// use up what a request has to wait for a store that is far away.
func (g *Gateway) readEach(ctx context.Context, n int, read func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(readsAtOnce)
	for i := range n {
		all.Go(g.guarded(func() error { return read(ctx, i) }))
	}
	return all.Wait()
}

// readPage answers with one page of a list whose names are at hand and whose items are read one
// by one; read returns an item and its bytes. What is gone meanwhile is left out.
func readPage[T any](g *Gateway, w http.ResponseWriter, r *http.Request, names []string, read func(ctx context.Context, name string) (T, int, error)) error {
	from, to, err := placesOf(r, len(names))
	if err != nil {
		return err
	}
	items := make([]T, 0, to-from)
	for size := 0; from < to && size < listBytes; {
		some := names[from:min(from+readsAtOnce, to)]
		found, sizes := make([]*T, len(some)), make([]int, len(some))
		err := g.readEach(r.Context(), len(some), func(ctx context.Context, i int) error {
			item, n, err := read(ctx, some[i])
			if errors.Is(err, state.ErrNotFound) {
				return nil
			}
			found[i], sizes[i] = &item, n
			return err
		})
		if err != nil {
			return err
		}
		for i, item := range found {
			if item != nil {
				items, size = append(items, *item), size+sizes[i]
			}
		}
		from += len(some)
	}
	return replyPage(w, api.NewPage(items, placeCursor(from, len(names))))
}

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

// lists is reads for answers that may be large: those of one tenant wait for each other, until
// the reader has them.
func (g *Gateway) lists(h handler, roles ...access.Role) route {
	return reads(func(w http.ResponseWriter, r *http.Request) error {
		mine, leave := g.shares.of(tenantOf(r))
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
			p.RetryAfter = retryAfter
			return p
		}
	}, roles...)
}
