package monitor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Measured is a store that measures how long its operations take.
type Measured struct {
	runs
	deletions
	turns
	signals
	schedule
	workers
	figures
	agents
	documents
	audits
	quotas
	timers

	store state.Store
	meter *Meter
}

// Measure returns store with each operation measured by m.
func Measure(store state.Store, m *Meter) *Measured {
	return &Measured{
		runs{store, m},
		deletions{store, m},
		turns{store, m},
		signals{store, m},
		schedule{store, m},
		workers{store, m},
		figures{store, m},
		agents{store, m},
		documents{store, m},
		audits{store, m},
		quotas{store, m},
		timers{store, m},
		store, m,
	}
}

// SetFormat implements state.Store.
func (s *Measured) SetFormat(format int) { s.store.SetFormat(format) }

// Now implements state.Store.
func (s *Measured) Now(ctx context.Context) (time.Time, error) {
	return timed(s.meter, "now", func() (time.Time, error) { return s.store.Now(ctx) })
}

// Ready implements state.Store.
func (s *Measured) Ready(ctx context.Context) error {
	return timedErr(s.meter, "ready", func() error { return s.store.Ready(ctx) })
}

type runs struct {
	state.Runs

	meter *Meter
}

// Create implements state.Runs.
func (m runs) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	return timed(m.meter, "create", func() (state.Created, error) { return m.Runs.Create(ctx, run) })
}

// Load implements state.Runs.
func (m runs) Load(ctx context.Context, id state.RunID) (state.State, error) {
	return timed(m.meter, "load", func() (state.State, error) { return m.Runs.Load(ctx, id) })
}

// LoadByKey implements state.Runs.
func (m runs) LoadByKey(ctx context.Context, tenant, key, fingerprint string) (state.State, error) {
	return timed(m.meter, "load_by_key", func() (state.State, error) { return m.Runs.LoadByKey(ctx, tenant, key, fingerprint) })
}

// Log implements state.Runs.
func (m runs) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	return timed(m.meter, "log", func() ([]state.Entry, error) { return m.Runs.Log(ctx, id, after, limit) })
}

func (m runs) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	return timed(m.meter, "log", func() (state.LogPage, error) { return m.Runs.LogPage(ctx, id, after, limit, bytes) })
}

// Admit implements state.Runs.
func (m runs) Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error) {
	return timed(m.meter, "admit", func() (state.Admitted, error) { return m.Runs.Admit(ctx, root, runs, limit) })
}

// List implements state.Runs.
func (m runs) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	return timed(m.meter, "list", func() (state.RunPage, error) { return m.Runs.List(ctx, f) })
}

type deletions struct {
	state.Deletions

	meter *Meter
}

// Seal implements state.Deletions.
func (m deletions) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	return timed(m.meter, "seal", func() ([]state.RunID, error) { return m.Deletions.Seal(ctx, id, token) })
}

// Unseal implements state.Deletions.
func (m deletions) Unseal(ctx context.Context, id state.RunID, token string) error {
	return timedErr(m.meter, "unseal", func() error { return m.Deletions.Unseal(ctx, id, token) })
}

// Delete implements state.Deletions.
func (m deletions) Delete(ctx context.Context, id state.RunID) error {
	return timedErr(m.meter, "delete", func() error { return m.Deletions.Delete(ctx, id) })
}

// PreventCreation implements state.Deletions.
func (m deletions) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	return timedErr(m.meter, "prevent_creation", func() error { return m.Deletions.PreventCreation(ctx, tenant, id) })
}

// DeletedOfBatch implements state.Deletions.
func (m deletions) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	return timed(m.meter, "deleted_of_batch", func() (state.DeletedBatch, error) { return m.Deletions.DeletedOfBatch(ctx, first) })
}

type turns struct {
	state.Turns

	meter *Meter
}

// Claim implements state.Turns.
func (m turns) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	return timed(m.meter, "claim", func() (*state.Claim, error) { return m.Turns.Claim(ctx, r) })
}

// Renew implements state.Turns.
func (m turns) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	return timed(m.meter, "renew", func() (*state.Abort, error) { return m.Turns.Renew(ctx, l, lease, delay) })
}

// Record implements state.Turns.
func (m turns) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	return timed(m.meter, "record", func() (*state.Abort, error) { return m.Turns.Record(ctx, l, r) })
}

// Commit implements state.Turns.
func (m turns) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	return timed(m.meter, "commit", func() (state.Committed, error) { return m.Turns.Commit(ctx, l, c) })
}

// Release implements state.Turns.
func (m turns) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	return timedErr(m.meter, "release", func() error { return m.Turns.Release(ctx, l, delay) })
}

type signals struct {
	state.Signals

	meter *Meter
}

// Signal implements state.Signals.
func (m signals) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	return timed(m.meter, "signal", func() (state.Wake, error) { return m.Signals.Signal(ctx, id, sig, delay) })
}

// Abort implements state.Signals.
func (m signals) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error) {
	return timed(m.meter, "abort", func() (state.Wake, error) { return m.Signals.Abort(ctx, id, abort, delay) })
}

type schedule struct {
	state.Schedule

	meter *Meter
}

// Sweep implements state.Schedule.
func (m schedule) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	return timed(m.meter, "sweep", func() ([]state.Due, error) { return m.Schedule.Sweep(ctx, limit, delay, backlog) })
}

// MarkFinalized implements state.Schedule.
func (m schedule) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	return timedErr(m.meter, "finalized", func() error { return m.Schedule.MarkFinalized(ctx, id, seq) })
}

// Counts implements state.Schedule.
func (m schedule) Counts(ctx context.Context) (map[state.Status]int64, error) {
	return timed(m.meter, "counts", func() (map[state.Status]int64, error) { return m.Schedule.Counts(ctx) })
}

type workers struct {
	state.Workers

	meter *Meter
}

// Evict implements state.Workers.
func (m workers) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	return timed(m.meter, "evict", func() ([]state.Due, error) { return m.Workers.Evict(ctx, worker, limit, delay) })
}

// Owners implements state.Workers.
func (m workers) Owners(ctx context.Context) ([]string, error) {
	return timed(m.meter, "owners", func() ([]string, error) { return m.Workers.Owners(ctx) })
}

// Leases implements state.Workers.
func (m workers) Leases(ctx context.Context, worker string, limit int) ([]state.RunID, error) {
	return timed(m.meter, "leases", func() ([]state.RunID, error) { return m.Workers.Leases(ctx, worker, limit) })
}

// Heartbeat implements state.Workers.
func (m workers) Heartbeat(ctx context.Context, worker string, lasts time.Duration) error {
	return timedErr(m.meter, "heartbeat", func() error { return m.Workers.Heartbeat(ctx, worker, lasts) })
}

// Alive implements state.Workers.
func (m workers) Alive(ctx context.Context, worker string) (bool, error) {
	return timed(m.meter, "alive", func() (bool, error) { return m.Workers.Alive(ctx, worker) })
}

type figures struct {
	state.HourlyFigures

	meter *Meter
}

// Figures implements state.HourlyFigures.
func (m figures) Figures(ctx context.Context, tenant string, from, to time.Time) ([]state.HourFigures, error) {
	return timed(m.meter, "figures", func() ([]state.HourFigures, error) { return m.HourlyFigures.Figures(ctx, tenant, from, to) })
}

// FoldFigures implements state.HourlyFigures.
func (m figures) FoldFigures(ctx context.Context) error {
	return timedErr(m.meter, "fold_figures", func() error { return m.HourlyFigures.FoldFigures(ctx) })
}

type agents struct {
	state.Agents

	meter *Meter
}

// PutAgent implements state.Agents.
func (m agents) PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	return timed(m.meter, "put_agent", func() (state.AgentVersion, error) { return m.Agents.PutAgent(ctx, tenant, name, definition, always) })
}

// Agent implements state.Agents.
func (m agents) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	return timed(m.meter, "agent", func() (state.AgentVersion, error) { return m.Agents.Agent(ctx, tenant, name, version) })
}

// AgentNames implements state.Agents.
func (m agents) AgentNames(ctx context.Context, tenant string) ([]string, error) {
	return timed(m.meter, "agent_names", func() ([]string, error) { return m.Agents.AgentNames(ctx, tenant) })
}

// DeleteAgent implements state.Agents.
func (m agents) DeleteAgent(ctx context.Context, tenant, name string) error {
	return timedErr(m.meter, "delete_agent", func() error { return m.Agents.DeleteAgent(ctx, tenant, name) })
}

// Pin implements state.Agents.
func (m agents) Pin(ctx context.Context, key string, value []byte) ([]byte, error) {
	return timed(m.meter, "pin", func() ([]byte, error) { return m.Agents.Pin(ctx, key, value) })
}

type documents struct {
	port

	meter *Meter
}

// port has another name than its method Documents.
type port = state.Documents

// PutDocument implements state.Documents.
func (m documents) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	return timedErr(m.meter, "put_document", func() error { return m.port.PutDocument(ctx, kind, name, data) })
}

// ReplaceDocument implements state.Documents.
func (m documents) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	return timedErr(m.meter, "replace_document", func() error { return m.port.ReplaceDocument(ctx, kind, name, was, data) })
}

// Document implements state.Documents.
func (m documents) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	return timed(m.meter, "document", func() (json.RawMessage, error) { return m.port.Document(ctx, kind, name) })
}

// DocumentNames implements state.Documents.
func (m documents) DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error) {
	return timed(m.meter, "document_names", func() ([]string, error) { return m.port.DocumentNames(ctx, kind) })
}

// Documents implements state.Documents.
func (m documents) Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	return timed(m.meter, "documents", func() (map[string]json.RawMessage, error) { return m.port.Documents(ctx, kind) })
}

// ListDocuments implements state.Documents.
func (m documents) ListDocuments(ctx context.Context, kind state.DocumentKind, prefix, cursor string, limit int) (state.DocumentPage, error) {
	return timed(m.meter, "list_documents", func() (state.DocumentPage, error) {
		return m.port.ListDocuments(ctx, kind, prefix, cursor, limit)
	})
}

// DeleteDocument implements state.Documents.
func (m documents) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	return timedErr(m.meter, "delete_document", func() error { return m.port.DeleteDocument(ctx, kind, name) })
}

type audits struct {
	state.Audits

	meter *Meter
}

// AppendAudit implements state.Audits.
func (m audits) AppendAudit(ctx context.Context, tenant string, entry json.RawMessage) error {
	return timedErr(m.meter, "append_audit", func() error { return m.Audits.AppendAudit(ctx, tenant, entry) })
}

// Audit implements state.Audits.
func (m audits) Audit(ctx context.Context, tenant, cursor string, limit int) (entries []json.RawMessage, next string, err error) {
	err = timedErr(m.meter, "audit", func() (err error) {
		entries, next, err = m.Audits.Audit(ctx, tenant, cursor, limit)
		return err
	})
	return entries, next, err
}

type quotas struct {
	state.Quotas

	meter *Meter
}

// Take implements state.Quotas.
func (m quotas) Take(ctx context.Context, key string, t state.Take) (state.Taken, error) {
	return timed(m.meter, "take", func() (state.Taken, error) { return m.Quotas.Take(ctx, key, t) })
}

// Correct implements state.Quotas.
func (m quotas) Correct(ctx context.Context, key string, q state.Quota, tokens int64) error {
	return timedErr(m.meter, "correct", func() error { return m.Quotas.Correct(ctx, key, q, tokens) })
}

// Pause implements state.Quotas.
func (m quotas) Pause(ctx context.Context, key string, d time.Duration) error {
	return timedErr(m.meter, "pause", func() error { return m.Quotas.Pause(ctx, key, d) })
}

// Paused implements state.Quotas.
func (m quotas) Paused(ctx context.Context) ([]string, error) {
	return timed(m.meter, "paused", func() ([]string, error) { return m.Quotas.Paused(ctx) })
}

type timers struct {
	state.Timers

	meter *Meter
}

// PutTimer implements state.Timers.
func (m timers) PutTimer(ctx context.Context, id state.TimerID, due time.Time) error {
	return timedErr(m.meter, "put_timer", func() error { return m.Timers.PutTimer(ctx, id, due) })
}

// Timer implements state.Timers.
func (m timers) Timer(ctx context.Context, id state.TimerID) (time.Time, error) {
	return timed(m.meter, "timer", func() (time.Time, error) { return m.Timers.Timer(ctx, id) })
}

// ClaimTimers implements state.Timers.
func (m timers) ClaimTimers(ctx context.Context, kind state.TimerKind, limit int, lease time.Duration) ([]state.TimerClaim, error) {
	return timed(m.meter, "claim_timers", func() ([]state.TimerClaim, error) { return m.Timers.ClaimTimers(ctx, kind, limit, lease) })
}

// ListTimers implements state.Timers.
func (m timers) ListTimers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]state.Timer, error) {
	return timed(m.meter, "list_timers", func() ([]state.Timer, error) { return m.Timers.ListTimers(ctx, tenant, kind, after, limit) })
}

// AckTimer implements state.Timers.
func (m timers) AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error {
	return timedErr(m.meter, "ack_timer", func() error { return m.Timers.AckTimer(ctx, c, next) })
}
