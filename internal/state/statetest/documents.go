package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func testDocuments(t *testing.T, s state.AdminStore) {
	ctx := t.Context()
	if d, err := s.Document(ctx, state.KeyDocument, "a"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Document that does not exist = %s, %v", d, err)
	}
	put := func(kind state.DocumentKind, name, data string) {
		t.Helper()
		if err := s.PutDocument(ctx, kind, name, json.RawMessage(data)); err != nil {
			t.Fatal(err)
		}
	}
	put(state.KeyDocument, "a", `{"n":1}`)
	put(state.KeyDocument, "a", `{"n":2}`)
	put(state.KeyDocument, "b.*>c", `{"n":3}`)
	put(state.TenantDocument, "a", `{"n":4}`)
	if d, err := s.Document(ctx, state.KeyDocument, "a"); err != nil || string(d) != `{"n":2}` {
		t.Errorf("Document = %s, %v; want the latest", d, err)
	}
	all, err := s.Documents(ctx, state.KeyDocument)
	if want := []string{"a", "b.*>c"}; err != nil || !slices.Equal(slices.Sorted(maps.Keys(all)), want) || string(all["b.*>c"]) != `{"n":3}` {
		t.Errorf("Documents = %s, %v; want %v", all, err, want)
	}
	if names, err := s.DocumentNames(ctx, state.KeyDocument); err != nil || !slices.Equal(names, []string{"a", "b.*>c"}) {
		t.Errorf("DocumentNames = %q, %v", names, err)
	}
	if names, err := s.DocumentNames(ctx, state.SessionDocument); err != nil || len(names) != 0 {
		t.Errorf("DocumentNames of a kind without any = %q, %v", names, err)
	}
	for range 2 {
		if err := s.DeleteDocument(ctx, state.KeyDocument, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := s.Document(ctx, state.KeyDocument, "a"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("deleted Document = %s, %v", d, err)
	}
	if all, err := s.Documents(ctx, state.KeyDocument); err != nil || len(all) != 1 {
		t.Errorf("Documents after a deletion = %s, %v", all, err)
	}
	put(state.KeyDocument, "a", `{"n":5}`)
	if d, err := s.Document(ctx, state.KeyDocument, "a"); err != nil || string(d) != `{"n":5}` {
		t.Errorf("Document that was put again = %s, %v", d, err)
	}
}

// Documents are listed by the beginning of their names, in pages.
func testListDocuments(t *testing.T, s state.AdminStore) {
	ctx := t.Context()
	list := func(prefix string, limit int) (names []string) {
		t.Helper()
		for cursor := ""; ; {
			page, err := s.ListDocuments(ctx, state.KeyDocument, prefix, cursor, limit)
			if err != nil || len(page.Documents) > limit {
				t.Fatalf("ListDocuments of %q = %d documents of %d, %v", prefix, len(page.Documents), limit, err)
			}
			for _, d := range page.Documents {
				names = append(names, d.Name)
				if want := fmt.Sprintf("%d", len(d.Name)); string(d.Data) != want {
					t.Errorf("the document %q is %s, want %s", d.Name, d.Data, want)
				}
			}
			if page.Next == "" {
				return names
			}
			cursor = page.Next
		}
	}
	if names := list("", 3); len(names) != 0 {
		t.Errorf("without documents: %q", names)
	}
	// Wildcards of the servers have no special meaning here, and the order is that of bytes.
	names := []string{"a", "a%", "a*", "a/", "a/1", "a/10", "a/2", "a/é", "a>", "aB", "a_", "ab", "b"}
	for i := range names {
		name := names[(i*5)%len(names)]
		if err := s.PutDocument(ctx, state.KeyDocument, name, fmt.Appendf(nil, "%d", len(name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutDocument(ctx, state.TenantDocument, "a/3", json.RawMessage(`3`)); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string][]string{
		"": names, "a": names[:12], "a/": {"a/", "a/1", "a/10", "a/2", "a/é"}, "a/1": {"a/1", "a/10"}, "a*": {"a*"}, "a_": {"a_"}, "a%": {"a%"}, "c": nil,
	} {
		for _, limit := range []int{1, 2, 5, 100} {
			if got := list(prefix, limit); !slices.Equal(got, want) {
				t.Errorf("ListDocuments of %q in pages of %d = %q, want %q", prefix, limit, got, want)
			}
		}
	}
	first, err := s.ListDocuments(ctx, state.KeyDocument, "a/", "", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/", "a/1", "a/10"} {
		if err := s.DeleteDocument(ctx, state.KeyDocument, name); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := s.ListDocuments(ctx, state.KeyDocument, "a/", first.Next, 2)
	if err != nil || len(rest.Documents) != 2 || rest.Documents[0].Name != "a/2" {
		t.Errorf("ListDocuments with a cursor, after its document was deleted = %v, %v; want a page that begins with a/2", rest.Documents, err)
	}
}

// A document is replaced only if it is unchanged since it was read, by one of several writers.
func testReplaceDocument(t *testing.T, s state.AdminStore) {
	ctx := t.Context()
	replace := func(was, data string) error {
		raw := func(text string) json.RawMessage {
			if text == "" {
				return nil
			}
			return json.RawMessage(text)
		}
		return s.ReplaceDocument(ctx, state.DraftsOf("one"), "a.*>b", raw(was), raw(data))
	}
	for _, step := range []struct {
		was, data, stands string
		want              error
	}{
		{"", "", "", nil},
		{`{"n":1}`, `{"n":2}`, "", state.ErrChanged},
		{`{"n":1}`, "", "", state.ErrChanged},
		{"", `{"n":1}`, `{"n":1}`, nil},
		{"", `{"n":2}`, `{"n":1}`, state.ErrChanged},
		{"", "", `{"n":1}`, state.ErrChanged},
		{`{"n":2}`, "", `{"n":1}`, state.ErrChanged},
		{`{"n":1}`, `{"n":2}`, `{"n":2}`, nil},
		{`{"n":2}`, `{"n":2}`, `{"n":2}`, nil},
		{`{"n":2}`, "", "", nil},
		{"", `{"n":3}`, `{"n":3}`, nil},
	} {
		if err := replace(step.was, step.data); !errors.Is(err, step.want) || step.want == nil && err != nil {
			t.Errorf("replace %q by %q: %v, want %v", step.was, step.data, err, step.want)
		}
		got, err := s.Document(ctx, state.DraftsOf("one"), "a.*>b")
		if err != nil && !errors.Is(err, state.ErrNotFound) || string(got) != step.stands {
			t.Errorf("after replacing %q by %q the document is %q (%v), want %q", step.was, step.data, got, err, step.stands)
		}
	}
	const writers = 8
	for range 20 { // on a busy machine the writers may come one after another
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range writers {
			data := fmt.Sprintf(`{"writer":%d}`, i)
			if i == 0 {
				data = "" // deletes it
			}
			all.Go(func() {
				switch err := replace(`{"n":3}`, data); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, state.ErrChanged):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("ReplaceDocument succeeded for %d of %d concurrent writers that had read the same document, want 1", won.Load(), writers)
		}
		now, err := s.Document(ctx, state.DraftsOf("one"), "a.*>b")
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			t.Fatal(err)
		}
		if err := replace(string(now), `{"n":3}`); err != nil {
			t.Fatal(err)
		}
	}
}

// The audit of a tenant is read newest first, page by page.
func testAudit(t *testing.T, s state.AdminStore) {
	ctx := t.Context()
	if got, next, err := s.Audit(ctx, "one", "", 3); err != nil || len(got) != 0 || next != "" {
		t.Errorf("Audit of nothing = %s, %q, %v", got, next, err)
	}
	for i := range 7 {
		for _, tenant := range []string{"one", "two"} {
			if err := s.AppendAudit(ctx, tenant, fmt.Appendf(nil, `"%s %d"`, tenant, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var pages [][]string
	for cursor := ""; ; {
		page, next, err := s.Audit(ctx, "one", cursor, 3)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, e := range page {
			texts = append(texts, string(e))
		}
		if pages = append(pages, texts); next == "" {
			break
		}
		cursor = next
	}
	want := [][]string{{`"one 6"`, `"one 5"`, `"one 4"`}, {`"one 3"`, `"one 2"`, `"one 1"`}, {`"one 0"`}}
	if diff := cmp.Diff(want, pages); diff != "" {
		t.Errorf("pages of the audit:\n%s", diff)
	}
	for _, tenant := range []string{"one", "without-entries"} {
		if _, _, err := s.Audit(ctx, tenant, "no cursor", 3); err == nil {
			t.Errorf("Audit of tenant %s accepts the cursor \"no cursor\", want an error: the store did not issue it", tenant)
		}
	}
	for _, cursor := range []string{"no cursor", "0-0", "0", "-1", "1", "1-1", "00-1", "+", "-", "(1-1", "99999999999999999999-1", "1-99999999999999999999", "1 COUNT 9"} {
		if _, _, err := s.Audit(ctx, "one", cursor, 3); err != nil {
			if _, ok := errors.AsType[*state.InvalidCursorError](err); !ok {
				t.Errorf("Audit with the cursor %q: %v", cursor, err)
			}
		}
	}
}
