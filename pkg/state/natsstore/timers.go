package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A timer has a subject in the stream of runs. Its last message is the timer, and the number of that
// message its version. Each process has an index of all timers in memory.

// timer is the message of a timer. A message without a name says that the timer was removed: it
// expires, and every index drops the timer.
type timer struct {
	Tenant string          `json:"tenant,omitempty"`
	Kind   state.TimerKind `json:"kind,omitempty"`
	Name   string          `json:"name,omitempty"`
	Due    int64           `json:"due"`            // ms
	Free   int64           `json:"free,omitempty"` // the end of the lease (ms); 0 if it is not claimed
	Note   string          `json:"note,omitempty"`
}

// removedTimer is the time that a message about a removed timer stays.
const removedTimer = time.Hour

func (t timer) id() state.TimerID {
	return state.TimerID{Tenant: t.Tenant, Kind: t.Kind, Name: t.Name}
}

// free returns the time from which the timer can be claimed.
func (t timer) free() time.Time { return time.UnixMilli(max(t.Due, t.Free)) }

// timers is the index of timers, by subject.
type timers struct {
	all map[string]timerVersion
	due map[state.TimerKind]*dueHeap[string]
}

type timerVersion struct {
	timer

	seq uint64
}

func newTimers() timers {
	return timers{all: map[string]timerVersion{}, due: map[state.TimerKind]*dueHeap[string]{}}
}

// learn puts a message into the index unless the index has a later one.
func (t timers) learn(subject string, v timerVersion) {
	have, known := t.all[subject]
	if v.seq <= have.seq {
		return
	}
	if v.Name == "" {
		if known {
			t.drop(subject)
		}
		return
	}
	if t.due[v.Kind] == nil {
		h := newDueHeap[string]()
		t.due[v.Kind] = &h
	}
	t.due[v.Kind].set(subject, v.free())
	t.all[subject] = v
}

// drop removes a timer that is in the index.
func (t timers) drop(subject string) {
	t.due[t.all[subject].Kind].set(subject, time.Time{})
	delete(t.all, subject)
}

func (s *Store) timerPrefix() string { return s.cfg.Prefix + ".state.timer." }

func (s *Store) timerSubject(id state.TimerID) string {
	return s.timerPrefix() + string(id.Kind) + "." + record.KeyName(id.Tenant, id.Name)
}

// noteTimer applies a message of the feed to the index of timers.
func (s *Store) noteTimer(subject string, data []byte, seq uint64) {
	v := timerVersion{seq: seq}
	if err := json.Unmarshal(data, &v.timer); err != nil {
		s.cfg.Logger.Error("a stored timer cannot be decoded, it is ignored", "error", err, "subject", subject, "hint", "check that only Turnpike writes to this stream; to undo the damage, restore all streams of Turnpike from one backup")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timers.learn(subject, v)
}

// putTimer stores a timer. With a version it does so only if that is the timer's.
func (s *Store) putTimer(ctx context.Context, subject string, t timer, version uint64) (uint64, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return 0, err
	}
	var opts []jetstream.PublishOpt
	if version > 0 {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(version))
	}
	if t.Name == "" {
		opts = append(opts, jetstream.WithMsgTTL(removedTimer))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ack, err := s.js.Publish(ctx, subject, data, opts...)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.timers.learn(subject, timerVersion{t, ack.Sequence})
	s.newest = max(s.newest, ack.Sequence)
	s.mu.Unlock()
	return ack.Sequence, nil
}

// setTimer is PutTimer, or AckTimer with the version and the note of a claim. The error wraps
// state.ErrFenced if another call has changed the timer since that claim. setTimer deletes
// earlier messages of a timer that the index has or that was claimed, because the stream keeps
// them otherwise. It leaves those of another process that the index lacks to the next call.
func (s *Store) setTimer(ctx context.Context, id state.TimerID, due time.Time, version uint64, note string) error {
	subject, t := s.timerSubject(id), timer{}
	if !due.IsZero() {
		t = timer{Tenant: id.Tenant, Kind: id.Kind, Name: id.Name, Due: due.UnixMilli(), Note: note}
	}
	s.mu.Lock()
	_, known := s.timers.all[subject]
	s.mu.Unlock()
	seq, err := s.putTimer(ctx, subject, t, version)
	if conflict(err) {
		return fmt.Errorf("timer %s %q: %w", id.Kind, id.Name, state.ErrFenced)
	}
	if err == nil && (known || version > 0) {
		err = s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(seq))
	}
	if err != nil {
		return fmt.Errorf("set timer %s %q: %w", id.Kind, id.Name, err)
	}
	return nil
}

// PutTimer implements state.Timers.
func (s *Store) PutTimer(ctx context.Context, id state.TimerID, due time.Time) error {
	return s.setTimer(ctx, id, due, 0, "")
}

// AckTimer implements state.Timers.
func (s *Store) AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error {
	return s.setTimer(ctx, c.TimerID, next, uint64(c.Version), c.Note) //nolint:gosec // the number of a message
}

// readTimer returns a timer from the stream's leader, and whether it exists.
func (s *Store) readTimer(ctx context.Context, subject string) (v timerVersion, exists bool, err error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return v, false, nil
	}
	if err == nil {
		v.seq, err = m.Sequence, json.Unmarshal(m.Data, &v.timer)
	}
	return v, v.Name != "", err
}

// Timer implements state.Timers.
func (s *Store) Timer(ctx context.Context, id state.TimerID) (time.Time, error) {
	v, exists, err := s.readTimer(ctx, s.timerSubject(id))
	if err == nil && !exists {
		err = state.ErrNotFound
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read timer %s %q: %w", id.Kind, id.Name, err)
	}
	return time.UnixMilli(v.Due), nil
}

// ListTimers implements state.Timers. It looks at all timers of the index.
func (s *Store) ListTimers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]state.Timer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := record.FirstTimers{After: after, Limit: limit}
	for _, v := range s.timers.all {
		if v.Tenant == tenant && v.Kind == kind {
			first.Add(state.Timer{Name: v.Name, Due: time.UnixMilli(v.Due), Note: v.Note})
		}
	}
	return first.Found, nil
}

// ClaimTimers implements state.Timers. It finds due timers in the index, and claims several at once.
func (s *Store) ClaimTimers(ctx context.Context, kind state.TimerKind, limit int, lease time.Duration) ([]state.TimerClaim, error) {
	var mu sync.Mutex
	var claims []state.TimerClaim
	tried := map[string]bool{}
	for len(claims) < limit {
		subjects := s.dueTimers(kind, limit-len(claims), tried)
		if len(subjects) == 0 {
			break
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(readsAtOnce)
		for _, subject := range subjects {
			tried[subject] = true
			group.Go(func() error {
				c, ok, err := s.claimTimer(ctx, subject, lease)
				if err == nil && ok {
					mu.Lock()
					defer mu.Unlock()
					claims = append(claims, c)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, fmt.Errorf("claim timers of kind %s: %w", kind, err)
		}
	}
	return claims, nil
}

// dueTimers returns up to n due timers, chosen from more than that, so that concurrent processes
// seldom choose the same ones.
func (s *Store) dueTimers(kind state.TimerKind, n int, without map[string]bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.timers.due[kind]
	if h == nil {
		return nil
	}
	due, _ := h.until(s.clock.now(), spread*n, without)
	rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	return due[:min(n, len(due))]
}

// claimTimer claims a timer that the index says is due. If the index has an older version, it reads
// the timer from the stream, and claims that if it is due.
func (s *Store) claimTimer(ctx context.Context, subject string, lease time.Duration) (c state.TimerClaim, ok bool, err error) {
	s.mu.Lock()
	v, known := s.timers.all[subject]
	s.mu.Unlock()
	for range maxConflicts {
		now := s.clock.now()
		if !known || now.Before(v.free()) {
			return c, false, nil
		}
		t := v.timer
		t.Free = now.Add(lease).UnixMilli()
		seq, err := s.putTimer(ctx, subject, t, v.seq)
		if err == nil {
			return state.TimerClaim{TimerID: t.id(), Due: time.UnixMilli(t.Due), Version: int64(seq), Note: t.Note}, true, nil //nolint:gosec // the number of a message
		}
		if !conflict(err) {
			return c, false, err
		}
		if v, known, err = s.readTimer(ctx, subject); err != nil {
			return c, false, err
		}
		s.mu.Lock()
		if _, indexed := s.timers.all[subject]; known {
			s.timers.learn(subject, v)
		} else if indexed {
			s.timers.drop(subject)
		}
		s.mu.Unlock()
	}
	return c, false, nil
}
