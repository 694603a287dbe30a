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

// A file whose deletion is decided does not exist any more, although the deletion has failed before it had removed
// everything. A repetition completes it.
func TestDecidedDeletion(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made := f.put(t, "x")
	ctx, fail := context.WithCancel(t.Context())
	reads := 0
	f.store.before = func(call string, kind state.DocumentKind) {
		if call == "names" && kind == state.FileUsersOf(made.ID) {
			if reads++; reads == 2 { // the first read decides
				fail()
			}
		}
	}
	if err := f.Delete(ctx, "acme", made.ID); !errors.Is(err, context.Canceled) {
		t.Fatalf("Delete: %v", err)
	}
	if _, err := f.store.Document(t.Context(), state.FilesOf("acme"), made.ID); err != nil {
		t.Fatalf("the document of the file: %v", err)
	}
	if _, err := f.Get(t.Context(), "acme", made.ID); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	if err := f.Bind(t.Context(), "acme", file.User{Run: newRunID()}, made.ID); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("Bind: %v", err)
	}
	if names, err := f.store.DocumentNames(t.Context(), state.FileUsersOf(made.ID)); err != nil || len(names) > 0 {
		t.Errorf("references after Bind: %v, %v", names, err)
	}
	if err := f.Delete(t.Context(), "acme", made.ID); err != nil {
		t.Errorf("Delete again: %v", err)
	}
	if _, err := f.store.Document(t.Context(), state.FilesOf("acme"), made.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the document of the file after the second deletion: %v", err)
	}
}

// A run that a newer build has written keeps its files, by itself and in a batch.
func TestUserOfANewerBuild(t *testing.T) {
	t.Parallel()
	f := inMemory()
	for want, user := range map[string]file.User{"a run": {Run: newRunID()}, "a batch": {Run: newRunID(), Runs: 2}} {
		made := f.put(t, "x")
		if err := f.Bind(t.Context(), "acme", user, made.ID); err != nil {
			t.Fatal(err)
		}
		run, err := state.State{ID: user.Run, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}.
			Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("x")}})
		if err == nil {
			run.Format = state.Format + 1
			_, err = f.store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Minute})
		}
		if err != nil {
			t.Fatal(err)
		}
		f.store.wait(2 * file.BindDelay)
		used, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID))
		if !ok || !used.Until.IsZero() {
			t.Errorf("Delete of a file of %s: %v", want, used)
		}
	}
}

// The reference of a run that was deleted does not keep a file, however recent it is.
func TestUserThatWasDeleted(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made, run := f.put(t, "x"), newRunID()
	if err := f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.store.PreventCreation(t.Context(), "acme", run); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), "acme", made.ID); err != nil {
		t.Errorf("Delete: %v", err)
	}
}

// A batch whose last run was deleted keeps its files while an earlier run of it may be about to be created.
func TestBatchThatWasDeletedInPart(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made, first := f.put(t, "x"), newRunID()
	if err := f.Bind(t.Context(), "acme", file.User{Run: first, Runs: 2}, made.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.store.PreventCreation(t.Context(), "acme", first.Plus(1)); err != nil {
		t.Fatal(err)
	}
	if used, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID)); !ok || used.Until.IsZero() {
		t.Errorf("Delete while the first run may be created: %v", used)
	}
	if err := f.store.PreventCreation(t.Context(), "acme", first); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), "acme", made.ID); err != nil {
		t.Errorf("Delete after both were deleted: %v", err)
	}
}

// A refused deletion counts as a use: the file is kept for a day after it, like after any other.
func TestRefusedDeletionIsAUse(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made := f.put(t, "x")
	if err := f.Bind(t.Context(), "acme", file.User{Schedule: "daily"}, made.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.store.PutDocument(t.Context(), state.SchedulesOf("acme"), "daily", fmt.Appendf(nil, `{"run":{"input":%q}}`, made.ID)); err != nil {
		t.Fatal(err)
	}
	f.store.wait(file.Keep + time.Hour)
	if used, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID)); !ok || used.By != "schedule daily" {
		t.Errorf("Delete: %v", used)
	}
	if err := f.store.DeleteDocument(t.Context(), state.SchedulesOf("acme"), "daily"); err != nil {
		t.Fatal(err)
	}
	f.store.wait(2 * time.Hour)
	f.sweep(t, 0)
	f.store.wait(file.Keep)
	f.sweep(t, 1)
}

// A tenant that is dropped leaves no object, not even one of an upload that was not completed.
func TestDropTenantWithAnUpload(t *testing.T) {
	t.Parallel()
	f := inMemory()
	f.put(t, "x")
	now, err := f.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "other"} {
		if _, err := f.bus.PutObject(t.Context(), tenant, file.NewID(now), strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.DropTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int{"acme": 0, "other": 1} {
		if names, err := f.bus.ObjectNames(t.Context(), tenant); err != nil || len(names) != want {
			t.Errorf("objects of %s: %v, %v, want %d", tenant, names, err, want)
		}
	}
}

// A deletion leaves no reference, neither one that is recorded while the file is deleted, nor those of a tenant that is
// dropped.
func TestDeletionLeavesNoReference(t *testing.T) {
	t.Parallel()
	f := inMemory()
	dropped, deleted := f.put(t, "x"), f.put(t, "y")
	changes := 0
	f.store.before = func(call string, kind state.DocumentKind) {
		if call != "replace" || kind != state.FilesOf("acme") {
			return
		}
		if changes++; changes == 2 { // the first marks the file, and the second decides
			if err := f.store.Store.PutDocument(t.Context(), state.FileUsersOf(deleted.ID), string(newRunID()), []byte(`{"at":null}`)); err != nil {
				t.Error(err)
			}
		}
	}
	if err := f.Delete(t.Context(), "acme", deleted.ID); err != nil || changes != 2 {
		t.Fatalf("Delete: %v after %d changes", err, changes)
	}
	if err := f.Bind(t.Context(), "acme", file.User{Run: newRunID()}, dropped.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.DropTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for _, made := range []file.File{dropped, deleted} {
		if names, err := f.store.DocumentNames(t.Context(), state.FileUsersOf(made.ID)); err != nil || len(names) > 0 {
			t.Errorf("references that are left: %v, %v", names, err)
		}
	}
}
