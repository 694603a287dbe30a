package lookup

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// fresh is the lifetime of a cached answer.
	fresh = 2 * time.Second

	// atOnce is the number of concurrent lookups, over all tenants.
	atOnce = 4
)

// Services caches the served subjects for two seconds, so that concurrent saves of definitions
// share lookups. It is safe for concurrent use.
type Services struct {
	ask   func(ctx context.Context, tenant string) ([]string, error)
	slots chan struct{}

	mu    sync.Mutex
	known map[string]*answer // by tenant
}

type answer struct {
	done     chan struct{} // closed when there is one
	at       time.Time
	subjects map[string]bool
	err      error
}

// NewServices returns a memory of what ask answers.
func NewServices(ask func(ctx context.Context, tenant string) ([]string, error)) *Services {
	return &Services{ask: ask, slots: make(chan struct{}, atOnce), known: map[string]*answer{}}
}

// Of returns the subjects with a service for a tenant, at most two seconds old. The caller
// must not change the map.
func (s *Services) Of(ctx context.Context, tenant string) (map[string]bool, error) {
	s.mu.Lock()
	a := s.known[tenant]
	if a == nil {
		maps.DeleteFunc(s.known, func(_ string, a *answer) bool { return !a.at.IsZero() && time.Since(a.at) > fresh })
		a = &answer{done: make(chan struct{})}
		s.known[tenant] = a
		go s.find(context.WithoutCancel(ctx), tenant, a) // ends with the answer: others wait for it, too
	} else if !a.at.IsZero() && time.Since(a.at) > fresh {
		delete(s.known, tenant)
		s.mu.Unlock()
		return s.Of(ctx, tenant)
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.subjects, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// find asks.
func (s *Services) find(ctx context.Context, tenant string, a *answer) {
	s.slots <- struct{}{}
	subjects, err := s.ask(ctx, tenant)
	<-s.slots
	set := make(map[string]bool, len(subjects))
	for _, subject := range subjects {
		set[subject] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.subjects, a.err, a.at = set, err, time.Now()
	if err != nil {
		a.subjects = nil
		delete(s.known, tenant)
	}
	close(a.done)
}
