package simulation

import (
	"context"
	"encoding/json"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// store is the checkpoint store as one process reaches it. It has many methods because each call of the
// port may fail, be late or be lost.
type store struct {
	p  *process
	in state.Store
}

var _ state.Store = store{}

// smallPage is the maximum size of a page of a log, in bytes: some entries of the simulation's runs.
const smallPage = 4 << 10

func (s store) SetFormat(format int) { s.in.SetFormat(format) }

func (s store) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	s.p.deployment.creates(run.State)
	return do(ctx, s.p, toStore, "create", func() (state.Created, error) { return s.in.Create(ctx, run) })
}

func (s store) Now(ctx context.Context) (time.Time, error) {
	return do(ctx, s.p, toStore, "now", func() (time.Time, error) { return s.in.Now(ctx) })
}

func (s store) Ready(ctx context.Context) error {
	return do0(ctx, s.p, toStore, "ready", func() error { return s.in.Ready(ctx) })
}

func (s store) Load(ctx context.Context, id state.RunID) (state.State, error) {
	return do(ctx, s.p, toStore, "load", func() (state.State, error) { return s.in.Load(ctx, id) })
}

func (s store) LoadByKey(ctx context.Context, tenant, key, fingerprint string) (state.State, error) {
	return do(ctx, s.p, toStore, "load by key", func() (state.State, error) { return s.in.LoadByKey(ctx, tenant, key, fingerprint) })
}

func (s store) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	return do(ctx, s.p, toStore, "log", func() ([]state.Entry, error) { return s.in.Log(ctx, id, after, limit) })
}

// LogPage returns smaller pages than a caller allows, as if the entries were large.
func (s store) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	if bytes > smallPage {
		bytes = 1 + s.p.dice.n(smallPage)
	}
	return do(ctx, s.p, toStore, "log page", func() (state.LogPage, error) { return s.in.LogPage(ctx, id, after, limit, bytes) })
}

func (s store) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	return do(ctx, s.p, toStore, "list", func() (state.RunPage, error) { return s.in.List(ctx, f) })
}

func (s store) Figures(ctx context.Context, tenant string, from, to time.Time) ([]state.HourFigures, error) {
	return do(ctx, s.p, toStore, "figures", func() ([]state.HourFigures, error) { return s.in.Figures(ctx, tenant, from, to) })
}

func (s store) FoldFigures(ctx context.Context) error {
	return do0(ctx, s.p, toStore, "fold figures", func() error { return s.in.FoldFigures(ctx) })
}

func (s store) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	return do(ctx, s.p, toStore, "claim", func() (*state.Claim, error) { return s.in.Claim(ctx, r) })
}

func (s store) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	return do(ctx, s.p, toStore, "renew", func() (*state.Abort, error) { return s.in.Renew(ctx, l, lease, delay) })
}

func (s store) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	return do(ctx, s.p, toStore, "record", func() (*state.Abort, error) {
		s.p.deployment.journals(l.Run, r.Entries)
		return s.in.Record(ctx, l, r)
	})
}

func (s store) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	return do(ctx, s.p, toStore, "commit", func() (state.Committed, error) {
		began := time.Now()
		done, err := s.in.Commit(ctx, l, c)
		if err == nil {
			s.p.deployment.commits(l.Run, began)
		}
		if err == nil && done.Status.Terminal() {
			s.p.deployment.ends(l.Run, done.Status, c.State.FinishedAt)
		}
		return done, err
	})
}

func (s store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	return do0(ctx, s.p, toStore, "release", func() error { return s.in.Release(ctx, l, delay) })
}

func (s store) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	return do(ctx, s.p, toStore, "signal", func() (state.Wake, error) {
		if sig.Message != nil {
			s.p.deployment.continues(id)
		}
		return s.in.Signal(ctx, id, sig, delay)
	})
}

func (s store) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error) {
	return do(ctx, s.p, toStore, "abort", func() (state.Wake, error) {
		wake, err := s.in.Abort(ctx, id, abort, delay)
		if err == nil {
			s.p.deployment.aborts(id)
		}
		return wake, err
	})
}

func (s store) Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error) {
	return do(ctx, s.p, toStore, "admit", func() (state.Admitted, error) { return s.in.Admit(ctx, root, runs, limit) })
}

func (s store) Delete(ctx context.Context, id state.RunID) error {
	return do0(ctx, s.p, toStore, "delete", func() error {
		err := s.in.Delete(ctx, id)
		if err == nil {
			s.p.deployment.deletes(ctx, s.in, id)
		}
		return err
	})
}

func (s store) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	return do(ctx, s.p, toStore, "seal", func() ([]state.RunID, error) { return s.in.Seal(ctx, id, token) })
}

func (s store) Unseal(ctx context.Context, id state.RunID, token string) error {
	return do0(ctx, s.p, toStore, "unseal", func() error { return s.in.Unseal(ctx, id, token) })
}

func (s store) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	return do0(ctx, s.p, toStore, "prevent creation", func() error { return s.in.PreventCreation(ctx, tenant, id) })
}

func (s store) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	return do(ctx, s.p, toStore, "deleted of batch", func() (state.DeletedBatch, error) { return s.in.DeletedOfBatch(ctx, first) })
}

func (s store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	return do(ctx, s.p, toStore, "sweep", func() ([]state.Due, error) { return s.in.Sweep(ctx, limit, delay, backlog) })
}

func (s store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	return do(ctx, s.p, toStore, "evict", func() ([]state.Due, error) { return s.in.Evict(ctx, worker, limit, delay) })
}

func (s store) Owners(ctx context.Context) ([]string, error) {
	return do(ctx, s.p, toStore, "owners", func() ([]string, error) { return s.in.Owners(ctx) })
}

func (s store) Leases(ctx context.Context, worker string, limit int) ([]state.RunID, error) {
	return do(ctx, s.p, toStore, "leases", func() ([]state.RunID, error) { return s.in.Leases(ctx, worker, limit) })
}

func (s store) Heartbeat(ctx context.Context, worker string, lasts time.Duration) error {
	return do0(ctx, s.p, toStore, "heartbeat", func() error { return s.in.Heartbeat(ctx, worker, lasts) })
}

func (s store) Alive(ctx context.Context, worker string) (bool, error) {
	return do(ctx, s.p, toStore, "alive", func() (bool, error) { return s.in.Alive(ctx, worker) })
}

func (s store) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	return do0(ctx, s.p, toStore, "finalized", func() error { return s.in.MarkFinalized(ctx, id, seq) })
}

func (s store) Counts(ctx context.Context) (map[state.Status]int64, error) {
	return do(ctx, s.p, toStore, "counts", func() (map[state.Status]int64, error) { return s.in.Counts(ctx) })
}

func (s store) PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	return do(ctx, s.p, toStore, "put agent", func() (state.AgentVersion, error) { return s.in.PutAgent(ctx, tenant, name, definition, always) })
}

func (s store) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	return do(ctx, s.p, toStore, "agent", func() (state.AgentVersion, error) { return s.in.Agent(ctx, tenant, name, version) })
}

func (s store) AgentNames(ctx context.Context, tenant string) ([]string, error) {
	return do(ctx, s.p, toStore, "agent names", func() ([]string, error) { return s.in.AgentNames(ctx, tenant) })
}

func (s store) DeleteAgent(ctx context.Context, tenant, name string) error {
	return do0(ctx, s.p, toStore, "delete agent", func() error { return s.in.DeleteAgent(ctx, tenant, name) })
}

func (s store) Pin(ctx context.Context, key string, value []byte) ([]byte, error) {
	return do(ctx, s.p, toStore, "pin", func() ([]byte, error) { return s.in.Pin(ctx, key, value) })
}

func (s store) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	return do0(ctx, s.p, toStore, "put document", func() error { return s.in.PutDocument(ctx, kind, name, data) })
}

func (s store) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	return do0(ctx, s.p, toStore, "replace document", func() error { return s.in.ReplaceDocument(ctx, kind, name, was, data) })
}

func (s store) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	return do(ctx, s.p, toStore, "document", func() (json.RawMessage, error) { return s.in.Document(ctx, kind, name) })
}

func (s store) DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error) {
	return do(ctx, s.p, toStore, "document names", func() ([]string, error) { return s.in.DocumentNames(ctx, kind) })
}

func (s store) Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	return do(ctx, s.p, toStore, "documents", func() (map[string]json.RawMessage, error) { return s.in.Documents(ctx, kind) })
}

func (s store) ListDocuments(ctx context.Context, kind state.DocumentKind, prefix, cursor string, limit int) (state.DocumentPage, error) {
	return do(ctx, s.p, toStore, "list documents", func() (state.DocumentPage, error) { return s.in.ListDocuments(ctx, kind, prefix, cursor, limit) })
}

func (s store) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	return do0(ctx, s.p, toStore, "delete document", func() error { return s.in.DeleteDocument(ctx, kind, name) })
}

func (s store) AppendAudit(ctx context.Context, tenant string, entry json.RawMessage) error {
	return do0(ctx, s.p, toStore, "append to the audit", func() error { return s.in.AppendAudit(ctx, tenant, entry) })
}

// Audit is unused: no caller has an identity here.
func (s store) Audit(ctx context.Context, tenant, cursor string, limit int) ([]json.RawMessage, string, error) {
	return s.in.Audit(ctx, tenant, cursor, limit)
}

func (s store) Take(ctx context.Context, key string, t state.Take) (state.Taken, error) {
	return do(ctx, s.p, toStore, "take", func() (state.Taken, error) { return s.in.Take(ctx, key, t) })
}

func (s store) Correct(ctx context.Context, key string, q state.Quota, tokens int64) error {
	return do0(ctx, s.p, toStore, "correct", func() error { return s.in.Correct(ctx, key, q, tokens) })
}

func (s store) Pause(ctx context.Context, key string, d time.Duration) error {
	return do0(ctx, s.p, toStore, "pause", func() error { return s.in.Pause(ctx, key, d) })
}

func (s store) Paused(ctx context.Context) ([]string, error) {
	return do(ctx, s.p, toStore, "paused", func() ([]string, error) { return s.in.Paused(ctx) })
}

func (s store) PutTimer(ctx context.Context, id state.TimerID, due time.Time) error {
	return do0(ctx, s.p, toStore, "put timer", func() error { return s.in.PutTimer(ctx, id, due) })
}

func (s store) Timer(ctx context.Context, id state.TimerID) (time.Time, error) {
	return do(ctx, s.p, toStore, "timer", func() (time.Time, error) { return s.in.Timer(ctx, id) })
}

func (s store) ClaimTimers(ctx context.Context, kind state.TimerKind, limit int, lease time.Duration) ([]state.TimerClaim, error) {
	return do(ctx, s.p, toStore, "claim timers", func() ([]state.TimerClaim, error) { return s.in.ClaimTimers(ctx, kind, limit, lease) })
}

func (s store) ListTimers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]state.Timer, error) {
	return do(ctx, s.p, toStore, "list timers", func() ([]state.Timer, error) { return s.in.ListTimers(ctx, tenant, kind, after, limit) })
}

func (s store) AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error {
	return do0(ctx, s.p, toStore, "ack timer", func() error { return s.in.AckTimer(ctx, c, next) })
}
