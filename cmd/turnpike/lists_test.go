package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// pagesOf returns a client of a gateway that has a list in two pages, and records the requests for them. The second
// names another page if more is true.
func pagesOf(t *testing.T, more bool, first, second string) (*api.Client, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?"+r.URL.RawQuery)
		switch {
		case r.FormValue("cursor") == "":
			fmt.Fprintf(w, `{"items":[%s],"next_cursor":"second"}`, first)
		case r.FormValue("cursor") == "second" && more:
			fmt.Fprintf(w, `{"items":[%s],"next_cursor":"third"}`, second)
		case r.FormValue("cursor") == "second":
			fmt.Fprintf(w, `{"items":[%s],"next_cursor":null}`, second)
		default:
			t.Errorf("%s was requested", asked[len(asked)-1])
			fmt.Fprint(w, `{"items":[],"next_cursor":null}`)
		}
	}))
	t.Cleanup(s.Close)
	return api.New(s.URL), &asked
}

// A command lists as many items as its limit says, although a page has fewer.
func TestListsBeyondOnePage(t *testing.T) {
	t.Parallel()
	for command, test := range map[string]struct{ path, rest, item string }{
		"audit":                    {"/v1/audit", "", `{"target":%q}`},
		"batch ls":                 {"/v1/batches", "", `{"id":%q}`},
		"eval ls --agent a":        {"/v1/evaluations", "agent=a&", `{"id":%q}`},
		"files ls":                 {"/v1/files", "", `{"id":%q}`},
		"hooks ls":                 {"/v1/hooks", "", `{"name":%q}`},
		"memory ls":                {"/v1/memory:scopes", "", `{"scope":%q}`},
		"memory ls --scope tenant": {"/v1/memory", "scope=tenant&", `{"path":%q}`},
		"ps --agent a":             {"/v1/runs", "agent=a&", `{"id":%q}`},
		"schedules ls":             {"/v1/schedules", "", `{"name":%q}`},
		"triggers ls":              {"/v1/triggers", "", `{"name":%q}`},
		"webhooks pending":         {"/v1/webhooks/pending", "", `{"run_id":%q}`},
	} {
		item := func(name string) string { return fmt.Sprintf(test.item, name) }
		client, asked := pagesOf(t, true, item("i1")+","+item("i2"), item("i3"))
		out, err := says(t, client, append(strings.Fields(command), "--limit", "3")...)
		got := slices.DeleteFunc(strings.Fields(out), func(word string) bool { return !strings.HasPrefix(word, "i") })
		if err != nil || !slices.Equal(got, []string{"i1", "i2", "i3"}) {
			t.Errorf("%s printed %q, %v; want three items", command, out, err)
		}
		if len(*asked) != 2 || !sameQuery((*asked)[0], test.path, test.rest+"limit=3") || !sameQuery((*asked)[1], test.path, test.rest+"cursor=second&limit=1") {
			t.Errorf("%s requested %q", command, *asked)
		}
	}
}

// A list ends at its limit or without a cursor, and an empty page does not end it.
func TestUpTo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit int
		pages [][]int
		more  bool // behind the last page
		asked string
	}{
		{3, [][]int{{1, 2}, {3}}, true, "3 1"},
		{3, [][]int{{1, 2}, {3}}, false, "3 1"},
		{2, [][]int{{1, 2}}, true, "2"},
		{9, [][]int{{1}, {2}}, false, "9 8"},
		{2000, [][]int{{}, {1}}, false, "1000 1000"},
		{1001, [][]int{{1}, nil}, false, "1000 1000"},
		{5, [][]int{nil}, false, "5"},
	} {
		var asked []string
		examined := 0
		page, err := upTo(test.limit, func(cursor string, limit int) (api.Page[int], error) {
			n := len(asked)
			if asked = append(asked, fmt.Sprint(limit)); n > 0 && cursor != fmt.Sprint("c", n) || n == 0 && cursor != "" {
				t.Errorf("%+v: the command requests page %d with the cursor %q", test, n, cursor)
			}
			p := api.Page[int]{Items: test.pages[n]}
			if n < len(test.pages)-1 || test.more {
				p = api.NewPage(p.Items, fmt.Sprint("c", n+1))
			}
			examined += 10
			p.Examined = new(examined)
			return p, nil
		})
		if err != nil || page.Items == nil || !slices.Equal(page.Items, slices.Concat(test.pages...)) || (page.NextCursor != nil) != test.more || strings.Join(asked, " ") != test.asked || *page.Examined != examined {
			t.Errorf("%+v: %+v, %v; limits %q", test, page, err, asked)
		}
	}
	fails := errors.New("no answer")
	if _, err := upTo(1, func(string, int) (api.Page[int], error) { return api.Page[int]{}, fails }); !errors.Is(err, fails) {
		t.Errorf("an error of the gateway is %v", err)
	}
	if _, err := upTo(0, func(string, int) (api.Page[int], error) { t.Error("a page was read"); return api.Page[int]{}, nil }); err == nil {
		t.Error("the limit 0 is accepted")
	}
}

// sameQuery reports whether a request has this path and each of these parameters, in any order.
func sameQuery(request, path, query string) bool {
	got, params, _ := strings.Cut(request, "?")
	have, want := strings.Split(params, "&"), strings.Split(query, "&")
	slices.Sort(have)
	slices.Sort(want)
	return got == path && slices.Equal(have, want)
}

// show lists the runs below a run in the order in which they began, however many they are.
func TestTreeBeyondOnePage(t *testing.T) {
	t.Parallel()
	below := map[string][][]string{"r0": {{"r4", "r3"}, {"r2", "r1"}}, "r3": {{}, {"r5"}}} // the newest first
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages := below[r.FormValue("parent")]
		n, _ := strconv.Atoi(r.FormValue("cursor"))
		page := api.NewPage([]api.Run{}, "")
		if n < len(pages) {
			for _, id := range pages[n] {
				page.Items = append(page.Items, api.Run{ID: id, Agent: "a", Status: "running"})
			}
		}
		if n+1 < len(pages) {
			page.NextCursor = new(strconv.Itoa(n + 1))
		}
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	var out bytes.Buffer
	e := newEnv(&out, &out, false, false)
	e.ctx, e.client = t.Context(), api.New(s.URL)
	got, err := tree(e, "r0", "")
	const want = "└ r1 a running (-)\n└ r2 a running (-)\n└ r3 a running (-)\n  └ r5 a running (-)\n└ r4 a running (-)\n"
	if err != nil || got != want {
		t.Errorf("the tree is %v\n%s, want\n%s", err, got, want)
	}
}

// The JSON of a list has the cursor behind its last item.
func TestListsNameTheirRest(t *testing.T) {
	t.Parallel()
	for _, more := range []bool{true, false} {
		client, _ := pagesOf(t, more, `{"name":"i1"}`, `{"name":"i2"}`)
		out, err := says(t, client, "-o", "json", "hooks", "ls", "--limit", "2")
		var page api.Page[api.Hook]
		if err != nil || json.Unmarshal([]byte(out), &page) != nil || len(page.Items) != 2 || (page.NextCursor != nil) != more || more && *page.NextCursor != "third" {
			t.Errorf("printed %s, %v", out, err)
		}
	}
}

// A search that has reached its bound says so.
func TestPsOfABoundedSearch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  string // of the page
		says bool
	}{
		"bound": {`"next_cursor":null,"examined":1000,"complete":false`, true},
		"all":   {`"next_cursor":null,"examined":1000,"complete":true`, false},
		"more":  {`"next_cursor":"c","examined":1000,"complete":false`, false},
		"list":  {`"next_cursor":null`, false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"items":[{"id":"run_1"}],%s}`, c.end)
		}))
		out, err := says(t, api.New(s.URL), "ps", "--text", "tea", "--limit", "1")
		s.Close()
		if err != nil || strings.Contains(out, "only the newest 1000 matching runs were searched") != c.says || !strings.Contains(out, "run_1") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
