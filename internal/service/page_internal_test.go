package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// walk reads a list from its beginning in pages, which must make progress, and returns the items of each page.
func walk(t *testing.T, p Page, read func(Page) (api.Page[string], error)) string {
	t.Helper()
	var pages []string
	for len(pages) < 20 {
		page, err := read(p)
		if err != nil || page.Items == nil {
			t.Fatalf("after %q: %+v, %v", pages, page, err)
		}
		if pages = append(pages, strings.Join(page.Items, " ")); page.NextCursor == nil {
			break
		}
		p.Cursor = *page.NextCursor
	}
	return strings.Join(pages, ", ")
}

// A list in memory is one page, unless the caller sets a limit.
func TestCut(t *testing.T) {
	t.Parallel()
	five := strings.Fields("a b c d e")
	for _, test := range []struct {
		page  Page
		items []string
		want  string
	}{
		{Page{Limit: 2}, five, "a b c d e"},
		{Page{Limit: 2, Limited: true}, five, "a b, c d, e"},
		{Page{Limit: 5, Limited: true}, five, "a b c d e"},
		{Page{Limit: 9, Limited: true}, five, "a b c d e"},
		{Page{Limit: 2, Cursor: "3"}, five, "d e"},
		{Page{Limit: 1, Cursor: "3", Limited: true}, five, "d, e"},
		{Page{Limit: 2, Cursor: "5", Limited: true}, five, ""},
		{Page{Limit: 2, Cursor: "99", Limited: true}, five, ""},
		{Page{Limit: 2, Limited: true}, nil, ""},
	} {
		items := append([]string{}, test.items...)
		if got := walk(t, test.page, func(p Page) (api.Page[string], error) { return Cut(p, items) }); got != test.want {
			t.Errorf("%+v of %q: %q, want %q", test.page, test.items, got, test.want)
		}
	}
	for _, cursor := range []string{"x", "-1", "1.5"} {
		if _, err := Cut(Page{Limit: 2, Cursor: cursor}, five); err == nil || ProblemOf(err).Code != api.CodeInvalidCursor {
			t.Errorf("the cursor %s: %v", cursor, err)
		}
	}
}

// The items of a list that are read one by one are in order, without those that were deleted meanwhile. A page ends
// early when its items are large.
func TestReadPage(t *testing.T) {
	t.Parallel()
	k := &core{log: slog.New(slog.DiscardHandler)}
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	all := strings.Join(names, " ")
	some := func(from, to int) string { return strings.Join(names[from:to], " ") }
	gone := []string{"n00", "n09", "n19"}
	for what, test := range map[string]struct {
		page Page
		size int
		want string
		gone bool
	}{
		"no limit":   {Page{Limit: 50}, 1, all, false},
		"limit":      {Page{Limit: 9, Limited: true}, 1, some(0, 9) + ", " + some(9, 18) + ", " + some(18, 20), false},
		"all":        {Page{Limit: 20, Limited: true}, 1, all, false},
		"large":      {Page{Limit: 50}, ListBytes, some(0, 8) + ", " + some(8, 16) + ", " + some(16, 20), false},
		"half":       {Page{Limit: 50}, ListBytes / 16, some(0, 16) + ", " + some(16, 20), false},
		"large few":  {Page{Limit: 3, Cursor: "15", Limited: true}, ListBytes, some(15, 18) + ", " + some(18, 20), false},
		"deleted":    {Page{Limit: 10, Limited: true}, 1, some(1, 9) + ", " + some(10, 19), true},
		"from a cut": {Page{Limit: 50, Cursor: "18"}, 1, some(18, 20), false},
		"end":        {Page{Limit: 50, Cursor: "20"}, 1, "", false},
	} {
		got := walk(t, test.page, func(p Page) (api.Page[string], error) {
			return readPage(t.Context(), k, p, names, func(_ context.Context, name string) (string, int, error) {
				if test.gone && slices.Contains(gone, name) {
					return "", test.size, fmt.Errorf("%s: %w", name, state.ErrNotFound)
				}
				return name, test.size, nil
			})
		})
		if got != test.want {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
	fails := errors.New("no answer")
	if page, err := readPage(t.Context(), k, Page{Limit: 50}, names, func(_ context.Context, name string) (string, int, error) {
		if name == "n11" {
			return "", 0, fails
		}
		return name, 1, nil
	}); !errors.Is(err, fails) {
		t.Errorf("with a failed read: %+v, %v", page, err)
	}
	if _, err := readPage(t.Context(), k, Page{Limit: 50, Cursor: "x"}, names, func(context.Context, string) (string, int, error) { return "", 0, nil }); err == nil {
		t.Error("an invalid cursor is accepted")
	}
}

// shelf is a store that returns at most two runs on a page, and a cursor also after the last.
type shelf struct {
	state.Store

	runs  []state.RunID
	asked []string
}

func (s *shelf) List(_ context.Context, f state.Filter) (state.RunPage, error) {
	s.asked = append(s.asked, fmt.Sprint(f.Agent, f.Cursor, ":", f.Limit))
	from := 0
	if f.Cursor != "" {
		from = slices.Index(s.runs, state.RunID(f.Cursor)) + 1
	}
	var p state.RunPage
	for _, id := range s.runs[from:min(from+min(2, f.Limit), len(s.runs))] {
		p.Runs, p.Next = append(p.Runs, state.State{ID: id}), string(id)
	}
	return p, nil
}

// Runs are read page by page up to the limit, and the cursor is that behind the last.
func TestEachRun(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]struct{ seen, asked, next string }{
		1: {"r5", "a:1", "r5"},
		2: {"r5 r4", "a:2", "r4"},
		3: {"r5 r4 r3", "a:3 ar4:1", "r3"},
		9: {"r5 r4 r3 r2 r1", "a:9 ar4:7 ar2:5 ar1:4", ""},
	} {
		s := &shelf{runs: []state.RunID{"r5", "r4", "r3", "r2", "r1"}}
		var seen []string
		next, err := (&core{store: s}).eachRun(t.Context(), state.Filter{Agent: "a", Limit: limit}, func(st state.State) { seen = append(seen, string(st.ID)) })
		if got := strings.Join(seen, " "); err != nil || got != want.seen || next != want.next || strings.Join(s.asked, " ") != want.asked {
			t.Errorf("limit %d: %q, next %q, %v, pages %q; want %+v", limit, got, next, err, s.asked, want)
		}
	}
}

func TestParsePage(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]Page{
		"": {Limit: 50}, "cursor=c": {Limit: 50, Cursor: "c"}, "limit=1": {Limit: 1, Limited: true}, "limit=1000&cursor=7": {Limit: 1000, Cursor: "7", Limited: true},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParsePage(values); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", query, got, err, want)
		}
	}
	for _, limit := range []string{"0", "-1", "1001", "x", "1.0"} {
		if got, err := ParsePage(url.Values{"limit": {limit}}); err == nil {
			t.Errorf("the limit %s is %+v", limit, got)
		}
	}
}
