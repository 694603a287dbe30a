package doctor_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Doctor lists the runs that turn messages, parents and batches name and the store lacks.
func TestDoctorListsLostRuns(t *testing.T) {
	t.Parallel()
	url := testbed.NATSServer(t).URL()
	for name, redis := range map[string]string{"JetStream": "", "Redis": testbed.Redis(t)} {
		cfg := deploy.Config{NATSURL: url, RedisURL: redis, Prefix: "lost-" + strings.ToLower(name)}
		d, err := deploy.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		if f := found(t, cfg, "store: lost runs"); !f.OK {
			t.Errorf("%s: for a deployment without runs doctor reports %+v", name, f)
		}
		at := state.At(time.Now().Add(-time.Hour))
		base := state.FirstIDAt(at.Time)
		lost := []state.RunID{base.Plus(100), base.Plus(200), base.Plus(301), base.Plus(400), base.Plus(402)}
		if err := d.Bus.PublishTurn(t.Context(), bus.Turn{Run: lost[0], Version: 1, Priority: state.Normal}, "x"); err != nil {
			t.Fatal(err)
		}
		parent := state.State{ID: base.Plus(1), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}
		parent, err = parent.Move(state.Submitted, state.Entry{At: at})
		if err != nil {
			t.Fatal(err)
		}
		parent.Open = []state.OpenCall{{ID: "c1", Name: "x", Needs: state.NeedChild, Child: lost[1]}}
		parent, err = parent.Move(state.WaitingChild, state.Entry{At: at, Waiting: &state.Wait{Reason: state.WaitingChild, Since: at}})
		if err != nil {
			t.Fatal(err)
		}
		pending := state.State{
			ID: base.Plus(302), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal,
			Batch: &state.Batch{Index: 2, Size: 3, MaxParallel: 1, PendingInBatch: true},
		}
		pending, err = pending.Move(state.WaitingSchedule, state.Entry{At: at, Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: at}})
		if err != nil {
			t.Fatal(err)
		}
		first := state.State{ID: base.Plus(300), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}
		first, err = first.Move(state.Submitted, state.Entry{At: at})
		if err != nil {
			t.Fatal(err)
		}
		// Of a batch that started all its runs at once, the middle one is left.
		middle := state.State{
			ID: base.Plus(401), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal, CreatedAt: at,
			Batch: &state.Batch{Index: 1, Size: 3, MaxParallel: 3},
		}
		middle, err = middle.Move(state.Submitted, state.Entry{At: at})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range []state.State{parent, pending, first, middle} {
			if _, err := d.Store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		f := found(t, cfg, "store: lost runs")
		if f.OK || f.Fatal || !strings.Contains(f.Detail, "lacks 5 runs") {
			t.Errorf("%s: %+v", name, f)
		}
		for _, id := range lost {
			if !strings.Contains(f.Detail, string(id)) {
				t.Errorf("%s: %s is not named: %s", name, id, f.Detail)
			}
		}
	}
}

// Doctor says how much it examined if that is not everything.
func TestDoctorSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), RedisURL: testbed.Redis(t), Prefix: "leaves-out"}
	d, err := deploy.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	at := state.At(time.Now().Add(-time.Hour))
	base := state.FirstIDAt(at.Time)
	run := state.State{ID: base.Plus(1), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: state.Normal}
	if run, err = run.Move(state.Submitted, state.Entry{At: at}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	publish := func(from, to int, run state.RunID) {
		t.Helper()
		for n := from; n < to; n++ {
			if err := d.Bus.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, strconv.Itoa(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(0, 1000, run.ID)
	if f := found(t, cfg, "store: lost runs"); !f.OK || strings.Contains(f.Detail, "not at all") {
		t.Errorf("of all messages: %+v", f)
	}
	publish(1000, 1001, base.Plus(2)) // the store lacks this run
	if f := found(t, cfg, "store: lost runs"); !f.OK || !strings.Contains(f.Detail, "the oldest turn messages, of 1 runs") {
		t.Errorf("with one message more: %+v", f)
	}
}
