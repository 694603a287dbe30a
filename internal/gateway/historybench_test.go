package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// BenchmarkHistory measures the claim of a turn on a worker that has not seen the run, a message and a fork: of a run
// with 200 KB of view, without and with 300 MB of log behind it. Compare times and B/op of short and long.
func BenchmarkHistory(b *testing.B) {
	for _, size := range []struct {
		name    string
		results int // of 1 MB
	}{{"short", 0}, {"long", 300}} {
		store := memstore.New(memstore.Config{})
		g, err := gateway.New(store, membus.New(), gateway.Config{StoreBudget: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		do := func(method, path, body string) {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(b.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if g.Handler().ServeHTTP(w, r); w.Code >= http.StatusBadRequest {
				b.Fatal(w.Body)
			}
		}
		do(http.MethodPut, "/v1/agents/a", talker)
		run := submitted(b, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
		if _, err := store.Create(b.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			b.Fatal(err)
		}
		q := state.ClaimRequest{Run: run.ID, Version: 1, Token: "t", Lease: time.Hour, RedeliveryDelay: time.Hour}
		c, err := store.Claim(b.Context(), q)
		if err != nil {
			b.Fatal(err)
		}
		turns := max(1, size.results)
		next, written := longRun(b, store, c, size.results)
		if next, err = next.Move(state.NextTurn, state.Entry{At: run.CreatedAt, Messages: []state.Message{state.UserText(strings.Repeat("v", 200_000))}}); err != nil {
			b.Fatal(err)
		}
		if _, err := store.Commit(b.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: written, RedeliveryDelay: time.Hour}); err != nil {
			b.Fatal(err)
		}
		q.Version = 2
		b.Run("claim/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c, err := store.Claim(b.Context(), q); err != nil || c.Outcome != state.Claimed || len(state.View(c.State.Log)) == 0 {
					b.Fatal(c.Outcome, err)
				}
			}
		})
		path := "/v1/runs/" + string(run.ID)
		b.Run("message/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do(http.MethodPost, path+"/signals", `{"message":"y","signal_id":"one"}`)
			}
		})
		b.Run("fork/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do(http.MethodPost, path+"/fork", fmt.Sprintf(`{"turn":%d}`, turns))
			}
		})
	}
}

// longRun journals turns with results of 1 MB, all of which have left the view, and checkpoints as a worker does. The
// last turn has a short result.
func longRun(b *testing.B, store *memstore.Store, c *state.Claim, results int) (next state.State, written int64) {
	b.Helper()
	next, written = *c.State, c.State.LogLen()
	record := func() {
		if _, err := store.Record(b.Context(), c.Lease, state.Record{From: written, Entries: state.After(next.Log, written)}); err != nil {
			b.Fatal(err)
		}
		written = next.LogLen()
	}
	add := func(turn int, content string) {
		said := state.Message{ID: fmt.Sprint("m", turn), Role: state.RoleAssistant, Turn: turn, Parts: []state.Part{{Type: state.PartToolCall, ID: "c", Name: "t", Arguments: "{}"}}}
		result := state.ToolResult("c", content, false)
		result.ID, result.Turn = fmt.Sprint("r", turn), turn
		next = next.Append(state.Entry{Type: state.EntryModel, Turn: turn, Message: &said})
		next = next.Append(state.Entry{Type: state.EntryTool, Turn: turn, CallID: "c", Name: "t", Message: &result})
		next.ResponsePending = false
		record()
	}
	for turn := 1; turn < results; turn++ {
		add(turn, strings.Repeat("x", 1_000_000))
		remark := state.UserText("removed")
		remark.ID, remark.Synthetic = fmt.Sprint("s", turn), true
		next = next.Append(state.Entry{Type: state.EntryCompacted, Turn: turn, MessageIDs: []string{fmt.Sprint("m", turn), fmt.Sprint("r", turn), fmt.Sprint("s", turn-1)}, Messages: []state.Message{remark}})
		record()
		if next.LogBytes > 1<<20 {
			next = next.Append(state.Entry{Type: state.EntryCheckpoint, Turn: turn, At: c.State.CreatedAt, Checkpoint: state.NewCheckpoint(&next)})
			record()
		}
	}
	add(max(1, results), "short")
	return next, written
}
