package file_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// later is a store whose clock a test moves.
type later struct {
	state.Store

	mu sync.Mutex
	by time.Duration

	before func(call string, kind state.DocumentKind) // called before a call reaches the store
}

func (l *later) meet(call string, kind state.DocumentKind) {
	if l.before != nil {
		l.before(call, kind)
	}
}

func (l *later) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	l.meet("put", kind)
	return l.Store.PutDocument(ctx, kind, name, data)
}

func (l *later) DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error) {
	l.meet("names", kind)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.Store.DocumentNames(ctx, kind)
}

func (l *later) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	l.meet("replace", kind)
	return l.Store.ReplaceDocument(ctx, kind, name, was, data)
}

func (l *later) Now(ctx context.Context) (time.Time, error) {
	now, err := l.Store.Now(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Add(l.by), err
}

func (l *later) wait(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by += d
}

type fixture struct {
	*file.Files

	store *later
	bus   bus.Bus
}

func newFixture(store state.Store, b bus.Bus) *fixture {
	l := &later{Store: store}
	return &fixture{file.New(l, b), l, b}
}

func inMemory() *fixture { return newFixture(memstore.New(memstore.Config{}), membus.New()) }

func (f *fixture) put(t *testing.T, content string) file.File {
	t.Helper()
	made, err := f.Put(t.Context(), "acme", file.File{Name: "a <b> & c.txt", MediaType: "text/plain", By: "ann"}, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (f *fixture) create(t *testing.T, id state.RunID) {
	t.Helper()
	run, err := state.State{ID: id, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("x")}})
	if err == nil {
		_, err = f.store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Minute})
	}
	if err != nil {
		t.Error(err)
	}
}

func newRunID() state.RunID { return state.RunID(state.RunPrefix + ulid.Make().String()) }

func (f *fixture) sweep(t *testing.T, want int) {
	t.Helper()
	if n, err := f.Sweep(t.Context(), "acme"); err != nil || n != want {
		t.Errorf("Sweep: %d, %v, want %d", n, err, want)
	}
}

// On each pair of real servers a file can be stored, described, read, referenced, and deleted.
func TestFiles(t *testing.T) {
	t.Parallel()
	prefix := "t-" + strings.ToLower(ulid.Make().String())
	redis, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	nc := testbed.NATS(t)
	nats, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nats.Close() })
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for name, f := range map[string]*fixture{"memory": inMemory(), "Redis": newFixture(redis, b), "NATS": newFixture(nats, b)} {
		t.Run(name, func(t *testing.T) { testFiles(t, f) })
	}
}

func testFiles(t *testing.T, f *fixture) {
	made := f.put(t, "hello")
	if made.Bytes != 5 || made.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf("Put: %+v", made)
	}
	if got, err := f.Get(t.Context(), "acme", made.ID); err != nil || got != made {
		t.Errorf("Get: %+v, %v, want %+v", got, err, made)
	}
	r, err := f.Open(t.Context(), "acme", made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(r); err != nil || string(content) != "hello" {
		t.Errorf("content %q, %v", content, err)
	}
	for _, id := range []string{made.ID, "file_", "", "x", "../" + made.ID} {
		tenant := "acme"
		if id == made.ID {
			tenant = "other"
		}
		_, getErr := f.Get(t.Context(), tenant, id)
		_, openErr := f.Open(t.Context(), tenant, id)
		bindErr := f.Bind(t.Context(), tenant, file.User{Run: newRunID()}, id)
		for _, err := range []error{getErr, openErr, bindErr, f.Delete(t.Context(), tenant, id)} {
			if !errors.Is(err, file.ErrNotFound) {
				t.Errorf("%q in %s: %v", id, tenant, err)
			}
		}
	}
	run := newRunID()
	if err := f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID); err != nil {
		t.Fatal(err)
	}
	f.create(t, run)
	f.store.wait(2 * file.BindDelay)
	used, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID))
	if !ok || used.By != "run "+string(run) {
		t.Errorf("Delete of a file in use: %v", used)
	}
	f.store.wait(10 * file.Keep)
	f.sweep(t, 0)
	if _, err := f.Get(t.Context(), "acme", made.ID); err != nil {
		t.Errorf("a file in use was deleted by the sweep: %v", err)
	}
	unused := f.put(t, "unused")
	if err := f.Delete(t.Context(), "acme", unused.ID); err != nil {
		t.Error(err)
	}
	if _, err := f.Open(t.Context(), "acme", unused.ID); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("the content of a deleted file: %v", err)
	}
	if err := f.DropTenant(t.Context(), "acme"); err != nil {
		t.Error(err)
	}
	if _, err := f.Get(t.Context(), "acme", made.ID); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("a file of a dropped tenant: %v", err)
	}
	if names, err := f.bus.ObjectNames(t.Context(), "acme"); err != nil || len(names) > 0 {
		t.Errorf("objects of a dropped tenant: %v, %v", names, err)
	}
}

// A file is kept for a day after its last reference has ended. A reference by a run that was never created ends
// by itself.
func TestSweepUnused(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made := f.put(t, "x")
	f.store.wait(file.Keep - time.Hour)
	f.sweep(t, 0)
	if err := f.Bind(t.Context(), "acme", file.User{Run: newRunID()}, made.ID); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID)); !ok {
		t.Error("a file was deleted although a run with it is about to be created")
	}
	f.sweep(t, 0)
	f.store.wait(file.Keep)
	f.sweep(t, 1)
	if names, err := f.bus.ObjectNames(t.Context(), "acme"); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if names, err := f.store.DocumentNames(t.Context(), state.FileUsersOf(made.ID)); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// A batch references its files as long as one of its runs exists, a schedule as long as it names them.
func TestUsers(t *testing.T) {
	t.Parallel()
	f := inMemory()
	batch, scheduled := f.put(t, "x"), f.put(t, "y")
	first := newRunID()
	f.create(t, first.Plus(2))
	if err := f.Bind(t.Context(), "acme", file.User{Run: first, Runs: 3}, batch.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.Bind(t.Context(), "acme", file.User{Schedule: "daily"}, scheduled.ID); err != nil {
		t.Fatal(err)
	}
	document := fmt.Appendf(nil, `{"run":{"input":%q}}`, scheduled.ID)
	if err := f.store.PutDocument(t.Context(), state.SchedulesOf("acme"), "daily", document); err != nil {
		t.Fatal(err)
	}
	f.store.wait(2 * file.BindDelay)
	for made, want := range map[file.File]string{
		batch:     "batch " + strings.Replace(string(first), state.RunPrefix, state.BatchPrefix, 1) + ", whose run " + string(first.Plus(2)) + " exists",
		scheduled: "schedule daily",
	} {
		used, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID))
		if !ok || used.Error() != "file "+made.ID+" is used by "+want {
			t.Errorf("delete of %s: %v, want %s", made.ID, used, want)
		}
	}
	if err := f.store.PutDocument(t.Context(), state.SchedulesOf("acme"), "daily", []byte(`{"run":{"input":"another"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), "acme", scheduled.ID); err != nil {
		t.Errorf("a file that the schedule no longer names: %v", err)
	}
}

// A schedule that was deleted after it had named a file keeps the file for ten minutes, because the schedule
// may be about to be stored again. The error says until when. The same holds for runs and batches that were
// never created.
func TestRecentReference(t *testing.T) {
	t.Parallel()
	first := newRunID()
	for want, user := range map[string]file.User{
		"schedule daily":       {Schedule: "daily"},
		"run " + string(first): {Run: first},
		"batch " + strings.Replace(string(first), state.RunPrefix, state.BatchPrefix, 1): {Run: first, Runs: 2},
	} {
		f := inMemory()
		made := f.put(t, "x")
		before, err := f.store.Now(t.Context())
		if err == nil {
			err = f.Bind(t.Context(), "acme", user, made.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		used, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID))
		if !ok || used.By != want || used.Until.Before(before.Add(file.BindDelay-time.Second)) || !strings.Contains(used.Error(), "cannot be deleted before "+used.Until.Format(time.RFC3339)+": "+want) {
			t.Errorf("Delete: %v, want %s", used, want)
			continue
		}
		f.store.wait(file.BindDelay)
		if err := f.Delete(t.Context(), "acme", made.ID); err != nil {
			t.Errorf("Delete after that time: %v", err)
		}
	}
}

// An interrupted upload leaves nothing, and one whose process has died leaves data only until a sweep.
func TestSweepUploads(t *testing.T) {
	t.Parallel()
	f := inMemory()
	broken := errors.New("gone")
	if _, err := f.Put(t.Context(), "acme", file.File{MediaType: "text/plain"}, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("Put: %v", err)
	}
	now, err := f.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left := file.NewID(now)
	if _, err := f.bus.PutObject(t.Context(), "acme", left, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		f.sweep(t, 0)
		if names, err := f.bus.ObjectNames(t.Context(), "acme"); err != nil || len(names) != want {
			t.Errorf("%v, %v, want %d", names, err, want)
		}
		f.store.wait(file.UploadTimeout + time.Second)
	}
}

// Parallel uploads respect the limit: the one that is stored last is removed without remains, unless a run
// names it by then.
func TestLimitOfParallelUploads(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]bool{"unused": false, "named by a run": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inMemory()
			now, err := f.store.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range file.MaxFiles - 1 {
				if err := f.store.PutDocument(t.Context(), state.FilesOf("acme"), file.NewID(now), []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			var first file.File
			bind := func() {
				objects, err := f.bus.ObjectNames(t.Context(), "acme")
				for _, id := range objects {
					if err == nil && id != first.ID {
						err = f.Bind(t.Context(), "acme", file.User{Run: newRunID()}, id)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
			f.store.before = func(call string, kind state.DocumentKind) {
				if call != "replace" || kind != state.FilesOf("acme") {
					return
				}
				f.store.before = nil
				first = f.put(t, "first")
				f.store.before = func(string, state.DocumentKind) { // counts again
					if f.store.before = nil; bound {
						bind()
					}
				}
			}
			second, err := f.Put(t.Context(), "acme", file.File{MediaType: "text/plain"}, strings.NewReader("second"))
			f.store.before = nil
			want, files := file.ErrTooMany, []string{first.ID}
			if bound {
				want, files = nil, []string{first.ID, second.ID}
			}
			if !errors.Is(err, want) {
				t.Errorf("the second upload: %v, want %v", err, want)
			}
			objects, err := f.bus.ObjectNames(t.Context(), "acme")
			slices.Sort(objects)
			slices.Sort(files)
			if err != nil || !slices.Equal(objects, files) {
				t.Errorf("stored: %v, %v, want %v", objects, err, files)
			}
			if _, err := f.Put(t.Context(), "acme", file.File{MediaType: "text/plain"}, strings.NewReader("third")); !errors.Is(err, file.ErrTooMany) {
				t.Errorf("an upload beyond the limit: %v", err)
			}
		})
	}
}

// If a reference and a deletion race, one wins: a referenced file has its content, and a successful deletion
// leaves no run that references the file.
func TestBindRacesWithDelete(t *testing.T) {
	t.Parallel()
	f := inMemory()
	for range 300 {
		made := f.put(t, "x")
		var bindErr error
		var deleteErrs [2]error
		var all sync.WaitGroup
		run := newRunID()
		all.Go(func() {
			if bindErr = f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID); bindErr == nil {
				f.create(t, run)
			}
		})
		for i := range deleteErrs {
			all.Go(func() { deleteErrs[i] = f.Delete(t.Context(), "acme", made.ID) })
		}
		all.Wait()
		r, openErr := f.Open(t.Context(), "acme", made.ID)
		if openErr == nil {
			_ = r.Close()
		}
		for _, err := range deleteErrs {
			_, used := errors.AsType[*file.InUseError](err)
			switch {
			case err == nil:
				if bindErr == nil {
					t.Fatal("a file was deleted although a run references it")
				}
			case !used && !errors.Is(err, file.ErrNotFound):
				t.Fatalf("Delete: %v", err)
			}
		}
		if bindErr == nil && openErr != nil {
			t.Fatalf("the content of a referenced file: %v", openErr)
		}
		if bindErr != nil && !errors.Is(bindErr, file.ErrNotFound) {
			t.Fatalf("Bind: %v", bindErr)
		}
	}
}

// At each step of a deletion, a reference is refused or prevents the deletion, and the other way round.
func TestBindMeetsDelete(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]struct {
		call string
		kind func(id string) state.DocumentKind
		nth  int
		bind bool // the reference interrupts the deletion, else the deletion the reference
	}{
		"before the mark":        {"replace", func(string) state.DocumentKind { return state.FilesOf("acme") }, 1, true},
		"before the references":  {"names", state.FileUsersOf, 1, true},
		"before the decision":    {"replace", func(string) state.DocumentKind { return state.FilesOf("acme") }, 2, true},
		"before the clean-up":    {"names", state.FileUsersOf, 2, true},
		"before the reference":   {"put", state.FileUsersOf, 1, false},
		"before the second file": {"put", state.FileUsersOf, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inMemory()
			made, other := f.put(t, "x"), f.put(t, "y")
			run := newRunID()
			var bindErr, deleteErr error
			bind := func() {
				if bindErr = f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID, other.ID); bindErr == nil {
					f.create(t, run)
				}
			}
			remove := func() { deleteErr = f.Delete(t.Context(), "acme", made.ID) }
			first, second := remove, bind
			if !step.bind {
				first, second = bind, remove
			}
			n := 0
			f.store.before = func(call string, kind state.DocumentKind) {
				met := call == step.call && (kind == step.kind(made.ID) || !step.bind && kind == step.kind(other.ID))
				if !met {
					return
				}
				if n++; n == step.nth {
					f.store.before = nil
					second()
				}
			}
			first()
			if n < step.nth {
				t.Fatal("the step was not reached")
			}
			_, openErr := f.Get(t.Context(), "acme", made.ID)
			if (bindErr == nil) == (deleteErr == nil) && bindErr == nil {
				t.Errorf("both have succeeded")
			}
			if bindErr == nil && openErr != nil {
				t.Errorf("a run references a deleted file: %v", openErr)
			}
			t.Logf("reference %v, deletion %v", bindErr, deleteErr)
		})
	}
}

// A deletion that failed before its decision hides no file, and another run may reference it.
func TestFailedDeletion(t *testing.T) {
	t.Parallel()
	f := inMemory()
	made, run, other := f.put(t, "x"), newRunID(), newRunID()
	if err := f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID); err != nil {
		t.Fatal(err)
	}
	f.create(t, run)
	ctx, fail := context.WithCancel(t.Context())
	f.store.before = func(call string, kind state.DocumentKind) {
		if call == "names" && kind == state.FileUsersOf(made.ID) {
			f.store.before = nil
			fail()
		}
	}
	if err := f.Delete(ctx, "acme", made.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete: %v", err)
	}
	if got, err := f.Get(t.Context(), "acme", made.ID); err != nil || got != made {
		t.Errorf("Get: %+v, %v", got, err)
	}
	f.store.wait(2 * time.Minute)
	if err := f.Bind(t.Context(), "acme", file.User{Run: other}, made.ID); err != nil {
		t.Errorf("Bind: %v", err)
	}
	if used, ok := errors.AsType[*file.InUseError](f.Delete(t.Context(), "acme", made.ID)); !ok || used.By != "run "+string(run) && used.By != "run "+string(other) {
		t.Errorf("Delete: %v", used)
	}
}

// A deletion whose process has died is completed by a sweep, or undone if the file is referenced.
func TestSweepCompletesDeletions(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]bool{"unused": false, "used": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inMemory()
			made := f.put(t, "x")
			run := newRunID()
			if used {
				if err := f.Bind(t.Context(), "acme", file.User{Run: run}, made.ID); err != nil {
					t.Fatal(err)
				}
				f.create(t, run)
			}
			raw, err := f.store.Document(t.Context(), state.FilesOf("acme"), made.ID)
			if err != nil {
				t.Fatal(err)
			}
			now, _ := f.store.Now(t.Context())
			marked := strings.TrimSuffix(string(raw), "}") + fmt.Sprintf(`,"removal":{"token":"t","at":%q}}`, now.Format(time.RFC3339))
			if err := f.store.PutDocument(t.Context(), state.FilesOf("acme"), made.ID, []byte(marked)); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Get(t.Context(), "acme", made.ID); err != nil {
				t.Errorf("a file whose deletion is undecided: %v", err)
			}
			f.store.wait(2 * time.Minute)
			f.sweep(t, 0)
			if _, err := f.Get(t.Context(), "acme", made.ID); (err == nil) != used {
				t.Errorf("after the sweep: %v", err)
			}
		})
	}
}
