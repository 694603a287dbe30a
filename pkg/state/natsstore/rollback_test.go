package natsstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// await polls until ok, or the test ends.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// turn executes a turn of a run, which ends it if last, and marks it as finalized.
func turn(t *testing.T, s state.Store, id state.RunID, version int64, last bool) {
	t.Helper()
	token := fmt.Sprint(id, version, time.Now().UnixNano())
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: id, Version: version, Token: token, Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	why := state.NextTurn
	if last {
		why = state.EndCompleted
	}
	next, err := c.State.Move(why, state.Entry{At: state.At(time.Now()), Detail: token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: token, State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if last {
		if err := s.MarkFinalized(t.Context(), id, next.LogLen()); err != nil {
			t.Fatal(err)
		}
	}
}

// When a server is restored from an older copy of its disk, live processes return to that state: they sweep the
// runs in flight again, and drop lost ones.
func TestRestoredServer(t *testing.T) {
	t.Parallel()
	testRestoredServer(t, func(*natsstore.Store) {})
}

// The same holds for a process whose feed has not delivered its writes from before the restore.
func TestRestoredServerAheadOfTheFeed(t *testing.T) {
	t.Parallel()
	testRestoredServer(t, (*natsstore.Store).StopFeed)
}

// testRestoredServer calls connected with the process after it has reconnected, before it writes what the
// restored server lacks.
func testRestoredServer(t *testing.T, connected func(*natsstore.Store)) {
	t.Helper()
	dir, saved := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	var server *devserver.Server
	start := func() {
		var err error
		if server, err = devserver.Start(devserver.Options{Dir: dir, Listen: fmt.Sprint("127.0.0.1:", port)}); err != nil {
			t.Fatal(err)
		}
	}
	start()
	t.Cleanup(func() { server.Close() })
	connect := func() *nats.Conn {
		nc, err := nats.Connect(server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	s := open(t, connect(), "p")
	create := func(s *natsstore.Store) state.RunID {
		run := newRun(t)
		if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
		return run.ID
	}
	ends, goes := create(s), create(s)
	server.Close()
	if err := os.CopyFS(saved, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	start()
	await(t, "the store answers again", func() bool { return s.Ready(t.Context()) == nil })
	connected(s)
	turn(t, s, ends, 1, true)
	turn(t, s, goes, 1, false)
	lost := create(s)
	for v := range int64(10) { // far ahead of what the others will write
		turn(t, s, goes, v+2, false)
	}
	if due, err := s.Sweep(t.Context(), 10, time.Hour, nil); err != nil || len(due) != 1 || due[0].Run != lost {
		t.Fatalf("Sweep = %+v, %v; want the run that waits for its first turn", due, err)
	}
	server.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(saved)); err != nil {
		t.Fatal(err)
	}
	start()
	await(t, "the store answers again", func() bool { return s.Ready(t.Context()) == nil })
	other := open(t, connect(), "p")
	turn(t, other, goes, 1, false) // its log continues differently
	fresh := create(other)
	found := map[state.RunID]bool{}
	await(t, "the runs of the older stream are swept", func() bool {
		due, err := s.Sweep(t.Context(), 10, time.Hour, nil)
		if err != nil {
			t.Log(err)
		}
		for _, d := range due {
			found[d.Run] = true
		}
		return found[ends] && found[fresh]
	})
	if len(found) != 2 {
		t.Errorf("sweeps found %v", found)
	}
	page, err := s.List(t.Context(), state.Filter{})
	if err != nil || len(page.Runs) != 3 {
		t.Errorf("List = %d runs, %v; want 3", len(page.Runs), err)
	}
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: goes, Version: 2, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	want, err := other.Log(t.Context(), goes, 0, 0)
	if err != nil || len(want) != len(c.State.Log) || want[1].Detail != c.State.Log[1].Detail {
		t.Errorf("a claim has a log that is gone: %+v, want %+v, %v", c.State.Log, want, err)
	}
}

// A process that sees an older record of a run than it had drops its cached log: that may end with entries that
// no longer exist, and the stream soon has as many messages as before.
func TestLogOfAnOlderStream(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "p")
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	turn(t, s, run.ID, 1, false)
	turn(t, s, run.ID, 2, false)
	// It no longer follows the stream, so only its reads can tell.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	replaceStream(t, nc, "P_STATE")
	other := open(t, nc, "p")
	if _, err := other.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Load(t.Context(), run.ID); err != nil || st.Version != 1 {
		t.Fatalf("Load = version %d, %v; want that of the older stream", st.Version, err)
	}
	for v := range int64(5) {
		turn(t, other, run.ID, 1+v, false)
	}
	want, err := other.Log(t.Context(), run.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Log(t.Context(), run.ID, 0, 0)
	if err != nil || len(got) != len(want) {
		t.Fatalf("Log = %d entries, %v; want %d", len(got), err, len(want))
	}
	for i := range want {
		if got[i].Detail != want[i].Detail {
			t.Errorf("entry %d has turn %q, want %q", i, got[i].Detail, want[i].Detail)
		}
	}
}

// replaceStream replaces a stream by an empty one.
func replaceStream(t *testing.T, nc *nats.Conn, name string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	old, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), old.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
}

// A recreated stream has no runs, whatever the process has cached.
func TestStreamMadeAnew(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "p")
	for range 3 {
		if _, err := s.Create(t.Context(), state.NewRun{State: newRun(t)}); err != nil {
			t.Fatal(err)
		}
	}
	replaceStream(t, nc, "P_STATE")
	kept := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: kept, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	await(t, "the index has what the stream has", func() bool {
		page, err := s.List(t.Context(), state.Filter{})
		return err == nil && len(page.Runs) == 1 && page.Runs[0].ID == kept.ID
	})
}
