package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// mentions returns the keys whose names or values contain text.
func mentions(t *testing.T, r *redis.Client, prefix, text string) []string {
	t.Helper()
	keys, err := r.Keys(t.Context(), "*"+prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, key := range keys {
		values, err := contents(t, r, key)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(key+"\n"+strings.Join(values, "\n"), text) {
			found = append(found, key)
		}
	}
	return found
}

// contents returns everything that a key holds.
func contents(t *testing.T, r *redis.Client, key string) ([]string, error) {
	t.Helper()
	kind, err := r.Type(t.Context(), key).Result()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "string":
		s, err := r.Get(t.Context(), key).Result()
		return []string{s}, err
	case "hash":
		fields, err := r.HGetAll(t.Context(), key).Result()
		var all []string
		for k, v := range fields {
			all = append(all, k, v)
		}
		return all, err
	case "list":
		return r.LRange(t.Context(), key, 0, -1).Result()
	case "set":
		return r.SMembers(t.Context(), key).Result()
	case "zset":
		return r.ZRange(t.Context(), key, 0, -1).Result()
	default:
		t.Fatalf("key %s is a %s", key, kind)
		return nil, nil
	}
}

// A deleted run leaves nothing in Redis but its marker: no other key, and no mention in an index.
func TestDeletionLeavesNothing(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	s, r := openAt(t, url, prefix), raw(t, url)
	run := newRun(t)
	run.Tenant, run.Agent, run.Metadata = "acme", "doomed", map[string]string{"order": "secret"}
	if _, err := s.Create(t.Context(), state.NewRun{State: run, Key: "order-7", Fingerprint: "f", Indexed: []string{"order"}, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(t.Context(), run.ID, []state.RunID{newRun(t).ID}, 9); err != nil {
		t.Fatal(err)
	}
	said := state.UserText("secret words")
	if _, err := s.Signal(t.Context(), run.ID, state.Signal{ID: "remark", Message: &said, Fingerprint: "g"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, s, state.State{ID: run.ID, Version: 1}, "t")
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen(), Consumed: len(c.Signals)}); err != nil {
		t.Fatal(err)
	}
	if found := mentions(t, r, prefix, string(run.ID)); len(found) < 4 {
		t.Fatalf("before the deletion only %q mention the run", found)
	}
	if err := s.Delete(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if found := mentions(t, r, prefix, string(run.ID)); len(found) != 1 || !strings.HasSuffix(found[0], ":run:"+string(run.ID)) {
		t.Errorf("after the deletion %q mention the run, want its marker", found)
	}
	if found := mentions(t, r, prefix, "acme"); len(found) != 1 {
		t.Errorf("after the deletion %q mention the tenant, want the marker: the count of its active runs is 0", found)
	}
	for _, text := range []string{"secret", "order-7", "remark"} {
		if found := mentions(t, r, prefix, text); len(found) > 0 {
			t.Errorf("after the deletion %q is in %q", text, found)
		}
	}
}

// If a run exists, PreventCreation leaves all its keys, without an expiry.
func TestPreventedRunStays(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	s, r := openAt(t, url, prefix), raw(t, url)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := s.PreventCreation(t.Context(), run.Tenant, run.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), run.ID); err != nil {
		t.Errorf("Load = %v", err)
	}
	for _, key := range mentions(t, r, prefix, string(run.ID)) {
		if left, err := r.PTTL(t.Context(), key).Result(); err != nil || left >= 0 {
			t.Errorf("%s expires in %v, %v", key, left, err)
		}
	}
}

// The record of a batch stays while a run of the batch is left, and expires after the last one.
func TestRecordOfADeletedBatch(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	s, r := openAt(t, url, prefix), raw(t, url)
	first := newRun(t)
	for i := range 2 {
		run := first
		run.ID, run.Batch = first.ID.Plus(i), &state.Batch{Index: i, Size: 2, MaxParallel: 2}
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		c := claimed(t, s, state.State{ID: run.ID, Version: 1}, "t")
		next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen()}); err != nil {
			t.Fatal(err)
		}
	}
	for i, expires := range []bool{false, true} {
		if err := s.Delete(t.Context(), first.ID.Plus(i)); err != nil {
			t.Fatal(err)
		}
		records, err := r.Keys(t.Context(), prefix+":batch:*").Result()
		if err != nil || len(records) != 1 {
			t.Fatalf("records of the batch: %q, %v; want one", records, err)
		}
		left, err := r.PTTL(t.Context(), records[0]).Result()
		if err != nil || left > state.DeletedBatchLifetime || (left > 0) != expires {
			t.Errorf("after %d deletions the record expires in %v, %v; want an expiry: %t", i+1, left, err, expires)
		}
	}
}

// The sums of an hour expire, and what a fold remembers of it.
func TestFiguresExpire(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	s, r := openAt(t, url, prefix), raw(t, url)
	run := newRun(t)
	run.Tenant = "acme"
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, s, state.State{ID: run.ID, Version: 1}, "t")
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	figures := []state.FigureSeries{{SeriesKey: state.SeriesKey{Agent: "a", Model: "m"}, Figures: state.Figures{state.CounterRuns: 1}}}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen(), Figures: figures}); err != nil {
		t.Fatal(err)
	}
	if hours, err := s.Figures(t.Context(), "acme", time.Now().Add(-time.Hour), time.Now()); err != nil || len(hours) != 1 {
		t.Fatalf("Figures = %v, %v", hours, err)
	}
	keys, err := r.Keys(t.Context(), prefix+":hour:*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("keys of the hour: %q, %v; want the sums and the positions", keys, err)
	}
	for _, key := range keys {
		if left, err := r.PTTL(t.Context(), key).Result(); err != nil || left <= 0 || left > state.FiguresLifetime {
			t.Errorf("%s expires in %v, %v", key, left, err)
		}
	}
}

// A run of a batch cannot continue once the record of the batch says that it is deleted.
func TestMessageToADeletedRunOfABatch(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	s, elsewhere, r := openAt(t, url, prefix), openAt(t, url, prefix), raw(t, url)
	run := newRun(t)
	run.Batch = &state.Batch{Index: 0, Size: 1, MaxParallel: 1}
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, s, state.State{ID: run.ID, Version: 1}, "t")
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	said := state.UserText("more")
	sent := 0
	s.AfterEach(func() {
		if n, err := r.Exists(t.Context(), prefix+":batch:"+string(run.ID)).Result(); err != nil || n == 0 || sent > 0 {
			return
		}
		sent++
		if _, err := elsewhere.Signal(t.Context(), run.ID, state.Signal{ID: "m", Message: &said}, time.Hour); !errors.Is(err, state.ErrDeleting) {
			t.Errorf("a message after the record: %v, want %v", err, state.ErrDeleting)
		}
	})
	if err := s.Delete(t.Context(), run.ID); err != nil || sent != 1 {
		t.Errorf("Delete = %v after %d messages", err, sent)
	}
}
