package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/quota"
	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config of a Store.
type Config struct {
	// Now is the store's clock; nil means time.Now. It must be safe for concurrent use.
	Now func() time.Time
}

// Store is a state.Store in memory. It has many methods and fields because one lock guards all that a store
// keeps: an operation sees runs, indexes and quotas of one moment.
type Store struct {
	state.FormatSetting

	now func() time.Time

	mu         sync.Mutex
	runs       map[state.RunID]*run
	active     record.ActiveRuns
	keys       map[string]key
	agents     map[agentKey][]state.AgentVersion
	pins       map[string][]byte
	documents  map[state.DocumentKind]map[string]json.RawMessage
	audits     map[string][]json.RawMessage // by tenant
	removed    map[agentKey]bool
	quotas     map[string]quota.Bucket
	slowed     map[string]time.Time // by key: the end of the slow time
	figures    map[hour]map[state.SeriesKey]state.Figures
	timers     map[state.TimerID]timer
	alive      map[string]time.Time // by worker: the time until which it counts as alive
	markers    map[state.RunID]marker
	maxMarkers int                          // the number at which old ones are dropped
	batches    map[state.RunID]deletedBatch // by first run
	eager      map[string]run               // by token of an eager claim: the run as its commit left it

	timerVersion int64 // the latest
}

type run struct {
	record []byte
	log    [][]byte
	tree   []state.RunID // descendants

	// Copies of fields that the schedule reads for every run, without decoding it.
	due   time.Time // zero means never
	owner string    // of the lease, or empty
}

type key struct {
	run         state.RunID
	fingerprint string
}

var _ state.Store = (*Store)(nil)

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{
		now: cfg.Now, runs: map[state.RunID]*run{}, active: record.ActiveRuns{}, keys: map[string]key{},
		agents: map[agentKey][]state.AgentVersion{}, removed: map[agentKey]bool{}, pins: map[string][]byte{},
		documents: map[state.DocumentKind]map[string]json.RawMessage{}, audits: map[string][]json.RawMessage{},
		quotas: map[string]quota.Bucket{}, slowed: map[string]time.Time{}, figures: map[hour]map[state.SeriesKey]state.Figures{}, timers: map[state.TimerID]timer{}, alive: map[string]time.Time{}, eager: map[string]run{},
		markers: map[state.RunID]marker{}, batches: map[state.RunID]deletedBatch{},
	}
}

// get returns the record of a run; the caller holds s.mu.
func (s *Store) get(id state.RunID) (record.Record, *run, error) {
	r := s.runs[id]
	if r == nil {
		return record.Record{}, nil, fmt.Errorf("run %s: %w", id, s.absent(id))
	}
	rec, err := record.Decode(string(r.record))
	if err != nil {
		err = fmt.Errorf("decode run %s: %w", id, err)
	}
	return rec, r, err
}

// put replaces the record of a run and appends to its log; the caller holds s.mu.
func (r *run) put(rec record.Record, entries []state.Entry) error {
	b, err := record.Encode(rec)
	if err != nil {
		return err
	}
	encoded := make([][]byte, len(entries))
	for i := range entries {
		if encoded[i], err = state.EncodeEntry(&entries[i]); err != nil {
			return err
		}
	}
	r.record, r.log = b, append(r.log, encoded...)
	r.due, r.owner = rec.Due.Time, ""
	if rec.Status == state.Running {
		r.owner = rec.Owner
	}
	return nil
}

// update applies change to a run in one step, and reports whether the run is then noisy.
func (s *Store) update(ctx context.Context, id state.RunID, change func(*record.Record, time.Time) ([]state.Entry, error)) (noisy bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, r, err := s.get(id)
	if err != nil {
		return false, err
	}
	before := rec
	entries, err := change(&rec, s.now())
	if err != nil {
		return false, err
	}
	if err := r.put(rec, entries); err != nil {
		return false, err
	}
	s.active.Move(before, rec)
	return s.active.Noisy(rec), nil
}

// Now implements state.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.now(), ctx.Err() }

// Create implements state.Runs.
func (s *Store) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if err := ctx.Err(); err != nil {
		return state.Created{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := keyName(n.State.Tenant, n.Key)
	if have, ok := s.keys[name]; ok && n.Key != "" {
		if have.fingerprint != n.Fingerprint {
			return state.Created{}, state.ErrIdempotencyConflict
		}
		rec, _, err := s.get(have.run)
		return state.Created{State: rec.Read(), Existing: true}, err
	}
	if rec, _, err := s.get(n.State.ID); !errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrDeleted) {
		return state.Created{State: rec.Read(), Existing: true}, err
	}
	if n.Guard != "" {
		if a, err := s.agent(n.State.Tenant, n.State.Agent, 0); err != nil || a.Guard != n.Guard {
			return state.Created{}, fmt.Errorf("agent %s: %w", n.State.Agent, state.ErrChanged)
		}
	}
	rec := record.New(*n.State.Formatted(s.Written()), s.now(), n.RedeliveryDelay)
	r := &run{}
	if err := r.put(rec, n.State.Log); err != nil {
		return state.Created{}, err
	}
	s.runs[n.State.ID] = r
	if n.Key != "" {
		s.keys[name] = key{n.State.ID, n.Fingerprint}
	}
	s.active.Move(record.Record{}, rec)
	return state.Created{State: rec.Read(), Noisy: s.active.Noisy(rec)}, nil
}

// Ready implements state.Store.
func (*Store) Ready(context.Context) error { return nil }

// Load implements state.Runs.
func (s *Store) Load(_ context.Context, id state.RunID) (state.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, _, err := s.get(id)
	return rec.Read(), err
}

// LoadByKey implements state.Runs.
func (s *Store) LoadByKey(_ context.Context, tenant, key, fingerprint string) (state.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, ok := s.keys[keyName(tenant, key)]
	if !ok {
		return state.State{}, fmt.Errorf("idempotency key: %w", state.ErrNotFound)
	}
	if have.fingerprint != fingerprint {
		return state.State{}, state.ErrIdempotencyConflict
	}
	rec, _, err := s.get(have.run)
	return rec.Read(), err
}

func keyName(tenant, key string) string { return tenant + "\x00" + key }

// Log implements state.Runs.
func (s *Store) Log(_ context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, r, err := s.get(id)
	if err != nil {
		return nil, err
	}
	return r.entries(after, limit)
}

// LogPage implements state.Runs.
func (s *Store) LogPage(_ context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, r, err := s.get(id)
	if err != nil || after >= int64(len(r.log)) {
		return state.LogPage{}, err
	}
	encoded := r.log[max(after, 0):]
	n, size := 0, 0
	for n < len(encoded) && (limit <= 0 || n < limit) && (bytes <= 0 || size < bytes) {
		size += len(encoded[n])
		n++
	}
	entries, err := r.entries(after, n)
	return state.LogPage{Entries: entries, More: n < len(encoded)}, err
}

func (r *run) entries(after int64, limit int) ([]state.Entry, error) {
	if after >= int64(len(r.log)) {
		return nil, nil
	}
	encoded := r.log[max(after, 0):]
	if limit > 0 && limit < len(encoded) {
		encoded = encoded[:limit]
	}
	entries := make([]state.Entry, len(encoded))
	for i, b := range encoded {
		e, err := state.DecodeEntry(max(after, 0)+int64(i)+1, b)
		if err != nil {
			return nil, err
		}
		entries[i] = e
	}
	return entries, nil
}

// List implements state.Runs.
func (s *Store) List(_ context.Context, f state.Filter) (state.RunPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []state.RunID
	for id := range s.runs {
		if f.Cursor == "" || string(id) < f.Cursor {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b state.RunID) int { return strings.Compare(string(b), string(a)) })
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	var page state.RunPage
	for _, id := range ids {
		rec, _, err := s.get(id)
		if errors.Is(err, state.ErrFormat) {
			continue
		}
		if err != nil {
			return state.RunPage{}, err
		}
		st := rec.Read()
		if !f.Match(st) {
			continue
		}
		if len(page.Runs) == limit {
			page.Next = string(page.Runs[limit-1].ID)
			break
		}
		page.Runs = append(page.Runs, st)
	}
	return page, nil
}

// maxEager bounds the unused eager claims.
const maxEager = 1024

// resume answers an eager claim with the run as its commit left it, even if it has changed since.
func (s *Store) resume(q state.ClaimRequest) (c *state.Claim, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.eager[q.Token]
	if !ok {
		return c, false
	}
	delete(s.eager, q.Token)
	rec, err := record.Decode(string(r.record))
	if err != nil {
		return c, false
	}
	if c = rec.Claim(q, s.now()); c.Outcome != state.Claimed {
		return c, false
	}
	c.State.Log, err = r.entries(c.State.Checkpoint-1, 0)
	return c, err == nil
}

// Claim implements state.Turns.
func (s *Store) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	if c, ok := s.resume(q); ok {
		return c, ctx.Err()
	}
	c := new(state.Claim)
	_, err := s.update(ctx, q.Run, func(rec *record.Record, now time.Time) ([]state.Entry, error) {
		c = rec.Claim(q, now)
		if c.Outcome != state.Claimed {
			return nil, nil
		}
		if c.LogOmitted = q.Omits(c.State); c.LogOmitted {
			return nil, nil
		}
		var err error
		c.State.Log, err = s.runs[q.Run].entries(c.State.Checkpoint-1, 0)
		return nil, err
	})
	if errors.Is(err, state.ErrDeleted) {
		return &state.Claim{Outcome: state.ClaimDeleted}, nil
	}
	if errors.Is(err, state.ErrNotFound) {
		return &state.Claim{Outcome: state.ClaimMissing}, nil
	}
	if errors.Is(err, state.ErrFormat) {
		return &state.Claim{Outcome: state.ClaimUnsupportedFormat}, nil
	}
	return c, err
}

// Renew implements state.Turns.
func (s *Store) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (abort *state.Abort, err error) {
	_, err = s.update(ctx, l.Run, func(rec *record.Record, now time.Time) (_ []state.Entry, err error) {
		abort, err = rec.Renew(l, lease, delay, now)
		return nil, err
	})
	return abort, err
}

// late is update for a worker that may have been evicted.
func (s *Store) late(ctx context.Context, l state.Lease, change func(*record.Record, time.Time) ([]state.Entry, error)) error {
	var fenced error
	_, err := s.update(ctx, l.Run, func(rec *record.Record, now time.Time) (entries []state.Entry, err error) {
		entries, fenced, err = rec.Late(func() ([]state.Entry, error) { return change(rec, now) })
		return entries, err
	})
	return cmp.Or(err, fenced)
}

// Record implements state.Turns.
func (s *Store) Record(ctx context.Context, l state.Lease, j state.Record) (abort *state.Abort, err error) {
	err = s.late(ctx, l, func(rec *record.Record, _ time.Time) ([]state.Entry, error) {
		entries, err := rec.Record(l, j)
		if abort = nil; err == nil {
			abort = rec.Pending()
		}
		return entries, err
	})
	return abort, err
}

// Commit implements state.Turns.
func (s *Store) Commit(ctx context.Context, l state.Lease, c state.Commit) (done state.Committed, err error) {
	c.State = c.State.Formatted(s.Written())
	noisy, err := s.update(ctx, l.Run, func(rec *record.Record, now time.Time) (entries []state.Entry, err error) {
		repeated := rec.CommitID == c.ID
		if entries, done, err = rec.Commit(l, c, now); err == nil && !repeated {
			s.addFigures(c)
		}
		return entries, err
	})
	if done.Noisy = noisy; err == nil && done.Claimed {
		s.noteEager(l.Run, c.EagerClaim)
	}
	return done, err
}

func (s *Store) noteEager(id state.RunID, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.eager) >= maxEager {
		clear(s.eager)
	}
	s.eager[token] = *s.runs[id]
}

// Release implements state.Turns.
func (s *Store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	return s.late(ctx, l, func(rec *record.Record, now time.Time) ([]state.Entry, error) { return nil, rec.Release(l, now, delay) })
}

// Signal implements state.Signals.
func (s *Store) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (w state.Wake, err error) {
	noisy, err := s.update(ctx, id, func(rec *record.Record, now time.Time) (_ []state.Entry, err error) {
		w, err = rec.Signal(id, sig, now, delay)
		return nil, err
	})
	w.Noisy = noisy && w.Publish
	return w, err
}

// Abort implements state.Signals.
func (s *Store) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (w state.Wake, err error) {
	_, err = s.update(ctx, id, func(rec *record.Record, now time.Time) (_ []state.Entry, err error) {
		w, err = rec.RequestAbort(id, abort, now, delay)
		return nil, err
	})
	return w, err
}

// Admit implements state.Runs.
func (s *Store) Admit(_ context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, r, err := s.get(root)
	if err != nil {
		return state.Admitted{}, err
	}
	var a state.Admitted
	r.tree, a = rec.Admit(r.tree, runs, limit)
	return a, nil
}

// each applies change to the selected runs, in the order of their ids, until limit of them are due.
func (s *Store) each(ctx context.Context, limit int, which func(*run) bool, change func(*record.Record, state.RunID, time.Time) (state.Due, bool)) ([]state.Due, error) {
	s.mu.Lock()
	var ids []state.RunID
	for id, r := range s.runs {
		if which(r) {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	slices.Sort(ids)
	var due []state.Due
	for _, id := range ids {
		if len(due) == limit {
			break
		}
		var d state.Due
		found := false
		noisy, err := s.update(ctx, id, func(rec *record.Record, now time.Time) ([]state.Entry, error) {
			d, found = change(rec, id, now)
			return nil, nil
		})
		if err != nil && !errors.Is(err, state.ErrFormat) && !errors.Is(err, state.ErrNotFound) { // deleted in the meantime
			return due, err
		}
		if found {
			d.Noisy = noisy
			due = append(due, d)
		}
	}
	return due, nil
}

// Sweep implements state.Schedule.
func (s *Store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	now := s.now()
	due := func(r *run) bool { return !r.due.IsZero() && !now.Before(r.due) }
	return s.each(ctx, limit, due, func(rec *record.Record, id state.RunID, now time.Time) (state.Due, bool) {
		return rec.Sweep(id, now, delay, backlog)
	})
}

// Evict implements state.Workers.
func (s *Store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	owned := func(r *run) bool { return r.owner == worker }
	return s.each(ctx, limit, owned, func(rec *record.Record, id state.RunID, now time.Time) (state.Due, bool) {
		return rec.Evict(id, worker, now, delay)
	})
}

// Owners implements state.Workers.
func (s *Store) Owners(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := map[string]bool{}
	for _, r := range s.runs {
		if r.owner != "" {
			owners[r.owner] = true
		}
	}
	return slices.Sorted(maps.Keys(owners)), nil
}

// Leases implements state.Workers.
func (s *Store) Leases(_ context.Context, worker string, limit int) ([]state.RunID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []state.RunID
	for id, r := range s.runs {
		if r.owner == worker {
			held = append(held, id)
		}
	}
	slices.Sort(held)
	return held[:min(len(held), limit)], nil
}

// Heartbeat implements state.Workers.
func (s *Store) Heartbeat(_ context.Context, worker string, lasts time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive[worker] = s.now().Add(lasts)
	return nil
}

// Alive implements state.Workers.
func (s *Store) Alive(_ context.Context, worker string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.alive[worker]), nil
}

// MarkFinalized implements state.Schedule.
func (s *Store) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	_, err := s.update(ctx, id, func(rec *record.Record, _ time.Time) ([]state.Entry, error) {
		rec.NoteFinalized(seq)
		return nil, nil
	})
	return err
}

// Counts implements state.Schedule.
func (s *Store) Counts(context.Context) (map[state.Status]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[state.Status]int64{}
	for id := range s.runs {
		rec, _, err := s.get(id)
		if errors.Is(err, state.ErrFormat) {
			continue
		}
		if err != nil {
			return nil, err
		}
		counts[rec.Status]++
	}
	return counts, nil
}
