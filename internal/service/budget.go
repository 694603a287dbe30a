package service

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A request waits for the store for a limited total time, however many calls it makes: a store
// that hangs is as good as none, and the client must get an answer before it disconnects. Callers
// without a request, such as the intake and retention, wait as long as the store does.

// budget is the rest of the time that a request may wait for the store.
type budget struct {
	mu   sync.Mutex
	left time.Duration
	each bool // every call may take all of left, because the request makes many calls or waits
}

type budgetKey struct{}

// WithBudget returns a context for calls of the store of a Service, or of a Budgeted one. With this context the calls
// may take about d in total. If each is set, as for requests that make many calls or wait, each call may take d. Time
// during which several calls run counts at most once. AppendAudit does not count.
func WithBudget(ctx context.Context, d time.Duration, each bool) context.Context {
	return context.WithValue(ctx, budgetKey{}, &budget{left: d, each: each})
}

// eachCall returns a context with the rest of the budget for each of its calls: the request makes a number of calls
// that the size of its response determines, and sends the response while it makes them.
func eachCall(ctx context.Context) context.Context {
	b, ok := ctx.Value(budgetKey{}).(*budget)
	if !ok {
		return ctx
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return WithBudget(ctx, b.left, true)
}

// spend returns a context that ends when the budget does. The caller must call done after its call of the store: done
// subtracts the duration.
func spend(ctx context.Context) (_ context.Context, done func()) {
	b, ok := ctx.Value(budgetKey{}).(*budget)
	if !ok {
		return ctx, func() {}
	}
	b.mu.Lock()
	left := b.left
	b.mu.Unlock()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, left)
	return ctx, func() {
		cancel()
		if b.each {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.left = max(0, min(b.left, left-time.Since(began))) // less if a later call has ended first
	}
}

// budgetStore is a store whose methods below count against the budget of their request. It has many methods because
// requests call many of those of state.Store. The methods that it embeds do not count: no request calls them,
// except AppendAudit, whose caller sets a limit of its own, so that a slow change still gets its audit entry.
type budgetStore struct{ state.Store }

// Budgeted returns store with each call counted against the budget of its context, if that has one. Authentication uses
// it, so that its reads count too.
func Budgeted(store state.Store) state.Store { return budgetStore{store} }

func bounded[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, done := spend(ctx)
	defer done()
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	return call(ctx)
}

func boundedErr(ctx context.Context, call func(context.Context) error) error {
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// Create implements state.Runs.
func (s budgetStore) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	return bounded(ctx, func(ctx context.Context) (state.Created, error) { return s.Store.Create(ctx, run) })
}

// Load implements state.Runs.
func (s budgetStore) Load(ctx context.Context, id state.RunID) (state.State, error) {
	return bounded(ctx, func(ctx context.Context) (state.State, error) { return s.Store.Load(ctx, id) })
}

// LoadByKey implements state.Runs.
func (s budgetStore) LoadByKey(ctx context.Context, tenant, key, fingerprint string) (state.State, error) {
	return bounded(ctx, func(ctx context.Context) (state.State, error) {
		return s.Store.LoadByKey(ctx, tenant, key, fingerprint)
	})
}

// Figures implements state.HourlyFigures.
func (s budgetStore) Figures(ctx context.Context, tenant string, from, to time.Time) ([]state.HourFigures, error) {
	return bounded(ctx, func(ctx context.Context) ([]state.HourFigures, error) { return s.Store.Figures(ctx, tenant, from, to) })
}

// Log implements state.Runs.
func (s budgetStore) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	return bounded(ctx, func(ctx context.Context) ([]state.Entry, error) { return s.Store.Log(ctx, id, after, limit) })
}

// LogPage implements state.Runs.
func (s budgetStore) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	return bounded(ctx, func(ctx context.Context) (state.LogPage, error) { return s.Store.LogPage(ctx, id, after, limit, bytes) })
}

// Seal implements state.Deletions.
func (s budgetStore) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	return bounded(ctx, func(ctx context.Context) ([]state.RunID, error) { return s.Store.Seal(ctx, id, token) })
}

// Unseal implements state.Deletions.
func (s budgetStore) Unseal(ctx context.Context, id state.RunID, token string) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.Unseal(ctx, id, token) })
}

// PreventCreation implements state.Deletions.
func (s budgetStore) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.PreventCreation(ctx, tenant, id) })
}

// DeletedOfBatch implements state.Deletions.
func (s budgetStore) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	return bounded(ctx, func(ctx context.Context) (state.DeletedBatch, error) { return s.Store.DeletedOfBatch(ctx, first) })
}

// Delete implements state.Deletions.
func (s budgetStore) Delete(ctx context.Context, id state.RunID) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.Delete(ctx, id) })
}

// List implements state.Runs.
func (s budgetStore) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	return bounded(ctx, func(ctx context.Context) (state.RunPage, error) { return s.Store.List(ctx, f) })
}

// Owners implements state.Schedule.
func (s budgetStore) Owners(ctx context.Context) ([]string, error) {
	return bounded(ctx, s.Store.Owners)
}

// Leases implements state.Schedule.
func (s budgetStore) Leases(ctx context.Context, worker string, limit int) ([]state.RunID, error) {
	return bounded(ctx, func(ctx context.Context) ([]state.RunID, error) { return s.Store.Leases(ctx, worker, limit) })
}

// Counts implements state.Schedule.
func (s budgetStore) Counts(ctx context.Context) (map[state.Status]int64, error) {
	return bounded(ctx, s.Store.Counts)
}

// Signal implements state.Signals.
func (s budgetStore) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	return bounded(ctx, func(ctx context.Context) (state.Wake, error) { return s.Store.Signal(ctx, id, sig, delay) })
}

// Abort implements state.Signals.
func (s budgetStore) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error) {
	return bounded(ctx, func(ctx context.Context) (state.Wake, error) { return s.Store.Abort(ctx, id, abort, delay) })
}

// PutAgent implements state.Agents.
func (s budgetStore) PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	return bounded(ctx, func(ctx context.Context) (state.AgentVersion, error) {
		return s.Store.PutAgent(ctx, tenant, name, definition, always)
	})
}

// Agent implements state.Agents.
func (s budgetStore) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	return bounded(ctx, func(ctx context.Context) (state.AgentVersion, error) {
		return s.Store.Agent(ctx, tenant, name, version)
	})
}

// AgentNames implements state.Agents.
func (s budgetStore) AgentNames(ctx context.Context, tenant string) ([]string, error) {
	return bounded(ctx, func(ctx context.Context) ([]string, error) { return s.Store.AgentNames(ctx, tenant) })
}

// DeleteAgent implements state.Agents.
func (s budgetStore) DeleteAgent(ctx context.Context, tenant, name string) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.DeleteAgent(ctx, tenant, name) })
}

// PutTimer implements state.Timers.
func (s budgetStore) PutTimer(ctx context.Context, id state.TimerID, due time.Time) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.PutTimer(ctx, id, due) })
}

// Timer implements state.Timers.
func (s budgetStore) Timer(ctx context.Context, id state.TimerID) (time.Time, error) {
	return bounded(ctx, func(ctx context.Context) (time.Time, error) { return s.Store.Timer(ctx, id) })
}

// ListTimers implements state.Timers.
func (s budgetStore) ListTimers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]state.Timer, error) {
	return bounded(ctx, func(ctx context.Context) ([]state.Timer, error) {
		return s.Store.ListTimers(ctx, tenant, kind, after, limit)
	})
}

// PutDocument implements state.Documents.
func (s budgetStore) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.PutDocument(ctx, kind, name, data) })
}

// ReplaceDocument implements state.Documents.
func (s budgetStore) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.ReplaceDocument(ctx, kind, name, was, data) })
}

// Document implements state.Documents.
func (s budgetStore) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	return bounded(ctx, func(ctx context.Context) (json.RawMessage, error) { return s.Store.Document(ctx, kind, name) })
}

// DocumentNames implements state.Documents.
func (s budgetStore) DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error) {
	return bounded(ctx, func(ctx context.Context) ([]string, error) { return s.Store.DocumentNames(ctx, kind) })
}

// Documents implements state.Documents.
func (s budgetStore) Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	return bounded(ctx, func(ctx context.Context) (map[string]json.RawMessage, error) { return s.Store.Documents(ctx, kind) })
}

// ListDocuments implements state.Documents.
func (s budgetStore) ListDocuments(ctx context.Context, kind state.DocumentKind, prefix, cursor string, limit int) (state.DocumentPage, error) {
	return bounded(ctx, func(ctx context.Context) (state.DocumentPage, error) {
		return s.Store.ListDocuments(ctx, kind, prefix, cursor, limit)
	})
}

// DeleteDocument implements state.Documents.
func (s budgetStore) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	return boundedErr(ctx, func(ctx context.Context) error { return s.Store.DeleteDocument(ctx, kind, name) })
}

// Audit implements state.Audits.
func (s budgetStore) Audit(ctx context.Context, tenant, cursor string, limit int) (entries []json.RawMessage, next string, err error) {
	err = boundedErr(ctx, func(ctx context.Context) (err error) {
		entries, next, err = s.Store.Audit(ctx, tenant, cursor, limit)
		return err
	})
	return entries, next, err
}

// Now implements state.Store.
func (s budgetStore) Now(ctx context.Context) (time.Time, error) { return bounded(ctx, s.Store.Now) }

// Ready implements state.Store.
func (s budgetStore) Ready(ctx context.Context) error { return boundedErr(ctx, s.Store.Ready) }
