package restore

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// older has the mark 0 of a store, and the mark 100 of its bus.
type older struct{ at time.Time }

func (older) Marks(context.Context) (least, greatest int64, err error) { return 0, 0, nil }

func (older) RaiseMarks(context.Context, int64, int64) (least, greatest int64, err error) {
	return 0, 0, nil
}

func (older) SetFloor(int64) {}

func (o older) Mark(context.Context) ([]byte, uint64, time.Time, error) {
	return []byte(`{"count": 100}`), 1, o.at, nil
}

func (older) ReplaceMark(context.Context, []byte, uint64) (moved bool, err error) { return false, nil }

// The report about an older copy counts all runs and the calls that may happen twice, and has the first runs: those
// that the store lacks, those with newer turns, and those in flight.
func TestReport(t *testing.T) {
	t.Parallel()
	c := &copied{t: t, store: memstore.New(memstore.Config{})}
	definition := json.RawMessage(`{"tools": [{"name": "add", "idempotent": true}, {"name": "pay"}]}`)
	if _, err := c.store.PutAgent(t.Context(), state.DefaultTenant, "a", definition, false); err != nil {
		t.Fatal(err)
	}
	calls := func(tools ...string) func(*state.State) {
		return func(s *state.State) {
			m := state.Message{ID: "m1", Role: state.RoleAssistant, Turn: 1}
			for _, tool := range tools {
				m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: "c_" + tool, Name: tool, Arguments: `{}`})
			}
			*s = s.Append(state.Entry{Type: state.EntryModel, At: state.At(time.Now()), Turn: 1, Message: &m, Usage: &state.Usage{ModelCalls: 1}})
			s.Open = []state.OpenCall{{ID: "c_delegate", Name: "delegate", Needs: state.NeedChild, Child: first.Plus(9)}}
		}
	}
	c.add(0, calls("pay", "delegate", "add"), "", state.Entry{})
	c.add(1, calls("pay"), "", state.Entry{})
	c.add(2, calls("pay"), state.EndCompleted, state.Entry{})
	c.add(3, alone, "", state.Entry{})
	at := time.Now()
	c.add(5, func(s *state.State) { s.CreatedAt = state.At(at.Add(time.Hour)) }, "", state.Entry{}) // during the wait
	turn := func(i int, version int64) bus.Turn {
		return bus.Turn{Run: first.Plus(i), Tenant: state.DefaultTenant, Version: version}
	}
	lost := turn(4, 3)
	lost.Tenant = "acme"
	queue := mixed{read: []bus.Turn{turn(1, 9), turn(1, 8), turn(2, 9), lost}}

	watch := NewWatch(older{}, older{at}, slog.New(slog.DiscardHandler))
	call := func(tool string, idempotent bool) api.RestoreCall {
		return api.RestoreCall{ID: "c_" + tool, Tool: tool, Arguments: "{}", Idempotent: idempotent}
	}
	run := func(i int, found, status string, nats int64, calls ...api.RestoreCall) api.RestoreRun {
		return api.RestoreRun{RunID: string(first.Plus(i)), Tenant: state.DefaultTenant, Agent: "a", Found: found, Status: status, Version: 1, NATSVersion: nats, Calls: calls}
	}
	missing := api.RestoreRun{RunID: string(first.Plus(4)), Tenant: "acme", Found: api.RestoreMissing, NATSVersion: 3}
	ended := run(2, api.RestoreAhead, "completed", 9)
	ended.Version = 2
	since := state.At(at)
	want := api.Restore{
		Status: api.RestoreWaiting, BehindSeconds: 100 * int64(Interval/time.Second), Since: &since, Counts: api.RestoreCounts{Ahead: 2, Missing: 1, Active: 2, Calls: 3},
		Runs: []api.RestoreRun{
			missing, run(1, api.RestoreAhead, "queued", 9, call("pay", false)), ended,
			run(0, api.RestoreActive, "queued", 0, call("pay", false), call("add", true)), run(3, api.RestoreActive, "queued", 0),
		},
	}
	all := want.Runs
	for limit, shown := range map[int]int{0: 0, 4: 4, 5: 5, 6: 5} {
		got, err := NewReview(watch, c.store, queue).Report(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		want.Runs, want.Truncated = all[:shown], shown < 5
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("limit %d:\n%s", limit, diff)
		}
	}
}
