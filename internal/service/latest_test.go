package service

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// slowAgents answers a read when released, with the value at the start of the read.
type slowAgents struct {
	state.Agents

	mu      sync.Mutex
	version int
	begun   chan struct{}
	answer  chan struct{}
}

func (a *slowAgents) Agent(ctx context.Context, _, name string, _ int) (state.AgentVersion, error) {
	a.mu.Lock()
	v := a.version
	a.mu.Unlock()
	a.begun <- struct{}{}
	select {
	case <-a.answer:
		return state.AgentVersion{Name: name, Version: v}, nil
	case <-ctx.Done():
		return state.AgentVersion{}, ctx.Err()
	}
}

// Concurrent submissions share reads, and each sees the agents defined before it arrived.
func TestLatestIsShared(t *testing.T) {
	t.Parallel()
	a := &slowAgents{version: 1, begun: make(chan struct{}, 10), answer: make(chan struct{})}
	l := newLatest(a)
	first := l.join(t.Context(), agentKey{name: "a"})
	<-a.begun
	a.mu.Lock()
	a.version = 2
	a.mu.Unlock()
	// These arrive while the first is in flight.
	var after []*agentRead
	for range 5 {
		after = append(after, l.join(t.Context(), agentKey{name: "a"}))
	}
	a.answer <- struct{}{}
	<-first.done
	<-a.begun
	a.answer <- struct{}{}
	for i, r := range after {
		<-r.done
		if r.got.Version != 2 || r != after[0] {
			t.Errorf("submission %d got version %d, in a read of its own: %v", i, r.got.Version, r != after[0])
		}
	}
	if first.got.Version != 1 {
		t.Errorf("the first got version %d, want 1", first.got.Version)
	}
	// All have left: the next read starts afresh, and a caller that cancels does not wait.
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := l.get(left, agentKey{name: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("get = %v, want context cancelled", err)
	}
	<-a.begun
	a.answer <- struct{}{}
}
