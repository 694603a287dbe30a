package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// search lists the runs that match a text and the rest of the query, and returns their ids.
func (s *deployment) search(text string, query ...string) ([]string, api.Page[api.Run]) {
	s.t.Helper()
	q := url.Values{"text": {text}}
	for i := 0; i < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	page, err := s.client.List(s.t.Context(), q)
	if err != nil {
		s.t.Fatal(err)
	}
	ids := []string{}
	for _, r := range page.Items {
		ids = append(ids, r.ID)
	}
	return ids, page
}

// Search finds text in a run's input, output, error, question, metadata and id, in any case, and nowhere else.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("answers", `{model: {provider: scripted, responses: [{text: "The Übergabe is done"}]}}`)
	s.put("structured", `{loop: {type: single_call}, output_schema: {type: object}, model: {provider: scripted, responses: [{text: '{"colour": "Magenta"}'}]}}`)
	s.put("asks", `{tools: [{kind: human, name: ask_user}], model: {provider: scripted, responses: [{tool_calls: [{name: ask_user, arguments: {question: "Which Invoice?"}}]}, {text: ok}]}}`)
	s.put("fails", `{model: {provider: scripted, responses: [{error: auth}]}}`)
	run := func(body string) string {
		code, _, r := s.call("POST", "/v1/runs?wait=2m", body)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %v", body, code, r)
		}
		return r["id"].(string)
	}
	input := run(`{"agent":"answers","input":[{"role":"user","parts":[{"type":"text","text":"first"},{"type":"text","text":"Pay Order A-17"}]}],"metadata":{"ticket":"T-99"}}`)
	structured := run(`{"agent":"structured","input":"paint"}`)
	asks := run(`{"agent":"asks","input":"bill"}`)
	fails := run(`{"agent":"fails","input":"break"}`)
	for text, want := range map[string][]string{
		"order a-17": {input}, "ÜBERGABE": {input}, "t-99": {input}, strings.ToLower(input): {input},
		"magenta": {structured}, "which invoice": {asks}, "AUTH": {fails},
		"first pay": {}, "nobody": {}, "answers": {}, "%": {}, ".*": {},
	} {
		got, page := s.search(text)
		if !slices.Equal(got, want) {
			t.Errorf("%q was found in %v, want %v", text, got, want)
		}
		if page.NextCursor != nil || page.Examined == nil || *page.Examined != 4 || !*page.Complete {
			t.Errorf("%q: cursor %v, examined %v, complete %v; want all 4", text, page.NextCursor, page.Examined, page.Complete)
		}
	}
	if got, page := s.search("a", "agent", "fails", "view", "summary"); !slices.Equal(got, []string{fails}) || *page.Examined != 1 {
		t.Errorf("of one agent: %v, %d examined", got, *page.Examined)
	}
	if page, err := s.client.List(t.Context(), nil); err != nil || page.Examined != nil || page.Complete != nil {
		t.Errorf("a list without a search says %v %v, %v", page.Examined, page.Complete, err)
	}
}

// Runs with failures can be found whatever their end, also combined with a text.
func TestSearchTrouble(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	fill(t, store, 3)
	st := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "hello", AgentVersion: 1, Loop: "react",
		Tenant: state.DefaultTenant, Priority: state.Normal, Limits: state.Limits{MaxTurns: 5}, Trouble: state.Trouble{ToolErrors: 2},
	}
	st, err := st.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("say no. 9.")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), state.NewRun{State: st, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s := (&deployment{t: t}).over(store, newDeployment(t).bus)
	for query, want := range map[string]int{"trouble=true": 1, "trouble=true&text=no. 9": 1, "trouble=true&text=no. 1": 0, "trouble=true&agent=other": 0} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.client.List(t.Context(), q)
		if err != nil || len(page.Items) != want || page.Examined == nil || !*page.Complete || want == 1 && page.Items[0].ID != string(st.ID) {
			t.Errorf("%s: %+v of %v, %v; want %d", query, page.Items, page.Examined, err, want)
		}
	}
}

func TestSearchRefuses(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for query, word := range map[string]string{
		"text=": "empty", "text=a&text=b": "2 times", "text=a%00b": "control", "text=%FF%FE": "UTF-8", "text=" + strings.Repeat("%C3%A9", 257): "257 characters",
		"trouble=": "write true", "trouble=false": "write true", "trouble=true&trouble=true": "2 times",
	} {
		if code, _, p := s.call("GET", "/v1/runs?"+query, ""); code != http.StatusBadRequest || p["code"] != api.CodeInvalidRequest || !strings.Contains(fmt.Sprint(p["detail"]), word) {
			t.Errorf("%.30s = %d %v", query, code, p)
		}
	}
	for _, text := range []string{strings.Repeat("%C3%A9", 256), "a%0Ab", "a%09b"} {
		if code, _, p := s.call("GET", "/v1/runs?text="+text, ""); code != http.StatusOK {
			t.Errorf("%.30s = %d %v", text, code, p)
		}
	}
	for _, cursor := range []string{"x", ".", ".5", "x.5", "run_01JD0000000000000000000000.-1", "run_01JD0000000000000000000000.1001", "run_01JD0000000000000000000000.1.1"} {
		if code, _, p := s.call("GET", "/v1/runs?text=a&cursor="+cursor, ""); code != http.StatusBadRequest || p["code"] != api.CodeInvalidCursor {
			t.Errorf("cursor %s = %d %v", cursor, code, p)
		}
	}
}

// fill stores runs of an agent, each with its number in the input.
func fill(t *testing.T, store state.Store, n int) {
	t.Helper()
	for i := range n {
		at := time.UnixMilli(1_800_000_000_000 + int64(i))
		st := state.State{
			ID: state.RunID(state.RunPrefix + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String()), Agent: "hello", AgentVersion: 1, Loop: "react",
			Tenant: state.DefaultTenant, Priority: state.Normal, Limits: state.Limits{MaxTurns: 5},
		}
		st, err := st.Move(state.Submitted, state.Entry{At: state.At(at), Messages: []state.Message{state.UserText(fmt.Sprintf("say no. %d.", i))}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: st, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
}

// pages reads a search to its end.
func (s *deployment) pages(text string, query ...string) (ids []string, last api.Page[api.Run], n int) {
	s.t.Helper()
	cursor := ""
	for n = 1; ; n++ {
		q := query
		if cursor != "" {
			q = append(slices.Clone(query), "cursor", cursor)
		}
		var found []string
		found, last = s.search(text, q...)
		ids = append(ids, found...)
		if last.NextCursor == nil {
			return ids, last, n
		}
		if *last.Complete {
			s.t.Error("complete, and there is more")
		}
		cursor = *last.NextCursor
	}
}

// A search is paged, examines the newest 1,000 runs and reports that it stopped there.
func TestSearchStops(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	fill(t, store, 1010)
	s := (&deployment{t: t}).over(store, newDeployment(t).bus)
	ids, last, n := s.pages("no. 1", "limit", "7") // 1, 10 to 19, 100 to 199 and 1000 to 1009, without 1: the oldest ten are not examined
	if len(ids) != 10+100+10 || n != 18 || *last.Examined != 1000 || *last.Complete {
		t.Errorf("%d runs on %d pages, %d examined, complete %v; want 120 on 18, 1000 and no", len(ids), n, *last.Examined, *last.Complete)
	}
	if !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Error("the runs are not in order with each once")
	}
	if ids, last, _ := s.pages("no. 5."); len(ids) != 0 || *last.Complete {
		t.Errorf("found %v, which is not among the newest 1,000", ids)
	}
	if ids, last, _ := s.pages("no. 5.", "created_before", time.UnixMilli(1_800_000_000_900).UTC().Format(time.RFC3339Nano)); len(ids) != 1 || !*last.Complete {
		t.Errorf("with a narrower filter: %v, complete %v", ids, *last.Complete)
	}
	if ids, last, _ := s.pages("no.", "limit", "1000"); len(ids) != 1000 || *last.Complete {
		t.Errorf("%d runs, complete %v", len(ids), *last.Complete)
	}
}

// The last runs that match are on the last page, whether or not they fill it.
func TestSearchPagesToTheEnd(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	fill(t, store, 4)
	s := (&deployment{t: t}).over(store, newDeployment(t).bus)
	for limit, want := range map[string]int{"1": 4, "2": 2, "3": 2, "4": 1, "5": 1} {
		if ids, last, n := s.pages("say", "limit", limit); len(ids) != 4 || n != want || *last.Examined != 4 || !*last.Complete {
			t.Errorf("limit %s: %d runs on %d pages, %d examined, complete %v; want 4 on %d", limit, len(ids), n, *last.Examined, *last.Complete, want)
		}
	}
}

// A page ends early once the search has read 64 MiB, with a cursor.
func TestSearchReadsSomeBytes(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	fill(t, store, 20)
	s := (&deployment{t: t}).over(verbose{store, strings.Repeat("x", 5<<20)}, newDeployment(t).bus)
	_, first := s.search("say")
	ids, last, n := s.pages("say")
	if *first.Complete || *first.Examined >= 20 || n < 2 || len(ids) != 0 || *last.Examined != 20 || !*last.Complete {
		t.Errorf("the first page: %d examined, complete %v; then %v on %d pages, %d examined", *first.Examined, *first.Complete, ids, n, *last.Examined)
	}
}

// verbose is a store whose runs have a large input, in which a search finds nothing.
type verbose struct {
	state.Store

	text string
}

func (v verbose) Log(context.Context, state.RunID, int64, int) ([]state.Entry, error) {
	return []state.Entry{{Messages: []state.Message{{Role: state.RoleUser, Parts: []state.Part{{Type: state.PartThinking, Text: v.text}}}}}}, nil
}

// Runs that are deleted during a search are not found. A failing store returns an error, not an empty page.
func TestSearchWithoutLogs(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	fill(t, store, 3)
	b := newDeployment(t).bus
	for _, err := range []error{state.ErrNotFound, state.ErrFormat} {
		s := (&deployment{t: t}).over(logless{store, err}, b)
		if ids, page := s.search("say"); len(ids) != 0 || *page.Examined != 3 {
			t.Errorf("%v: found %v, %d examined", err, ids, *page.Examined)
		}
	}
	s := (&deployment{t: t}).over(logless{store, context.DeadlineExceeded}, b)
	if _, err := s.client.List(t.Context(), url.Values{"text": {"say"}}); err == nil {
		t.Error("a store that does not answer gives a page")
	}
}

// logless is a store that cannot read the logs of runs.
type logless struct {
	state.Store

	err error
}

func (l logless) Log(context.Context, state.RunID, int64, int) ([]state.Entry, error) {
	return nil, l.err
}
