package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type timer struct {
	due     time.Time
	free    time.Time // the time from which it can be claimed: due, or the end of the lease
	version int64
	note    string
}

// PutTimer implements state.Timers.
func (s *Store) PutTimer(ctx context.Context, id state.TimerID, due time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setTimer(id, due, "")
	return nil
}

// setTimer replaces a timer and ends its claim, or removes the timer if due is zero; the caller holds s.mu.
func (s *Store) setTimer(id state.TimerID, due time.Time, note string) {
	if due.IsZero() {
		delete(s.timers, id)
		return
	}
	due = due.Truncate(time.Millisecond)
	s.timerVersion++
	s.timers[id] = timer{due, due, s.timerVersion, note}
}

// Timer implements state.Timers.
func (s *Store) Timer(_ context.Context, id state.TimerID) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.timers[id]
	if !ok {
		return time.Time{}, fmt.Errorf("timer %s %q: %w", id.Kind, id.Name, state.ErrNotFound)
	}
	return t.due, nil
}

// ClaimTimers implements state.Timers. It looks at all timers.
func (s *Store) ClaimTimers(ctx context.Context, kind state.TimerKind, limit int, lease time.Duration) ([]state.TimerClaim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var ids []state.TimerID
	for id, t := range s.timers {
		if id.Kind == kind && !now.Before(t.free) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b state.TimerID) int { return s.timers[a].free.Compare(s.timers[b].free) })
	var claims []state.TimerClaim
	for _, id := range ids[:min(limit, len(ids))] {
		t := s.timers[id]
		s.timerVersion++
		t.free, t.version = now.Add(lease), s.timerVersion
		s.timers[id] = t
		claims = append(claims, state.TimerClaim{TimerID: id, Due: t.due, Version: t.version, Note: t.note})
	}
	return claims, nil
}

// ListTimers implements state.Timers. It looks at all timers.
func (s *Store) ListTimers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]state.Timer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := record.FirstTimers{After: after, Limit: limit}
	for id, t := range s.timers {
		if id.Tenant == tenant && id.Kind == kind {
			first.Add(state.Timer{Name: id.Name, Due: t.due, Note: t.note})
		}
	}
	return first.Found, nil
}

// AckTimer implements state.Timers.
func (s *Store) AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.timers[c.TimerID]; !ok || t.version != c.Version {
		return fmt.Errorf("timer %s %q: %w", c.Kind, c.Name, state.ErrFenced)
	}
	s.setTimer(c.TimerID, next, c.Note)
	return nil
}
