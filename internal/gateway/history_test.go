package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// historyGateway returns a gateway with the agent a on a store, and a function that sends requests to it.
func historyGateway(t *testing.T, store state.Store) func(method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	g, err := gateway.New(store, membus.New(), gateway.Config{StoreBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		g.Handler().ServeHTTP(w, r)
		return w
	}
	if w := do(http.MethodPut, "/v1/agents/a", talker); w.Code >= http.StatusBadRequest {
		t.Fatal(w.Body)
	}
	return do
}

func submitted(t testing.TB, id state.RunID) state.State {
	t.Helper()
	run := state.State{ID: id, Tenant: state.DefaultTenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("x")}})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// What the model sees of a run is bounded, because each turn holds all of it in memory. Messages beyond the bound are
// refused; the run can still be read and cancelled.
func TestViewIsBounded(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{30: "", 40: api.CodeBodyTooLarge} {
		store := memstore.New(memstore.Config{})
		do := historyGateway(t, store)
		run := submitted(t, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
		long := []state.Message{state.UserText(strings.Repeat("z", 1<<20))}
		for range size {
			run = run.Append(state.Entry{Type: state.EntryTransition, Reason: state.UserMessage, At: run.CreatedAt, Messages: long})
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		path := "/v1/runs/" + string(run.ID)
		for what, w := range map[string]*httptest.ResponseRecorder{"a message": do(http.MethodPost, path+"/signals", `{"message":"y"}`), "a fork": do(http.MethodPost, path+"/fork", `{"turn":0}`)} {
			if full := strings.Contains(w.Body.String(), api.CodeBodyTooLarge); full != (want != "") || full != (w.Code == http.StatusRequestEntityTooLarge) {
				t.Errorf("%s to a run of %d MiB: %d %.200s", what, size, w.Code, w.Body)
			}
		}
		if w := do(http.MethodGet, path, ""); w.Code != http.StatusOK {
			t.Errorf("GET of a run of %d MiB: %d", size, w.Code)
		}
		if w := do(http.MethodPost, path+"/cancel", ""); w.Code >= http.StatusBadRequest {
			t.Errorf("cancel of a run of %d MiB: %d %.200s", size, w.Code, w.Body)
		}
	}
}

// A run with checkpoints is forked at any turn, before them too, as it would be without them. A message, a rollback and
// the readers need no more than the end of its log, or a page.
func TestForkAcrossCheckpoints(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	do := historyGateway(t, store)
	ids := []state.RunID{"run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "run_01ARZ3NDEKTSV4RRFFQ69G5FAW"}
	const turns = 30
	for i, id := range ids {
		run := submitted(t, id)
		if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		c, err := store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "t", Lease: time.Hour, RedeliveryDelay: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		next, written := *c.State, c.State.LogLen()
		record := func() {
			if _, err := store.Record(t.Context(), c.Lease, state.Record{From: written, Entries: state.After(next.Log, written)}); err != nil {
				t.Fatal(err)
			}
			written = next.LogLen()
		}
		for turn := 1; turn <= turns; turn++ {
			call := state.Part{Type: state.PartToolCall, ID: "c", Name: "t", Arguments: fmt.Sprintf(`{"turn":%d}`, turn)}
			said := state.Message{ID: fmt.Sprint("m", turn), Role: state.RoleAssistant, Turn: turn, Parts: []state.Part{call}}
			result := state.ToolResult("c", fmt.Sprint("result ", turn), false)
			result.ID, result.Turn = fmt.Sprint("r", turn), turn
			next = next.Append(state.Entry{Type: state.EntryModel, Turn: turn, Message: &said})
			next = next.Append(state.Entry{Type: state.EntryTool, Turn: turn, CallID: "c", Name: "t", Message: &result})
			next = next.Append(state.Entry{Type: state.EntryReflect, Turn: turn, Confidence: new(float64(turn))})
			if turn%10 == 5 {
				stub := state.ToolResult("c", "removed", false)
				stub.ID, stub.Synthetic = fmt.Sprint("s", turn), true
				next = next.Append(state.Entry{Type: state.EntryCompacted, Turn: turn, MessageIDs: []string{fmt.Sprint("r", turn-3)}, Messages: []state.Message{stub}})
			}
			next.ResponsePending = false
			record()
			if i == 1 && turn%7 == 0 {
				next = next.Append(state.Entry{Type: state.EntryCheckpoint, Turn: turn, At: run.CreatedAt, Checkpoint: state.NewCheckpoint(&next)})
				record()
			}
		}
		if next, err = next.Move(state.EndCompleted, state.Entry{At: run.CreatedAt, Output: new("done")}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: written, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	forked := func(id state.RunID, turn int) string {
		w := do(http.MethodPost, "/v1/runs/"+string(id)+"/fork", fmt.Sprintf(`{"turn":%d}`, turn))
		var fork api.Run
		if err := json.Unmarshal(w.Body.Bytes(), &fork); err != nil || w.Code >= http.StatusBadRequest {
			return regexp.MustCompile(`run_\w+|"request_id":"[^"]*"`).ReplaceAllString(fmt.Sprint(w.Code, w.Body), "")
		}
		text := do(http.MethodGet, "/v1/runs/"+fork.ID+"/messages", "").Body.String()
		return regexp.MustCompile(`run_\w+|"at":"[^"]*"`).ReplaceAllString(text, "")
	}
	for turn := -1; turn <= turns+1; turn++ {
		want, got := forked(ids[0], turn), forked(ids[1], turn)
		if want != got {
			t.Errorf("fork at turn %d with checkpoints:\n%s\nwithout:\n%s", turn, got, want)
		}
		if ok := turn >= 0 && turn <= turns; ok != strings.Contains(want, `"items"`) {
			t.Errorf("fork at turn %d: %.300s", turn, want)
		}
	}
	texts := [2]string{}
	for i, id := range ids {
		for _, what := range []string{"messages", "turns"} {
			texts[i] += regexp.MustCompile(`run_\w+|"at":"[^"]*"`).ReplaceAllString(do(http.MethodGet, "/v1/runs/"+string(id)+"/"+what, "").Body.String(), "")
		}
		if w := do(http.MethodPost, "/v1/runs/"+string(id)+"/signals", `{"message":"y"}`); w.Code >= http.StatusBadRequest {
			t.Errorf("a message to %s: %d %s", id, w.Code, w.Body)
		}
		if w := do(http.MethodPost, "/v1/runs/"+string(id)+"/signals", `{"message":"y","mode":"rollback"}`); w.Code >= http.StatusBadRequest {
			t.Errorf("a rollback of %s: %d %s", id, w.Code, w.Body)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("messages and turns with checkpoints:\n%s\nwithout:\n%s", texts[1], texts[0])
	}
}

// slowCopies is a store that takes a second to read a page of a log, and counts reads in progress.
type slowCopies struct {
	state.Store

	now, most atomic.Int64
}

func (s *slowCopies) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return s.Store.LogPage(ctx, id, after, limit, bytes)
}

// A tenant forks one run with a large log at a time: a server of Redis does nothing else while it copies megabytes.
// Those that wait too long are refused.
func TestLargeForksWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowCopies{Store: memstore.New(memstore.Config{})}
		do := historyGateway(t, store)
		run := submitted(t, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
		run = run.Append(state.Entry{Type: state.EntryTransition, Reason: state.UserMessage, At: run.CreatedAt, Messages: []state.Message{state.UserText(strings.Repeat("z", 1<<20))}})
		if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		var forks sync.WaitGroup
		var made, refused atomic.Int64
		for range 20 {
			forks.Go(func() {
				switch w := do(http.MethodPost, "/v1/runs/"+string(run.ID)+"/fork", `{"turn":0}`); {
				case w.Code == http.StatusAccepted:
					made.Add(1)
				case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "":
					refused.Add(1)
				default:
					t.Errorf("a fork = %d %.300s", w.Code, w.Body)
				}
			})
		}
		forks.Wait()
		if store.most.Load() != 1 || made.Load() == 0 || refused.Load() == 0 {
			t.Errorf("%d forks at once, %d made, %d refused; want one at once, some made and some refused", store.most.Load(), made.Load(), refused.Load())
		}
	})
}
