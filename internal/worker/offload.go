package worker

import (
	"context"

	"github.com/turnpike-dev/turnpike/internal/engine/executor"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// offloadedStore runs the calls of a turn to the store on an executor.
type offloadedStore struct {
	state.Store

	executor executor.Executor
}

// Claim implements state.Turns.
func (s offloadedStore) Claim(ctx context.Context, r state.ClaimRequest) (c *state.Claim, err error) {
	s.executor.Run(func() { c, err = s.Store.Claim(ctx, r) })
	return c, err
}

// Record implements state.Turns.
func (s offloadedStore) Record(ctx context.Context, l state.Lease, r state.Record) (abort *state.Abort, err error) {
	s.executor.Run(func() { abort, err = s.Store.Record(ctx, l, r) })
	return abort, err
}

// Commit implements state.Turns.
func (s offloadedStore) Commit(ctx context.Context, l state.Lease, c state.Commit) (done state.Committed, err error) {
	s.executor.Run(func() { done, err = s.Store.Commit(ctx, l, c) })
	return done, err
}

// offloadedBus runs the publications of turns on an executor.
type offloadedBus struct {
	bus.Bus

	executor executor.Executor
}

// PublishTurn implements bus.Turns.
func (b offloadedBus) PublishTurn(ctx context.Context, t bus.Turn, id string) (err error) {
	b.executor.Run(func() { err = b.Bus.PublishTurn(ctx, t, id) })
	return err
}
