package service

import (
	"context"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// latest reads the latest versions of agents. Concurrent submissions share a read, but a submission uses only a read
// that began after its own arrival: a caller that saves an agent and then submits gets the new definition.
type latest struct {
	store state.Agents

	mu    sync.Mutex
	reads map[agentKey]*agentRead // in flight; the version in the key is 0
}

type agentRead struct {
	next *agentRead    // the read for callers that arrived after this one began; nil if there are none
	done chan struct{} // closed when the read has ended
	got  state.AgentVersion
	err  error
}

// latestTimeout bounds one read. A read is shared, so it may outlive the request that
// began it.
const latestTimeout = 5 * time.Second

func newLatest(store state.Agents) *latest {
	return &latest{store: store, reads: map[agentKey]*agentRead{}}
}

// get returns the latest version of an agent. The error wraps state.ErrNotFound if it does not exist.
func (l *latest) get(ctx context.Context, of agentKey) (state.AgentVersion, error) {
	r := l.join(context.WithoutCancel(ctx), of)
	ctx, done := spend(ctx)
	defer done()
	select {
	case <-r.done:
		return r.got, r.err
	case <-ctx.Done():
		return state.AgentVersion{}, ctx.Err()
	}
}

// join returns a read that begins after the call of join.
func (l *latest) join(ctx context.Context, of agentKey) *agentRead {
	l.mu.Lock()
	defer l.mu.Unlock()
	under := l.reads[of]
	if under == nil {
		r := &agentRead{done: make(chan struct{})}
		l.reads[of] = r
		go l.read(ctx, of, r) // ends when no caller waits
		return r
	}
	if under.next == nil {
		under.next = &agentRead{done: make(chan struct{})}
	}
	return under.next
}

// read performs r and the reads that follow it.
func (l *latest) read(ctx context.Context, of agentKey, r *agentRead) {
	for r != nil {
		once, cancel := context.WithTimeout(ctx, latestTimeout)
		r.got, r.err = l.store.Agent(once, of.tenant, of.name, 0)
		cancel()
		close(r.done)
		l.mu.Lock()
		if r = r.next; r == nil {
			delete(l.reads, of)
		} else {
			l.reads[of] = r
		}
		l.mu.Unlock()
	}
}
