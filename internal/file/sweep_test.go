package file_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// createEnded creates a run that has ended, so that it can be deleted.
func (f *fixture) createEnded(t *testing.T, id state.RunID) error {
	t.Helper()
	at := state.At(time.Now())
	run, err := state.State{ID: id, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}.Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{state.UserText("x")}})
	if err == nil {
		run, err = run.Move(state.EndAbortedQueued, state.Entry{At: at})
	}
	if err != nil {
		return err
	}
	_, err = f.store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Minute})
	return err
}

// The day for which a file without users is kept begins when a sweep has last found one, not with the upload. So it is
// whatever uses the file.
func TestSweepCountsFromTheLastUse(t *testing.T) {
	t.Parallel()
	first := newRunID()
	for name, c := range map[string]struct {
		user  file.User
		begin func(*fixture, string) error
		end   func(*fixture) error
	}{
		"run": {file.User{Run: first}, func(f *fixture, _ string) error {
			return f.createEnded(t, first)
		}, func(f *fixture) error { return f.store.Delete(t.Context(), first) }},
		"batch": {file.User{Run: first, Runs: 2}, func(f *fixture, _ string) error {
			return f.createEnded(t, first.Plus(1))
		}, func(f *fixture) error { return f.store.Delete(t.Context(), first.Plus(1)) }},
		"schedule": {file.User{Schedule: "daily"}, func(f *fixture, id string) error {
			return f.store.PutDocument(t.Context(), state.SchedulesOf("acme"), "daily", fmt.Appendf(nil, `{"run":{"input":%q}}`, id))
		}, func(f *fixture) error { return f.store.DeleteDocument(t.Context(), state.SchedulesOf("acme"), "daily") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inMemory()
			made := f.put(t, "x")
			if err := errors.Join(f.Bind(t.Context(), "acme", c.user, made.ID), c.begin(f, made.ID)); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				f.store.wait(file.Keep)
				f.sweep(t, 0)
			}
			if err := c.end(f); err != nil {
				t.Fatal(err)
			}
			f.store.wait(file.Keep - time.Minute)
			f.sweep(t, 0)
			if _, err := f.Get(t.Context(), "acme", made.ID); err != nil {
				t.Errorf("a file whose last use was less than a day ago: %v", err)
			}
			f.store.wait(2 * time.Minute)
			f.sweep(t, 1)
			if _, err := f.Get(t.Context(), "acme", made.ID); !errors.Is(err, file.ErrNotFound) {
				t.Errorf("a file whose last use was more than a day ago: %v", err)
			}
		})
	}
}

// A sweep does not read the references of a file again within an hour after it was found in use.
func TestSweepReadsReferencesHourly(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made, run := f.put(t, "x"), newRunID()
	if err := f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID); err != nil {
		t.Fatal(err)
	}
	f.create(t, run)
	reads := 0
	f.store.before = func(call string, kind state.DocumentKind) {
		if call == "names" && kind == state.FileUsersOf(made.ID) {
			reads++
		}
	}
	for i, want := range []int{0, 0, 1, 0, 1} {
		for range 3 {
			f.sweep(t, 0)
		}
		if reads != want {
			t.Errorf("after %d minutes: the references were read %d times, want %d", i*59, reads, want)
		}
		reads = 0
		f.store.wait(59 * time.Minute)
	}
}

// A sweep that is about to delete a file meets other requests: a new reference keeps the file, and the deletion by a
// request is not the sweep's. Neither is an error.
func TestSweepMeetsRequests(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} { // else used
		f := inMemory()
		made, run := f.put(t, "x"), newRunID()
		f.store.wait(file.Keep)
		met := errors.New("the sweep wrote nothing")
		f.store.before = func(call string, kind state.DocumentKind) {
			if call != "replace" || kind != state.FilesOf("acme") {
				return
			}
			f.store.before = nil
			if deleted {
				met = f.Delete(t.Context(), "acme", made.ID)
				return
			}
			met = f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID)
			f.create(t, run)
		}
		f.sweep(t, 0)
		if met != nil {
			t.Fatal(met)
		}
		if _, err := f.Get(t.Context(), "acme", made.ID); (err != nil) != deleted {
			t.Errorf("after the sweep, deleted by a request %t: %v", deleted, err)
		}
	}
}

// A sweep leaves a deletion to the process that has begun it a moment ago, and does not wait for it.
func TestSweepLeavesRecentDeletions(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made := f.put(t, "x")
	f.store.wait(file.Keep)
	swept := false
	f.store.before = func(call string, kind state.DocumentKind) {
		if call != "names" || kind != state.FileUsersOf(made.ID) || swept {
			return
		}
		swept = true // the deletion has its mark, and is not decided
		f.sweep(t, 0)
	}
	if err := f.Delete(t.Context(), "acme", made.ID); err != nil || !swept {
		t.Errorf("Delete: %v, interrupted by a sweep: %t", err, swept)
	}
}

// A file that a sweep cannot handle does not keep it from the others, and each such file is reported.
func TestSweepPassesOverErrors(t *testing.T) {
	t.Parallel()
	f := inMemory()
	var bad []string
	for range 3 {
		f.put(t, "good")
		made := f.put(t, "bad")
		if err := f.store.PutDocument(t.Context(), state.FileUsersOf(made.ID), "daily", []byte(`[]`)); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, made.ID)
	}
	damaged := f.put(t, "damaged")
	if err := f.store.PutDocument(t.Context(), state.FilesOf("acme"), damaged.ID, []byte(`[]`)); err != nil {
		t.Fatal(err)
	}
	f.store.wait(file.Keep)
	n, err := f.Sweep(t.Context(), "acme")
	if n != 3 || err == nil {
		t.Fatalf("Sweep: %d, %v, want 3 and errors", n, err)
	}
	for _, id := range append(bad, damaged.ID) {
		if strings.Count(err.Error(), "file "+id) == 0 {
			t.Errorf("the error does not name file %s: %v", id, err)
		}
		if objects, err := f.bus.ObjectNames(t.Context(), "acme"); err != nil || len(objects) != 4 {
			t.Errorf("%d objects are left, %v, want 4", len(objects), err)
		}
	}
}

// A sweep whose context ends begins with no other file.
func TestSweepEnds(t *testing.T) {
	t.Parallel()
	f := inMemory()
	for range 5 {
		f.put(t, "x")
	}
	f.store.wait(file.Keep)
	ctx, cancel := context.WithCancel(t.Context())
	read := 0
	f.store.before = func(call string, _ state.DocumentKind) {
		if call == "names" {
			read++
			cancel()
		}
	}
	if n, err := f.Sweep(ctx, "acme"); n != 0 || read != 1 {
		t.Errorf("Sweep: %d, %v after it has read the references of %d files, want 1", n, err, read)
	}
}
