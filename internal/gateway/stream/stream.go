// Package stream follows runs: the events of one run, the changes of all runs of a tenant, and the end of a run for
// which a request waits.
//
// Committed events and runs are read from the store: the bus only gives hints about when to read. Readers of a run
// share one subscription and one read of what is added to its log. [Events], [Feeds] and [Waits] do not depend on HTTP;
// [RunHandler] and [TenantHandler] encode their results as event streams.
package stream

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Runs reads runs. *service.Runs implements it.
type Runs interface {
	Get(ctx context.Context, c access.Caller, id string) (state.State, error)
	Entries(ctx context.Context, c access.Caller, id string, after int64, p service.Page) (log []state.Entry, next int64, err error)
	Select(ctx context.Context, c access.Caller, f *state.Filter) error
	Follow(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error)
	Lose(ctx context.Context, known state.State) (state.State, error)
	Now(ctx context.Context) (state.Time, error)
	InTurn(ctx context.Context, read func() error) error
}

// Store has the methods of state.Store that this package needs.
type Store interface {
	Load(ctx context.Context, id state.RunID) (state.State, error)
	List(ctx context.Context, f state.Filter) (state.RunPage, error)
	Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error)
}

// Bus has the methods of bus.Events that this package needs.
type Bus interface {
	Watch(ctx context.Context, run state.RunID, fn func(bus.Notice)) (stop func(), err error)
	WatchAll(ctx context.Context, fn func(tenant string, run state.RunID)) (stop func(), err error)
	WatchDeleted(ctx context.Context, fn func(tenant string, run state.RunID)) (stop func(), err error)
}

// Callers ends a stream when its caller loses access. *login.Callers implements it.
type Callers interface {
	WhileAllowed(r *http.Request) (ctx context.Context, stop func())
}

// keepAliveInterval is the time between two keep-alive messages in a stream.
const keepAliveInterval = 15 * time.Second

const contentType = "text/event-stream"
