package redisstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// timerShards is the number of parts that the timers of a kind have, each on a slot of its own. A look
// at what is due asks all of them.
const timerShards = 16

// timerKeys has the keys of one part, see timer.lua.
type timerKeys struct{ times, entries, version, names string }

func (k timerKeys) list() []string { return []string{k.times, k.entries, k.version, k.names} }

func (k keys) timers(kind state.TimerKind, shard int) timerKeys {
	name := fmt.Sprintf("%s:{t%02d}:timers:%s", k.prefix, shard, kind)
	return timerKeys{name, name + ":entries", name + ":version", name + ":names"}
}

// timerMember returns the name of a timer in its part, and timerOf the timer.
func timerMember(id state.TimerID) string { return id.Tenant + "\x00" + id.Name }

func timerOf(kind state.TimerKind, member string) state.TimerID {
	tenant, name, _ := strings.Cut(member, "\x00")
	return state.TimerID{Tenant: tenant, Kind: kind, Name: name}
}

func (k keys) timer(id state.TimerID) timerKeys {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(timerMember(id)))
	return k.timers(id.Kind, int(sum.Sum32()%timerShards))
}

// PutTimer implements state.Timers.
func (s *Store) PutTimer(ctx context.Context, id state.TimerID, due time.Time) error {
	return s.setTimer(ctx, id, due, "", "")
}

// AckTimer implements state.Timers.
func (s *Store) AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error {
	return s.setTimer(ctx, c.TimerID, next, strconv.FormatInt(c.Version, 10), c.Note)
}

func (s *Store) setTimer(ctx context.Context, id state.TimerID, due time.Time, version, note string) error {
	at := ""
	if !due.IsZero() {
		at = strconv.FormatInt(due.UnixMilli(), 10)
	}
	r, err := timerScript.batched(ctx, s, s.keys.timer(id).list(), timerMember(id), at, version, note)
	if err != nil {
		return fmt.Errorf("set timer %s %q: %w", id.Kind, id.Name, err)
	}
	if r.str(verdictWord) == "fenced" {
		return fmt.Errorf("timer %s %q: %w", id.Kind, id.Name, state.ErrFenced)
	}
	return nil
}

// Timer implements state.Timers.
func (s *Store) Timer(ctx context.Context, id state.TimerID) (time.Time, error) {
	entry, err := s.rdb.HGet(ctx, s.keys.timer(id).entries, timerMember(id)).Result()
	if errors.Is(err, redis.Nil) {
		err = state.ErrNotFound
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read timer %s %q: %w", id.Kind, id.Name, err)
	}
	t, err := decodeTimer(id.Name, entry)
	return t.Due, err
}

// decodeTimer returns a timer with a name from its entry: its version, due time and note.
func decodeTimer(name, entry string) (state.Timer, error) {
	_, rest, _ := strings.Cut(entry, " ")
	due, note, _ := strings.Cut(rest, " ")
	at, err := dueAt(due)
	return state.Timer{Name: name, Due: at, Note: note}, err
}

func dueAt(text string) (time.Time, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("decode timer: %w", err)
	}
	return time.UnixMilli(ms), nil
}

// ClaimTimers implements state.Timers. If nothing is due it takes one round trip, else one more for each part that it
// claims timers from. Concurrent callers visit the parts in random orders.
func (s *Store) ClaimTimers(ctx context.Context, kind state.TimerKind, limit int, lease time.Duration) ([]state.TimerClaim, error) {
	parts, err := s.dueTimers(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("read due timers of kind %s: %w", kind, err)
	}
	rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	var claims []state.TimerClaim
	for _, k := range parts {
		if len(claims) >= limit {
			break
		}
		r, err := timersScript.batched(ctx, s, k.list(), limit-len(claims), lease.Milliseconds())
		if err != nil {
			return nil, fmt.Errorf("claim timers of kind %s: %w", kind, err)
		}
		claimed, err := r.list(timersClaimed)
		if err != nil {
			return nil, fmt.Errorf("claim timers of kind %s: %w", kind, err)
		}
		for i := 0; i+2 < len(claimed); i += 3 {
			due, err := dueAt(claimed[i+1])
			if err != nil {
				return nil, err
			}
			claims = append(claims, state.TimerClaim{TimerID: timerOf(kind, claimed[i]), Due: due, Version: r.num(timersVersion), Note: claimed[i+2]})
		}
	}
	return claims, nil
}

// dueTimers returns the parts of a kind that have due timers.
func (s *Store) dueTimers(ctx context.Context, kind state.TimerKind) (parts []timerKeys, err error) {
	pipe := s.rdb.Pipeline()
	now := pipe.Time(ctx)
	first := make([]*redis.ZSliceCmd, timerShards)
	for n := range first {
		first[n] = pipe.ZRangeWithScores(ctx, s.keys.timers(kind, n).times, 0, 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	clock := float64(now.Val().UnixMilli())
	for n, c := range first {
		if earliest := c.Val(); len(earliest) > 0 && earliest[0].Score <= clock {
			parts = append(parts, s.keys.timers(kind, n))
		}
	}
	return parts, nil
}

// ListTimers implements state.Timers. It takes two round trips, and reads up to limit names of each part; if timers are
// removed during that, it may take more.
func (s *Store) ListTimers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]state.Timer, error) {
	var found []state.Timer
	for len(found) < limit {
		members, err := s.timerMembers(ctx, tenant, kind, after, limit-len(found))
		if err != nil {
			return nil, fmt.Errorf("read names of timers of kind %s: %w", kind, err)
		}
		timers, err := s.readTimers(ctx, kind, members)
		if err != nil {
			return nil, fmt.Errorf("read timers of kind %s: %w", kind, err)
		}
		more := len(members) == limit-len(found)
		if found = append(found, timers...); !more {
			break
		}
		after = timerOf(kind, members[len(members)-1]).Name // some were removed since their names were read
	}
	return found, nil
}

// timerMembers returns the first members of a tenant behind the name of a timer, of all parts of a kind.
func (s *Store) timerMembers(ctx context.Context, tenant string, kind state.TimerKind, after string, limit int) ([]string, error) {
	pipe := s.rdb.Pipeline()
	within := &redis.ZRangeBy{
		Min: "(" + timerMember(state.TimerID{Tenant: tenant, Name: after}), Max: "(" + tenant + "\x01", Count: int64(limit),
	}
	parts := make([]*redis.StringSliceCmd, timerShards)
	for n := range parts {
		parts[n] = pipe.ZRangeByLex(ctx, s.keys.timers(kind, n).names, within)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var members []string
	for _, part := range parts {
		members = append(members, part.Val()...)
	}
	slices.Sort(members)
	return members[:min(limit, len(members))], nil
}

// readTimers returns the timers of members that exist.
func (s *Store) readTimers(ctx context.Context, kind state.TimerKind, members []string) ([]state.Timer, error) {
	if len(members) == 0 {
		return nil, nil
	}
	pipe := s.rdb.Pipeline()
	entries := make([]*redis.StringCmd, len(members))
	for i, m := range members {
		entries[i] = pipe.HGet(ctx, s.keys.timer(timerOf(kind, m)).entries, m)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	var found []state.Timer
	for i, m := range members {
		entry, err := entries[i].Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t, err := decodeTimer(timerOf(kind, m).Name, entry)
		if err != nil {
			return nil, err
		}
		found = append(found, t)
	}
	return found, nil
}
