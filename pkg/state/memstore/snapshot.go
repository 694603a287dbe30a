package memstore

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Snapshot is an immutable copy of the runs, idempotency keys, agents, markers, batch records and
// hourly figures of a Store. It has no documents, audits, pins, timers, heartbeats and quotas.
type Snapshot struct {
	runs    map[state.RunID]run
	active  record.ActiveRuns
	keys    map[string]key
	agents  map[agentKey][]state.AgentVersion
	removed map[agentKey]bool
	markers map[state.RunID]marker
	batches map[state.RunID]deletedBatch
	figures map[hour]map[state.SeriesKey]state.Figures
}

// Snapshot returns a copy of the store. Restore replaces the contents of the store with such a copy, as a
// failover to a replica that lags behind does.
func (s *Store) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Snapshot{runs: make(map[state.RunID]run, len(s.runs)), active: maps.Clone(s.active), keys: maps.Clone(s.keys), agents: maps.Clone(s.agents), removed: maps.Clone(s.removed), markers: maps.Clone(s.markers), batches: maps.Clone(s.batches), figures: copyFigures(s.figures)}
	for id, r := range s.runs {
		r.log = slices.Clip(r.log)
		c.runs[id] = *r
	}
	return c
}

// Restore replaces the data that a Snapshot has with that of c: later writes to such data are lost. All
// other data stays, and so do unused eager claims, which Claim still answers.
func (s *Store) Restore(c *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = make(map[state.RunID]*run, len(c.runs))
	for id, r := range c.runs {
		s.runs[id] = &r
	}
	s.active, s.keys, s.agents, s.removed = maps.Clone(c.active), maps.Clone(c.keys), maps.Clone(c.agents), maps.Clone(c.removed)
	s.markers, s.batches, s.figures = maps.Clone(c.markers), maps.Clone(c.batches), copyFigures(c.figures)
}

// Runs returns the ids of all runs, sorted.
func (c *Snapshot) Runs() []state.RunID { return slices.Sorted(maps.Keys(c.runs)) }

// Record decodes the store's record of a run, except for its log, into v: a *record.Record, or another pointer,
// into which it decodes the JSON form of the record. The error wraps state.ErrNotFound if the run does not exist.
func (c *Snapshot) Record(id state.RunID, v any) error {
	r, ok := c.runs[id]
	if !ok {
		return fmt.Errorf("run %s: %w", id, state.ErrNotFound)
	}
	rec, err := record.Decode(string(r.record))
	if to, ok := v.(*record.Record); ok {
		*to = rec
	} else if err == nil {
		var b []byte
		if b, err = json.Marshal(rec); err == nil {
			err = json.Unmarshal(b, v)
		}
	}
	if err != nil {
		return fmt.Errorf("decode run %s: %w", id, err)
	}
	return nil
}

// Log returns the whole log of a run, or an empty log if the run does not exist.
func (c *Snapshot) Log(id state.RunID) ([]state.Entry, error) {
	r := c.runs[id]
	return r.entries(0, 0)
}

// Due returns the time at which the schedule next examines a run; the zero time means never.
func (c *Snapshot) Due() time.Time {
	var due time.Time
	for _, r := range c.runs {
		if !r.due.IsZero() && (due.IsZero() || r.due.Before(due)) {
			due = r.due
		}
	}
	return due
}

// Encode writes the runs and the keys to w: two copies have equal runs and keys if Encode writes
// the same for both.
func (c *Snapshot) Encode(w io.Writer) error {
	for _, id := range c.Runs() {
		r := c.runs[id]
		if _, err := fmt.Fprintf(w, "%s %d %q %v\n", id, len(r.log), r.record, r.tree); err != nil {
			return err
		}
		for _, e := range r.log {
			if _, err := w.Write(e); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.keys)) {
		if _, err := fmt.Fprintf(w, "%s %s %s\n", name, c.keys[name].run, c.keys[name].fingerprint); err != nil {
			return err
		}
	}
	return nil
}
