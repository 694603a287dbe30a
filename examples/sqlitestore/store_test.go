package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/examples/sqlitestore"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

func open(t *testing.T, path string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func file(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "runs.db")
}

func TestStore(t *testing.T) {
	t.Parallel()
	turnpiketest.RunStore(t, func(t *testing.T) state.RunStore { t.Helper(); return open(t, file(t)) })
}

func newRun(t *testing.T) state.State {
	t.Helper()
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: state.DefaultTenant, Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hello")}})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Processes that share a file give each turn to one worker.
func TestProcessesShareAFile(t *testing.T) {
	t.Parallel()
	path := file(t)
	var stores [3]*sqlitestore.Store
	for i := range stores {
		stores[i] = open(t, path)
	}
	for range 10 {
		run := newRun(t)
		if _, err := stores[0].Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		outcomes := make([]state.Outcome, len(stores))
		var group sync.WaitGroup
		for i, s := range stores {
			group.Go(func() {
				name := fmt.Sprint("worker ", i)
				c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: name, Worker: name, Lease: time.Hour})
				if err != nil {
					t.Error(err)
				}
				outcomes[i] = c.Outcome
			})
		}
		group.Wait()
		claimed := 0
		for _, o := range outcomes {
			if o == state.Claimed {
				claimed++
			} else if o != state.ClaimBusy {
				t.Errorf("Claim = %s", o)
			}
		}
		if claimed != 1 {
			t.Fatalf("%d workers got the turn: %v", claimed, outcomes)
		}
	}
}

// A reopened file has all acknowledged writes.
func TestReopen(t *testing.T) {
	t.Parallel()
	path := file(t)
	first := open(t, path)
	run := newRun(t)
	if _, err := first.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, path)
	if log, err := second.Log(t.Context(), run.ID, 0, 0); err != nil || len(log) != 1 {
		t.Errorf("Log = %d entries, %v; want 1", len(log), err)
	}
	if due, err := second.Sweep(t.Context(), 10, time.Hour, nil); err != nil || len(due) != 1 || due[0].Run != run.ID {
		t.Errorf("Sweep = %+v, %v; want the run", due, err)
	}
}

// whole is a store whose other parts are kept elsewhere.
type whole struct {
	*sqlitestore.Store
	state.AdminStore
	state.Quotas
	state.Timers
}

// A deployment keeps its runs in SQLite, and a run calls a tool there.
func TestDeployment(t *testing.T) {
	t.Parallel()
	runs, memory, b := open(t, file(t)), memstore.New(memstore.Config{}), membus.New()
	t.Cleanup(func() { _ = b.Close() })
	d, err := turnpike.Open(t.Context(), turnpike.Options{
		Store: whole{runs, memory, memory, memory}, Bus: b, Models: turnpike.Models{"scripted": turnpike.Scripted()},
		Tools: []turnpike.Tool{turnpike.NewTool("clock", "Tells the time.", func(context.Context, struct{}) (string, error) { return "9:02", nil })},
	})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		work.Wait()
		_ = d.Close()
	})
	w, err := d.NewWorker(turnpike.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	work.Go(func() { _ = w.Run(ctx) })
	_, err = d.PutYAML(t.Context(), []byte(`
name: clerk
tools: [{name: clock}]
model:
  provider: scripted
  responses: [{tool_calls: [{name: clock, arguments: {}}]}, {text: "It is 9:02."}]
`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := turnpike.Do[string](t.Context(), d.Client, turnpike.Submission{Agent: "clerk", Input: "What time is it?"})
	if err != nil || text != "It is 9:02." {
		t.Errorf("Do = %q, %v", text, err)
	}
	page, err := runs.List(t.Context(), state.Filter{Status: []state.Status{state.Completed}})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].Usage.ToolCalls != 1 {
		t.Errorf("List = %+v, %v; want the run, with its call", page.Runs, err)
	}
}
