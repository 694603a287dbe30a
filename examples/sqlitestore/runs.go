package sqlitestore

import (
	"context"
	"errors"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Create implements state.Runs.
func (s *Store) Create(ctx context.Context, n state.NewRun) (made state.Created, err error) {
	if n.Guard != "" { // the agents are in another store
		return made, state.ErrChanged
	}
	err = s.update(ctx, func(t *tx) error {
		existing, err := t.owner(n.State.Tenant, n.Key, n.Fingerprint)
		if errors.Is(err, state.ErrNotFound) {
			existing, err = n.State.ID, nil
		}
		if err != nil {
			return err
		}
		r, err := t.load(existing)
		if !errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrDeleted) {
			made.Existing = true
			if err == nil {
				made.State = r.read()
			}
			return err
		}
		r = &run{header: *n.State.Formatted(s.Written()), status: n.State.Status}
		r.turn.Awaits = r.header.Accepts()
		r.schedule(t.now, n.RedeliveryDelay)
		if err := t.insert(r); err != nil {
			return err
		}
		if err := t.append(r, n.State.Log); err != nil {
			return err
		}
		r.header.Log, r.turn.Base = nil, r.logLen
		for _, name := range n.IndexNames() {
			if err := t.exec(`INSERT INTO metadata VALUES (?, ?)`, name, n.State.ID); err != nil {
				return err
			}
		}
		if n.Key != "" {
			if err := t.exec(`INSERT INTO keys VALUES (?, ?, ?, ?)`, n.State.Tenant, n.Key, n.State.ID, n.Fingerprint); err != nil {
				return err
			}
		}
		if err := t.save(r); err != nil {
			return err
		}
		made.State = r.read()
		made.Noisy, err = t.noisy(r)
		return err
	})
	return made, err
}

// owner returns the run that has a key, or fails with ErrNotFound or ErrIdempotencyConflict.
func (t *tx) owner(tenant, key, fingerprint string) (id state.RunID, err error) {
	var known string
	found, err := t.get(`SELECT run, fingerprint FROM keys WHERE tenant = ? AND key = ?`, []any{tenant, key}, &id, &known)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", state.ErrNotFound
	case known != fingerprint:
		return "", state.ErrIdempotencyConflict
	default:
		return id, nil
	}
}

// LoadByKey implements state.Runs.
func (s *Store) LoadByKey(ctx context.Context, tenant, key, fingerprint string) (st state.State, err error) {
	err = s.update(ctx, func(t *tx) error {
		id, err := t.owner(tenant, key, fingerprint)
		if err != nil {
			return err
		}
		r, err := t.load(id)
		if err == nil {
			st = r.read()
		}
		return err
	})
	return st, err
}

// insert adds the row of a new run, with the columns that never change.
func (t *tx) insert(r *run) error {
	header, err := state.EncodeState(r.header)
	if err != nil {
		return err
	}
	parent, batch := state.RunID(""), r.header.BatchID()
	if r.header.Parent != nil {
		parent = r.header.Parent.RunID
	}
	return t.exec(`INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, '', NULL, '', 0, ?, '')`,
		r.header.ID, r.header.Tenant, r.header.Agent, parent, batch, r.header.ID.Shard(), r.header.Format, header)
}

// Load implements state.Runs.
func (s *Store) Load(ctx context.Context, id state.RunID) (st state.State, err error) {
	err = s.update(ctx, func(t *tx) error {
		r, err := t.load(id)
		if err == nil {
			st = r.read()
		}
		return err
	})
	return st, err
}

// Log implements state.Runs.
func (s *Store) Log(ctx context.Context, id state.RunID, after int64, limit int) (entries []state.Entry, err error) {
	if limit <= 0 {
		limit = -1
	}
	err = s.update(ctx, func(t *tx) error {
		if _, err := t.load(id); err != nil {
			return err
		}
		entries, err = t.log(id, after, limit)
		return err
	})
	return entries, err
}

// LogPage implements state.Runs.
func (s *Store) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (page state.LogPage, err error) {
	if limit <= 0 {
		limit = -1
	}
	err = s.update(ctx, func(t *tx) error {
		if _, err := t.load(id); err != nil {
			return err
		}
		page.Entries, page.More, err = t.page(id, after, limit, bytes)
		return err
	})
	return page, err
}

// Admit implements state.Runs.
func (s *Store) Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (a state.Admitted, err error) {
	err = s.update(ctx, func(t *tx) error {
		r, err := t.load(root)
		if err != nil {
			return err
		}
		a.Ended = r.status.Terminal() || r.turn.Abort != nil
		counted, err := all[state.RunID](t, `SELECT run FROM trees WHERE root = ?`, root)
		if err != nil {
			return err
		}
		known := map[state.RunID]bool{}
		for _, id := range counted {
			known[id] = true
		}
		for _, id := range runs {
			if known[id] {
				continue
			}
			if a.Ended || len(known) >= limit {
				a.Refused = append(a.Refused, id)
				continue
			}
			known[id] = true
			if err := t.exec(`INSERT INTO trees VALUES (?, ?)`, root, id); err != nil {
				return err
			}
		}
		return nil
	})
	return a, err
}

// pageSize is the default number of runs of a page, and examined the number of runs that a page
// looks at: rare metadata must not make it read everything.
const (
	pageSize = 50
	examined = 1000
)

// List implements state.Runs. Columns with an index narrow the search; Filter.Match decides.
func (s *Store) List(ctx context.Context, f state.Filter) (page state.RunPage, err error) {
	where, args := []string{"format <= ?"}, []any{state.Format}
	equal := func(column, value string) {
		if value != "" {
			where, args = append(where, column+" = ?"), append(args, value)
		}
	}
	in := func(column string, n int, value func(int) any) {
		if n > 0 {
			where = append(where, column+" IN (?"+strings.Repeat(", ?", n-1)+")")
			for i := range n {
				args = append(args, value(i))
			}
		}
	}
	equal("tenant", f.Tenant)
	equal("agent", f.Agent)
	equal("parent", string(f.Parent))
	equal("batch", f.Batch)
	in("parent", len(f.Parents), func(i int) any { return f.Parents[i] })
	in("status", len(f.Status), func(i int) any { return f.Status[i] })
	for name, from := range f.IndexNames() {
		where = append(where, "(id < ? OR id IN (SELECT run FROM metadata WHERE name = ?))")
		args = append(args, from, name)
	}
	if f.Cursor != "" {
		where, args = append(where, "id < ?"), append(args, f.Cursor)
	}
	limit := f.Limit
	if limit <= 0 {
		limit = pageSize
	}
	err = s.update(ctx, func(t *tx) error {
		ids, err := all[state.RunID](t, `SELECT id FROM runs WHERE `+strings.Join(where, " AND ")+` ORDER BY id DESC LIMIT ?`, append(args, examined)...)
		if err != nil {
			return err
		}
		last, read := state.RunID(""), 0
		for _, id := range ids {
			if len(page.Runs) == limit || f.Bytes > 0 && read >= f.Bytes {
				page.Next = string(last)
				return nil
			}
			r, err := t.load(id)
			if err != nil {
				return err
			}
			last, read = id, read+r.size
			if st := r.read(); f.Match(st) {
				page.Runs = append(page.Runs, st)
			}
		}
		if len(ids) == examined {
			page.Next = string(last)
		}
		return nil
	})
	return page, err
}
