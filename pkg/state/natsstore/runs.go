package natsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Create implements state.Runs. If the run has a key, Create takes the key first; after a crash in between, the next
// call with the key creates the run that the key names. A key that names a deleted run is free.
func (s *Store) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.Guard != "" { // of another store: this one gives none
		return state.Created{}, fmt.Errorf("agent %s: %w", n.State.Agent, state.ErrChanged)
	}
	return record.Create(n, func() (state.Created, error) { return s.create(ctx, n) }, func(deleted state.RunID) error {
		return s.freeKey(ctx, s.keySubject(record.KeyName(n.State.Tenant, n.Key)), deleted)
	})
}

// create is one attempt of Create. If the run that the key names was deleted, create returns its
// id.
func (s *Store) create(ctx context.Context, n state.NewRun) (state.Created, error) {
	st := n.State
	if n.Key != "" {
		owner, err := s.takeKey(ctx, n)
		if err != nil {
			return state.Created{}, err
		}
		st.ID = owner
	}
	rec := record.New(*st.Formatted(s.Written()), s.clock.now(), n.RedeliveryDelay)
	rec.Indexed = n.IndexNames()
	if n.Key != "" {
		rec.Key = record.KeyName(st.Tenant, n.Key)
	}
	op := nats.NewInbox()
	data, err := change{op, rec, st.Log}.encode()
	if err != nil {
		return state.Created{}, err
	}
	seq, err := s.send(ctx, s.runSubject(st.ID), data, 0)
	if err == nil {
		s.learn(st.ID, version{rec, seq, len(data)})
		s.mu.Lock()
		s.hold(st.ID, cachedLog{slices.Clone(st.Log), seq, len(data)})
		s.mu.Unlock()
		return state.Created{State: rec.Read(), Noisy: s.noisy(st.ID)}, nil
	}
	have, lastOp, readErr := s.read(ctx, st.ID)
	if errors.Is(readErr, state.ErrDeleted) {
		return state.Created{State: state.State{ID: st.ID}}, readErr
	}
	if errors.Is(readErr, state.ErrNotFound) {
		readErr = err // the run was not created, for this reason
	}
	if readErr != nil {
		return state.Created{}, fmt.Errorf("create run %s: %w", st.ID, readErr)
	}
	return state.Created{State: have.rec.Read(), Existing: lastOp != op}, nil
}

// keySubject returns the subject for the name of an idempotency key, see record.KeyName.
func (s *Store) keySubject(name string) string { return s.cfg.Prefix + ".state.idem." + name }

func (s *Store) takeKey(ctx context.Context, n state.NewRun) (state.RunID, error) {
	subject := s.keySubject(record.KeyName(n.State.Tenant, n.Key))
	_, err := s.send(ctx, subject, []byte(record.Owner{Run: n.State.ID, Fingerprint: n.Fingerprint}.String()), 0)
	if err == nil {
		return n.State.ID, nil
	}
	m, readErr := s.stream.GetLastMsgForSubject(ctx, subject)
	if readErr != nil {
		return "", fmt.Errorf("take idempotency key: %w", err)
	}
	return record.OwnerOf(string(m.Data), n.Fingerprint)
}

// LoadByKey implements state.Runs.
func (s *Store) LoadByKey(ctx context.Context, tenant, key, fingerprint string) (state.State, error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, s.keySubject(record.KeyName(tenant, key)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return state.State{}, fmt.Errorf("idempotency key: %w", state.ErrNotFound)
	}
	if err != nil {
		return state.State{}, fmt.Errorf("read idempotency key: %w", err)
	}
	id, err := record.OwnerOf(string(m.Data), fingerprint)
	if err != nil {
		return state.State{}, err
	}
	return s.Load(ctx, id)
}

// Load implements state.Runs.
func (s *Store) Load(ctx context.Context, id state.RunID) (state.State, error) {
	v, _, err := s.read(ctx, id)
	return v.rec.Read(), err
}

// Log implements state.Runs. It can return cached entries without reading the stream, because a log
// only grows. So it may return entries of a run that another process has deleted, until the feed or a read of the run
// reports the deletion.
func (s *Store) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	s.mu.Lock()
	known := s.logs[id].entries
	s.mu.Unlock()
	after = max(after, 0)
	if limit > 0 && len(known) > 0 && known[0].Seq-1 <= after && state.LogLen(known)-after >= int64(limit) {
		return slices.Clip(state.After(known, after)[:limit]), nil
	}
	page, err := s.LogPage(ctx, id, after, limit, 0)
	return page.Entries, err
}

// LogPage implements state.Runs.
func (s *Store) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	after = max(after, 0)
	s.mu.Lock()
	known := s.logs[id].entries
	s.mu.Unlock()
	if limit > 0 && len(known) > 0 && known[0].Seq-1 <= after && state.LogLen(known)-after > int64(limit) {
		return pageOf(state.After(known, after), limit, bytes, state.LogLen(known)), nil
	}
	v, _, err := s.read(ctx, id)
	if err != nil {
		return state.LogPage{}, err
	}
	most := int64(0)
	if limit > 0 {
		most = after + int64(limit)
	}
	entries, err := s.logAt(ctx, id, v, after, most, bytes)
	if entries = state.After(entries, after); err != nil || len(entries) == 0 {
		return state.LogPage{}, err
	}
	return pageOf(entries, limit, bytes, v.rec.LogLen), nil
}

// pageOf returns the first entries of a log with `last` entries: at most limit, and about `bytes` bytes.
func pageOf(entries []state.Entry, limit, bytes int, last int64) state.LogPage {
	n, size := 0, int64(0)
	for n < len(entries) && (limit <= 0 || n < limit) && (bytes <= 0 || size < int64(bytes)) {
		size += entries[n].Weight()
		n++
	}
	return state.LogPage{Entries: slices.Clip(entries[:n]), More: entries[n-1].Seq < last}
}

func (s *Store) indexed(id state.RunID) record.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index[id].rec
}

// Claim implements state.Turns. It answers an eager claim from the index: all writes under its
// token go through the process that made it.
func (s *Store) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	if rec := s.indexed(q.Run); q.Token != "" && rec.EagerToken == q.Token && rec.Token == q.Token {
		if c := rec.Claim(q, s.clock.now()); c.Outcome == state.Claimed {
			return s.withLog(ctx, q, c)
		}
	}
	c := new(state.Claim)
	err := s.update(ctx, q.Run, func(rec *record.Record, now time.Time) ([]state.Entry, error) {
		c = rec.Claim(q, now)
		if c.Outcome != state.Claimed {
			return nil, errUnchanged
		}
		return nil, nil
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
	if err != nil || c.Outcome != state.Claimed {
		return c, err
	}
	return s.withLog(ctx, q, c)
}

// withLog returns a claim with the log of its run, unless the request excludes it.
func (s *Store) withLog(ctx context.Context, q state.ClaimRequest, c *state.Claim) (_ *state.Claim, err error) {
	if c.LogOmitted = q.Omits(c.State); c.LogOmitted {
		return c, nil
	}
	s.mu.Lock()
	v, held := s.index[q.Run], state.LogLen(s.logs[q.Run].entries)
	s.mu.Unlock()
	from := max(0, c.State.Checkpoint-1)
	c.LogRead = max(0, c.LogLen-max(held, from))
	if c.State.Log, err = s.logAt(ctx, q.Run, v, from, 0, 0); err != nil {
		return new(state.Claim), err
	}
	if have := c.State.LogLen(); have < c.LogLen {
		return new(state.Claim), fmt.Errorf("claim run %s: only %d of the %d entries of its log were found: if this repeats, the stored run is damaged: submit its input as a new run; to restore a backup of the streams would reset all runs", q.Run, have, c.LogLen)
	}
	c.State.Log = slices.Clip(state.FromCheckpoint(state.Through(c.State.Log, c.LogLen), c.State.Checkpoint))
	return c, nil
}

// Renew implements state.Turns.
func (s *Store) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (abort *state.Abort, err error) {
	err = s.update(ctx, l.Run, func(rec *record.Record, now time.Time) (_ []state.Entry, err error) {
		abort, err = rec.Renew(l, lease, delay, now)
		return nil, err
	})
	return abort, err
}

// late is update for a worker that may have been evicted.
func (s *Store) late(ctx context.Context, l state.Lease, change func(*record.Record, time.Time) ([]state.Entry, error)) error {
	var fenced error
	err := s.update(ctx, l.Run, func(rec *record.Record, now time.Time) (entries []state.Entry, err error) {
		entries, fenced, err = rec.Late(func() ([]state.Entry, error) { return change(rec, now) })
		return entries, err
	})
	return cmp.Or(err, fenced)
}

// Record implements state.Turns.
func (s *Store) Record(ctx context.Context, l state.Lease, j state.Record) (abort *state.Abort, err error) {
	err = s.late(ctx, l, func(rec *record.Record, _ time.Time) ([]state.Entry, error) {
		entries, err := rec.Record(l, j)
		if err == nil && len(j.Results) > 0 {
			err = s.checkJournal(*rec)
		}
		if abort = nil; err == nil {
			abort = rec.Pending()
		}
		return entries, err
	})
	return abort, err
}

// checkJournal returns a *state.TooLargeError if a record takes more than 15/16 of
// max_payload. The rest is for the turn's commit, which writes the journaled results
// together with everything that the loop derives from them, and for an abort before it.
func (s *Store) checkJournal(rec record.Record) error {
	data, err := record.Encode(rec)
	if err != nil {
		return err
	}
	if limit := s.nc.MaxPayload() / 16 * 15; int64(len(data)) > limit {
		return &state.TooLargeError{Bytes: int64(len(data)), Limit: limit, Remedy: "let tools return smaller results, since all results of a turn count, or raise max_payload of the NATS server"}
	}
	return nil
}

// Commit implements state.Turns.
func (s *Store) Commit(ctx context.Context, l state.Lease, c state.Commit) (done state.Committed, err error) {
	c.State = c.State.Formatted(s.Written())
	err = s.updateWith(ctx, l.Run, packFigures(c), func(rec *record.Record, now time.Time) (entries []state.Entry, err error) {
		repeated := rec.CommitID == c.ID
		if entries, done, err = rec.Commit(l, c, now); err == nil && repeated {
			err = errUnchanged
		}
		return entries, err
	})
	done.Noisy = err == nil && s.noisy(l.Run)
	return done, err
}

// Release implements state.Turns.
func (s *Store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	return s.late(ctx, l, func(rec *record.Record, now time.Time) ([]state.Entry, error) { return nil, rec.Release(l, now, delay) })
}

// Signal implements state.Signals.
func (s *Store) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (w state.Wake, err error) {
	err = s.update(ctx, id, func(rec *record.Record, now time.Time) (_ []state.Entry, err error) {
		w, err = rec.Signal(id, sig, now, delay)
		switch {
		case err == nil && w == (state.Wake{}):
			err = errUnchanged
		case err == nil:
			err = s.checkInbox(id, *rec)
		}
		return nil, err
	})
	w.Noisy = err == nil && w.Publish && s.noisy(id)
	return w, err
}

// checkInbox leaves capacity in a run's record, which is one message, for the turn that consumes
// its inbox, and for the commit of a turn in flight, which does not: if nothing can be added to the record, no worker
// can claim or end the run.
func (s *Store) checkInbox(id state.RunID, rec record.Record) error {
	inbox := rec.Inbox
	if rec.Status == state.Running {
		data, err := record.Encode(rec)
		if err != nil {
			return err
		}
		if over := int64(len(data)) - s.nc.MaxPayload()/4*3; over > 0 {
			return &state.InboxFullError{ID: id, Signals: int64(len(inbox)), Bytes: rec.InboxBytes, Limit: max(0, rec.InboxBytes-over)}
		}
	}
	data, err := json.Marshal(inbox)
	if err != nil {
		return err
	}
	if limit := s.nc.MaxPayload() / 2; int64(len(data)) > limit {
		if len(inbox) == 1 {
			return &state.TooLargeError{Bytes: int64(len(data)), Limit: limit, Remedy: "send fewer or smaller signals before the run's next turn, or raise max_payload of the NATS server"}
		}
		return &state.InboxFullError{ID: id, Signals: int64(len(inbox)), Bytes: int64(len(data)), Limit: limit}
	}
	return nil
}

// Abort implements state.Signals.
func (s *Store) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (w state.Wake, err error) {
	err = s.update(ctx, id, func(rec *record.Record, now time.Time) (_ []state.Entry, err error) {
		w, err = rec.RequestAbort(id, abort, now, delay)
		return nil, err
	})
	return w, err
}
