package chaos

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// awaitDeletions waits until the retention of all short-lived runs has expired.
func (u *users) awaitDeletions(ctx context.Context) {
	last := time.Time{}
	for _, s := range u.runs {
		if s.Kind == "kept" && s.Ended.After(last) {
			last = s.Ended
		}
	}
	rig.Pause(ctx, time.Until(last.Add(keptFor+keptFor/4)))
}

// aRun matches the id of a run.
var aRun = regexp.MustCompile(`run_[0-9A-Z]{26}`)

// remnants returns the store's data about deleted runs except their markers, by run.
func remnants(ctx context.Context, s *deployment, runs []Witness) (map[string][]string, error) {
	gone := map[string]bool{}
	for _, w := range runs {
		if !w.Found && w.ID != "" {
			gone[w.ID] = true
			for _, below := range w.Below {
				gone[below] = true
			}
		}
	}
	found := map[string][]string{}
	note := func(id, what string) {
		if gone[id] && !slices.Contains(found[id], what) {
			found[id] = append(found[id], what)
		}
	}
	if len(s.redis) == 0 {
		return found, inJetStream(ctx, s.js, note)
	}
	if s.kind != nil {
		return found, nil // its servers have passwords, and each has part of the keys
	}
	return found, inRedis(ctx, s.redis[0].Client, note)
}

// inRedis collects every key, member of an index and idempotency key that names a run, except markers.
func inRedis(ctx context.Context, rdb *redis.Client, note func(id, what string)) error {
	keys := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		kind, err := rdb.Type(ctx, key).Result()
		if err != nil {
			return fmt.Errorf("read key %s: %w", key, err)
		}
		if id := aRun.FindString(key); id != "" {
			marker := false
			if kind == "hash" {
				if marker, err = rdb.HExists(ctx, key, "gone").Result(); err != nil {
					return fmt.Errorf("read key %s: %w", key, err)
				}
			}
			if !marker && !strings.Contains(key, ":batch:") {
				note(id, "the key "+key)
			}
			continue
		}
		switch {
		case kind == "zset":
			members, err := rdb.ZRange(ctx, key, 0, -1).Result()
			if err != nil {
				return fmt.Errorf("read key %s: %w", key, err)
			}
			for _, member := range members { // the run is the last part
				ids := aRun.FindAllString(member, -1)
				if len(ids) > 0 && strings.HasSuffix(member, ids[len(ids)-1]) {
					note(ids[len(ids)-1], fmt.Sprintf("an entry %q in %s", member, key))
				}
			}
		case kind == "string" && strings.Contains(key, ":idem:"):
			value, err := rdb.Get(ctx, key).Bytes()
			if err != nil {
				return fmt.Errorf("read key %s: %w", key, err)
			}
			owner, _, _ := strings.Cut(string(value), " ")
			note(owner, "an idempotency key")
		}
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	return nil
}

// inJetStream collects every subject of the store that names a run, except one message that marks a deletion.
func inJetStream(ctx context.Context, js jetstream.JetStream, note func(id, what string)) error {
	name, err := js.StreamNameBySubject(ctx, prefix+".state.>")
	if err != nil {
		return fmt.Errorf("find the stream of the store: %w", err)
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("open stream %s: %w", name, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return fmt.Errorf("list subjects of %s: %w", name, err)
	}
	for subject, n := range info.State.Subjects {
		id := aRun.FindString(subject)
		if id == "" || strings.Contains(subject, ".batch.") || n == 1 && strings.Contains(subject, ".run.") {
			continue
		}
		note(id, fmt.Sprintf("%d messages on %s", n, subject))
	}
	return nil
}
