package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Memory files can be written, read, listed and deleted over HTTP, with the version that the caller requires.
func TestMemory(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	c := s.client("acme", access.Operator, access.Viewer)
	const scope, path = "metadata.user:ann@example.com", "notes/ann's tea.md"
	made, err := c.PutMemoryFile(t.Context(), scope, path, "likes <tea>\n", 0)
	if err != nil || made.Version != 1 || made.Path != path || made.Bytes != 12 || made.UpdatedBy == "" || made.RunID != "" {
		t.Fatalf("PutMemoryFile: %+v, %v", made, err)
	}
	if _, err := c.PutMemoryFile(t.Context(), scope, path, "x", 0); !errors.Is(err, api.ErrConflict) {
		t.Errorf("an existing file, version 0: %v", err)
	}
	if changed, err := c.PutMemoryFile(t.Context(), scope, path, "likes coffee", 1); err != nil || changed.Version != 2 {
		t.Errorf("PutMemoryFile: %+v, %v", changed, err)
	}
	if err := c.DeleteMemoryFile(t.Context(), scope, path, 1); !errors.Is(err, api.ErrConflict) {
		t.Errorf("deleted with an old version: %v", err)
	}
	if f, err := c.MemoryFile(t.Context(), scope, path); err != nil || *f.Content != "likes coffee" || f.Version != 2 {
		t.Errorf("MemoryFile: %+v, %v", f, err)
	}
	if _, err := c.PutMemoryFile(t.Context(), scope, "b", "x", api.AnyVersion); err != nil {
		t.Error(err)
	}
	page, err := c.MemoryFiles(t.Context(), scope, "", 1)
	if err != nil || len(page.Items) != 1 || page.Items[0].Path != "b" || page.Items[0].Content != nil || page.NextCursor == nil {
		t.Errorf("MemoryFiles: %+v, %v", page, err)
	}
	scopes, err := c.MemoryScopes(t.Context(), "", 0)
	if err != nil || len(scopes.Items) != 1 || scopes.Items[0].Scope != scope {
		t.Errorf("MemoryScopes: %+v, %v", scopes, err)
	}
	for at, want := range map[string][]string{
		"notes":          {"/memories/notes is a directory: ", "name a file in it"},
		"b/more":         {"/memories/b is a file, not a directory: ", "use a path that is not below it"},
		"b/more/further": {"/memories/b is a file, not a directory: ", "use a path that is not below it"},
	} {
		_, err := c.PutMemoryFile(t.Context(), scope, at, "x", api.AnyVersion)
		for _, part := range want {
			if !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), part) {
				t.Errorf("write %s: %v, want %q in it", at, err, part)
			}
		}
	}
	if err := c.DeleteMemoryFile(t.Context(), scope, "notes", api.AnyVersion); err != nil {
		t.Errorf("a directory: %v", err)
	}
	if _, err := c.MemoryFile(t.Context(), scope, path); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a deleted file: %v", err)
	}
	// Dots and slashes in names reach the gateway unchanged, and address no other file, memory or agent.
	if _, err := c.PutMemoryFile(t.Context(), scope, "/memories/whole", "x", 0); err != nil {
		t.Error(err)
	}
	if f, err := c.MemoryFile(t.Context(), scope, "whole"); err != nil || f.Path != "whole" {
		t.Errorf("a path as models write it: %+v, %v", f, err)
	}
	for _, p := range []string{".", "..", "a/..", "x/../.", "../agents/a", "//whole", "whole/"} {
		if err := c.DeleteMemoryFile(t.Context(), scope, p, api.AnyVersion); !errors.Is(err, api.ErrInvalid) {
			t.Errorf("the path %q: %v", p, err)
		}
	}
	if page, err := c.MemoryFiles(t.Context(), scope, "", 0); err != nil || len(page.Items) != 2 {
		t.Errorf("after such paths: %+v, %v", page, err)
	}
	if err := c.EraseMemory(t.Context(), scope); err != nil {
		t.Error(err)
	}
	if scopes, err := c.MemoryScopes(t.Context(), "", 0); err != nil || len(scopes.Items) != 0 {
		t.Errorf("after EraseMemory: %+v, %v", scopes, err)
	}
	if err := c.EraseMemory(t.Context(), scope); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("EraseMemory again: %v", err)
	}
}

// Invalid memory requests are refused with the reason.
// Pages of a memory have its files in the order of their paths, each once.
func TestMemoryIsListedByPath(t *testing.T) {
	t.Parallel()
	c := newHooked(t).client("acme", access.Operator, access.Viewer)
	var want []string
	for i := range 9 {
		name := fmt.Sprintf("%d.md", i)
		if _, err := c.PutMemoryFile(t.Context(), "tenant", name, "x", 0); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	var got []string
	for cursor := ""; ; {
		page, err := c.MemoryFiles(t.Context(), "tenant", cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Items {
			got = append(got, f.Path)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages have %v, want %v", got, want)
	}
}

func TestMemoryRefusals(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	token := s.key("acme", access.Author, access.Viewer)
	body := `{"content":"x"}`
	for _, c := range []struct{ method, path, match, body, want string }{
		{http.MethodGet, "/v1/memory", "", "", "scope is missing"},
		{http.MethodGet, "/v1/memory/a", "", "", "scope is missing"},
		{http.MethodDelete, "/v1/memory", "", "", "scope is missing"},
		{http.MethodPut, "/v1/memory/a", "", body, "scope is missing"},
		{http.MethodPut, "/v1/memory/a?scope=user", "", body, "use tenant, agent:NAME or metadata.KEY:VALUE"},
		{http.MethodPut, "/v1/memory/%2E%2E/a?scope=tenant", "", body, "is . or .."},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "three", body, "header If-Match"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", `"0", three`, body, "header If-Match"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", ` , `, body, "header If-Match"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "", `{"contents":"x"}`, "contents"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "", `{}`, "content is missing"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "", `{"content":null}`, "content is missing"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "", "{\"content\":\"caf\xe9\"}", "not UTF-8"},
		{http.MethodPut, "/v1/memory/a?scope=metadata.user:%ff", "", body, "not UTF-8"},
		{http.MethodDelete, "/v1/memory?scope=tenant", "3", "", "a whole memory has no version"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "", `{"content":"\u0000"}`, "control characters"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "", `{"content":"` + strings.Repeat("x", 300<<10) + `"}`, "at most 262144 are allowed"},
		{http.MethodPut, "/v1/memory/a?scope=tenant", "", `{"content":"` + strings.Repeat("<", 250<<10) + `"}`, "some characters need more bytes there"},
	} {
		header := http.Header{"Authorization": {"Bearer " + token}}
		if c.match != "" {
			header["If-Match"] = []string{c.match}
		}
		resp, text, p := ask(t, c.method, s.url+c.path, c.body, header)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(p.Detail, c.want) {
			t.Errorf("%s %s %.60s returned %d %s, want %q", c.method, c.path, c.body, resp.StatusCode, text, c.want)
		}
	}
}

// If-Match accepts a list of versions, one of which must be the file's.
func TestMemoryIfMatchLists(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	token := s.key("acme", access.Author, access.Viewer)
	for _, c := range []struct {
		match string
		want  int
	}{
		{`"5", "0"`, http.StatusCreated}, // version 1
		{`"2", "3"`, http.StatusPreconditionFailed},
		{`"1", "7"`, http.StatusOK}, // version 2
		{`"7",, W/"2"`, http.StatusOK},
		{`"7", *`, http.StatusOK},
		{`"7", "0"`, http.StatusPreconditionFailed},
	} {
		resp, text, _ := ask(t, http.MethodPut, s.url+"/v1/memory/a?scope=tenant", `{"content":"x"}`, http.Header{"Authorization": {"Bearer " + token}, "If-Match": {c.match}})
		if resp.StatusCode != c.want {
			t.Errorf("If-Match %s: %d %s, want %d", c.match, resp.StatusCode, text, c.want)
		}
	}
}

// A condition that is present and empty is refused: without it, the request would change any version. Several lines of
// a condition are one list. If-Match: * requires that the file exists.
func TestMemoryConditions(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	token := s.key("acme", access.Author, access.Viewer)
	for _, c := range []struct {
		method, path, header string
		lines                []string
		want                 int
	}{
		{http.MethodPut, "/a", "If-None-Match", []string{""}, http.StatusBadRequest},
		{http.MethodPut, "/a", "If-None-Match", []string{"*"}, http.StatusCreated},
		{http.MethodPut, "/a", "If-None-Match", []string{"*"}, http.StatusPreconditionFailed},
		{http.MethodPut, "/a", "If-None-Match", []string{"*", "*"}, http.StatusBadRequest},
		{http.MethodPut, "/a", "If-Match", []string{""}, http.StatusBadRequest},
		{http.MethodPut, "/a", "If-Match", []string{" , "}, http.StatusBadRequest},
		{http.MethodPut, "/a", "If-Match", []string{"", ""}, http.StatusBadRequest},
		{http.MethodPut, "/a", "If-Match", []string{`"1"`, "three"}, http.StatusBadRequest},
		{http.MethodPut, "/a", "If-Match", []string{`"7"`, `"8"`}, http.StatusPreconditionFailed},
		{http.MethodPut, "/a", "If-Match", []string{"", `"7"`}, http.StatusPreconditionFailed},
		{http.MethodPut, "/a", "If-Match", []string{`"7"`, `"1"`}, http.StatusOK},
		{http.MethodDelete, "/a", "If-Match", []string{""}, http.StatusBadRequest},
		{http.MethodDelete, "/a", "If-Match", []string{`"7"`, `"8"`}, http.StatusPreconditionFailed},
		{http.MethodDelete, "", "If-Match", []string{""}, http.StatusBadRequest},
		{http.MethodPut, "/b", "If-Match", []string{"*"}, http.StatusPreconditionFailed},
		{http.MethodDelete, "/b", "If-Match", []string{"*"}, http.StatusPreconditionFailed},
		{http.MethodDelete, "/b", "If-Match", []string{`"2"`}, http.StatusPreconditionFailed},
		{http.MethodPut, "/a", "If-Match", []string{"*"}, http.StatusOK},
		{http.MethodDelete, "/a", "If-Match", []string{`"7"`, `"3"`}, http.StatusNoContent},
		{http.MethodPut, "/a", "If-Match", []string{"*"}, http.StatusPreconditionFailed},
		{http.MethodPut, "/a", "If-Match", []string{`"0"`}, http.StatusCreated},
	} {
		body := ""
		if c.method == http.MethodPut {
			body = `{"content":"x"}`
		}
		resp, text, p := ask(t, c.method, s.url+"/v1/memory"+c.path+"?scope=tenant", body, http.Header{"Authorization": {"Bearer " + token}, c.header: c.lines})
		if resp.StatusCode != c.want || c.want == http.StatusBadRequest && !strings.Contains(p.Detail, "header "+c.header) || c.path == "/b" && !strings.Contains(p.Detail, "there is no file") {
			t.Errorf("%s %s with %s %q: %d %s, want %d", c.method, c.path, c.header, c.lines, resp.StatusCode, text, c.want)
		}
	}
}

// A run of an agent whose memory depends on a metadata key must have that key: alone, in a batch, and from a
// schedule.
func TestMissingMemoryKey(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	c := s.client("acme", access.Author, access.Submitter, access.Viewer)
	definition := "model: {provider: scripted, name: m}\ntools: [{name: notes, kind: memory, scope: metadata.user}]\n"
	if _, err := c.PutAgent(t.Context(), "a", []byte(definition)); err != nil {
		t.Fatal(err)
	}
	const want = `metadata.user is missing or empty, and tools[0] of the agent, "notes"`
	req := api.SubmitRequest{Agent: "a", Input: api.Text("x")}
	_, alone := c.Submit(t.Context(), req, "")
	_, batch := c.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{req}}, "")
	_, timed := c.PutSchedule(t.Context(), "s", api.ScheduleSettings{Cron: "@daily", Run: req})
	for name, err := range map[string]error{"alone": alone, "batch": batch, "schedule": timed} {
		if !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	req.Metadata = map[string]string{"user": strings.Repeat("x", 257)}
	if _, err := c.Submit(t.Context(), req, ""); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), "metadata.user has 257 bytes") {
		t.Errorf("a value of 257 bytes: %v", err)
	}
	req.Metadata = map[string]string{"user": "ann"}
	if _, err := c.Submit(t.Context(), req, ""); err != nil {
		t.Error(err)
	}
}

// Deleting a tenant deletes its memories. No tenant can read the memories of another.
func TestMemoryOfATenant(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	admin := s.client("*", access.Admin)
	for _, tenant := range []string{"acme", "other"} {
		if _, err := admin.PutTenant(t.Context(), tenant, api.TenantSettings{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.client(tenant, access.Operator).PutMemoryFile(t.Context(), "tenant", "a", tenant, 0); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := s.client("acme", access.Viewer).MemoryFile(t.Context(), "tenant", "a"); err != nil || *f.Content != "acme" {
		t.Errorf("%+v, %v", f, err)
	}
	if err := admin.DeleteTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int{"acme": 0, "other": 1} {
		if names, err := s.store.DocumentNames(t.Context(), state.MemoriesOf(tenant)); err != nil || len(names) != want {
			t.Errorf("tenant %s has memories %v, %v", tenant, names, err)
		}
	}
}
