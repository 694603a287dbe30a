package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// keyed is a store and its data under one idempotency key.
type keyed struct {
	t     *testing.T
	store *redisstore.Store
	rdb   *redis.Client
	all   string // pattern of the names of idempotency keys
}

func newKeyed(t *testing.T) *keyed {
	t.Helper()
	url, prefix := testbed.Redis(t), "test-"+ulid.Make().String()
	return &keyed{t, openAt(t, url, prefix), raw(t, url), prefix + ":idem:*"}
}

func (k *keyed) submit() state.Created {
	k.t.Helper()
	made, err := k.store.Create(k.t.Context(), state.NewRun{State: newRun(k.t), Key: "report", Fingerprint: "f", RedeliveryDelay: time.Hour})
	if err != nil {
		k.t.Fatal(err)
	}
	return made
}

func (k *keyed) finish(run state.State) {
	k.t.Helper()
	c := claimed(k.t, k.store, state.State{ID: run.ID, Version: 1}, "t")
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.store.Commit(k.t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen()}); err != nil {
		k.t.Fatal(err)
	}
}

// key returns the server's name of the only idempotency key.
func (k *keyed) key() string {
	k.t.Helper()
	keys, err := k.rdb.Keys(k.t.Context(), k.all).Result()
	if err != nil || len(keys) != 1 {
		k.t.Fatal(keys, err)
	}
	return keys[0]
}

// If a key has expired and a newer run owns it, the deletion of the older run keeps it (I1).
func TestDeletionLeavesTheKeyOfANewerRun(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	old := k.submit()
	k.finish(old.State)
	if err := k.rdb.Del(t.Context(), k.key()).Err(); err != nil { // it has expired
		t.Fatal(err)
	}
	owner := k.submit()
	if err := k.store.Delete(t.Context(), old.State.ID); err != nil {
		t.Fatal(err)
	}
	if again := k.submit(); again.State.ID != owner.State.ID || !again.Existing {
		t.Errorf("one key, two runs: %s and %s", owner.State.ID, again.State.ID)
	}
}

// A deletion that was interrupted after it removed the key is completed by the next one, and a new run that has
// taken the key keeps it.
func TestDeletionCutOffBehindTheKey(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	old := k.submit()
	k.finish(old.State)
	if _, err := k.store.Seal(t.Context(), old.State.ID, "token"); err != nil {
		t.Fatal(err)
	}
	if err := k.rdb.Del(t.Context(), k.key()).Err(); err != nil { // as the deletion does before it is interrupted
		t.Fatal(err)
	}
	owner := k.submit()
	if err := k.store.Delete(t.Context(), old.State.ID); err != nil {
		t.Fatal(err)
	}
	if again := k.submit(); again.State.ID != owner.State.ID {
		t.Errorf("one key, two runs: %s and %s", owner.State.ID, again.State.ID)
	}
}

// A key that names a deleted run, as a failover to an older replica may leave it, is free.
func TestKeyOfADeletedRunIsFree(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	old := k.submit()
	k.finish(old.State)
	name := k.key()
	value, err := k.rdb.Get(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.store.Delete(t.Context(), old.State.ID); err != nil {
		t.Fatal(err)
	}
	if err := k.rdb.Set(t.Context(), name, value, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	made := k.submit()
	if made.Existing || made.State.ID == old.State.ID {
		t.Fatalf("the key returns run %s, want a new run", made.State.ID)
	}
	if again := k.submit(); again.State.ID != made.State.ID {
		t.Errorf("the key returns run %s, want %s", again.State.ID, made.State.ID)
	}
}

// A submission whose key names a deleted run at each attempt, because others take it and their runs are deleted, can be
// repeated: its error is not that of a missing run.
func TestKeyOfDeletedRunsAgainAndAgain(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	old := k.submit()
	k.finish(old.State)
	name := k.key()
	value, err := k.rdb.Get(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.store.Delete(t.Context(), old.State.ID); err != nil {
		t.Fatal(err)
	}
	takeAgain := func() { _ = k.rdb.Set(context.WithoutCancel(t.Context()), name, value, time.Hour).Err() }
	takeAgain()
	k.store.AfterEach(takeAgain)
	made, err := k.store.Create(t.Context(), state.NewRun{State: newRun(t), Key: "report", Fingerprint: "f", RedeliveryDelay: time.Hour})
	if err == nil || errors.Is(err, state.ErrNotFound) || !strings.Contains(err.Error(), "retry with the same key") {
		t.Errorf("Create = run %q, %v; want an error that says to retry and is not ErrNotFound", made.State.ID, err)
	}
}

// After a deletion the only key that names the run is a marker with an expiry.
func TestDeletionLeavesAMarkerOnly(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	run := k.submit().State
	message := state.UserText("more")
	if _, err := k.store.Signal(t.Context(), run.ID, state.Signal{ID: "m1", Fingerprint: "f", Message: &message}, time.Hour); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, k.store, state.State{ID: run.ID, Version: 1}, "t")
	if _, err := k.store.Admit(t.Context(), run.ID, []state.RunID{newRun(t).ID}, 9); err != nil {
		t.Fatal(err)
	}
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen(), Consumed: len(c.Signals)}); err != nil {
		t.Fatal(err)
	}
	if err := k.store.Delete(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	names, err := k.rdb.Keys(t.Context(), "*"+string(run.ID)+"*").Result()
	if err != nil || len(names) != 1 {
		t.Fatalf("%v have the id of the deleted run, %v; want its marker", names, err)
	}
	fields, err := k.rdb.HGetAll(t.Context(), names[0]).Result()
	if err != nil || len(fields) != 2 || fields["gone"] != "1" {
		t.Errorf("the marker is %v, %v", fields, err)
	}
	if left, err := k.rdb.PTTL(t.Context(), names[0]).Result(); err != nil || left <= 0 || left > state.MarkerLifetime {
		t.Errorf("the marker expires in %v, %v", left, err)
	}
	if _, err := k.store.Load(t.Context(), run.ID); !errors.Is(err, state.ErrDeleted) {
		t.Errorf("Load = %v", err)
	}
}
