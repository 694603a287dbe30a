package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// weighed is a store that measures the largest part of a log that a read returns. Reads of the log after `left` others
// fail, unless left is negative.
type weighed struct {
	state.Store

	mu      sync.Mutex
	largest int64
	left    int
}

func (s *weighed) weigh(log []state.Entry) {
	size := int64(0)
	for i := range log {
		size += log[i].Weight()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.largest = max(s.largest, size)
}

func (s *weighed) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	log, err := s.Store.Log(ctx, id, after, limit)
	s.weigh(log)
	return log, err
}

func (s *weighed) LogPage(ctx context.Context, id state.RunID, after int64, limit, size int) (state.LogPage, error) {
	s.mu.Lock()
	fails := s.left == 0
	s.left--
	s.mu.Unlock()
	if fails {
		return state.LogPage{}, errors.New("the store does not answer")
	}
	page, err := s.Store.LogPage(ctx, id, after, limit, size)
	s.weigh(page.Entries)
	return page, err
}

// largeRun stores an ended run whose log begins with many small entries, so that a reader that expects more of them
// would read too much, and has results of a size, some of which compactions have replaced.
func largeRun(t *testing.T, store state.Store, size int) (path string, log []state.Entry) {
	t.Helper()
	run := submitted(t, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	for range 600 {
		run = run.Append(state.Entry{Type: state.EntryProgress, Action: "look", Target: "around"})
	}
	const turns = 20
	for turn := 1; turn <= turns; turn++ {
		m := state.Message{ID: fmt.Sprint("m", turn), Role: state.RoleAssistant, Turn: turn}
		var results []state.Entry
		for _, c := range []string{"a", "b"} {
			m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: c, Name: "t", Arguments: "{}"})
			r := state.ToolResult(c, strings.Repeat(c, size), false)
			r.ID, r.Turn = fmt.Sprint(c, turn), turn
			results = append(results, state.Entry{Type: state.EntryTool, Turn: turn, CallID: c, Name: "t", Message: &r})
		}
		run = run.Append(state.Entry{Type: state.EntryModel, Turn: turn, Message: &m, Usage: &state.Usage{ModelCalls: 1}})
		slices.Reverse(results)
		for _, r := range results {
			run = run.Append(r)
		}
		run = run.Append(state.Entry{Type: state.EntryTransition, Turn: turn, Reason: state.NextTurn, Version: int64(turn + 1), Messages: []state.Message{state.UserText(fmt.Sprint("go on ", turn))}})
	}
	stub := func(id string) state.Message {
		m := state.ToolResult("a", "removed "+id, false)
		m.ID = "stub-" + id
		return m
	}
	run = run.Append(state.Entry{Type: state.EntryCompacted, MessageIDs: []string{"a3", "a5", "a7"}, Messages: []state.Message{stub("a3"), stub("a5"), stub("a7")}})
	summary := state.UserText("summary")
	summary.ID = "summary"
	run = run.Append(state.Entry{Type: state.EntryCompacted, MessageIDs: []string{"m1", "a1", "b1"}, Messages: []state.Message{summary}})
	run, err := run.Move(state.EndCompleted, state.Entry{At: run.CreatedAt, Output: new("done")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if log, err = store.Log(t.Context(), run.ID, 0, 0); err != nil {
		t.Fatal(err)
	}
	return "/v1/runs/" + string(run.ID), log
}

// A gateway reads a log in pages, however large it is and however its entries are spread. The response is that of a
// gateway that reads all of it.
func TestLargeLogs(t *testing.T) {
	t.Parallel()
	plain := memstore.New(memstore.Config{})
	path, log := largeRun(t, plain, 1<<20)
	get := func(store state.Store, path, accept string) string {
		g, err := gateway.New(store, membus.New(), gateway.Config{StoreBudget: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil)
		r.Header.Set("Accept", accept)
		if g.Handler().ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("%s = %d %.300s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	export := func(f transcript.Format) string {
		var b bytes.Buffer
		if err := transcript.Write(&b, f, slices.Values(state.View(log))); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	view, rows := api.MessagesOf(state.View(log)), state.Audit(log)
	const most = 4 << 20 // of 42 MB
	for query, want := range map[string]string{
		"/messages":                     pageText(t, view, ""),
		"/messages?view=full":           pageText(t, api.MessagesOf(state.FullView(log)), ""),
		"/messages?view=session":        pageText(t, state.Session(log), ""),
		"/messages?limit=5&cursor=9":    pageText(t, view[9:14], "14"),
		"/messages?limit=1000&cursor=9": pageText(t, view[9:], ""),
		"/messages?cursor=99999":        pageText(t, view[:0], ""),
		"/messages?format=openai":       export(transcript.OpenAI),
		"/messages?format=anthropic":    export(transcript.Anthropic),
		"/turns":                        pageText(t, rows, ""),
		"/turns?limit=3&cursor=1":       pageText(t, rows[1:4], "4"),
	} {
		store := &weighed{Store: plain, left: -1}
		if got := get(store, path+query, "application/json"); got != want {
			t.Errorf("%s has %d bytes, want the %d bytes of the whole log", query, len(got), len(want))
		}
		if store.largest > most {
			t.Errorf("%s: a read of the log returns %d KiB, want at most %d KiB", query, store.largest>>10, most>>10)
		}
	}
	store := &weighed{Store: plain, left: -1}
	seen := 0
	for cursor := new(""); cursor != nil; {
		var page api.Page[struct {
			Seq int `json:"seq"`
		}]
		if err := json.Unmarshal([]byte(get(store, path+"/events?limit=1000&cursor="+*cursor, "application/json")), &page); err != nil || len(page.Items) == 0 {
			t.Fatal(len(page.Items), err)
		}
		for _, e := range page.Items {
			if seen++; e.Seq != seen {
				t.Fatalf("event %d follows %d events", e.Seq, seen-1)
			}
		}
		cursor = page.NextCursor
	}
	if seen != len(log) {
		t.Errorf("the pages of events have %d of %d", seen, len(log))
	}
	if n := strings.Count(get(store, path+"/events", "text/event-stream"), "\nid: "); n != len(log) {
		t.Errorf("the stream has %d of %d events", n, len(log))
	}
	if store.largest > most {
		t.Errorf("events: a read of the log returns %d KiB, want at most %d KiB", store.largest>>10, most>>10)
	}
}

func pageText[T any](t *testing.T, items []T, next string) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(api.NewPage(items, next)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// If the store fails while a gateway reads a log, the response is a problem, or ends early if a part of it was sent: it
// never looks complete.
func TestLargeLogOfAFailingStore(t *testing.T) {
	t.Parallel()
	plain := memstore.New(memstore.Config{})
	path, _ := largeRun(t, plain, 1<<18)
	for _, query := range []string{"/messages", "/messages?view=session", "/messages?format=anthropic", "/turns"} {
		for reads := 0; ; reads++ {
			store := &weighed{Store: plain, left: reads}
			g, err := gateway.New(store, membus.New(), gateway.Config{StoreBudget: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			aborted := false
			func() {
				defer func() { aborted = recover() == http.ErrAbortHandler }() //nolint:errorlint // net/http compares it so
				g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path+query, nil))
			}()
			failed := store.left < 0
			if complete := w.Code == http.StatusOK && !aborted; complete == failed {
				t.Fatalf("%s after %d reads: status %d, aborted: %t", query, reads, w.Code, aborted)
			}
			if !failed {
				if reads < 5 {
					t.Errorf("%s reads %d pages", query, reads)
				}
				break
			}
		}
	}
}
