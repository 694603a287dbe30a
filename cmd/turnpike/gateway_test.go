package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// atGateway returns a client of a gateway with a store.
func atGateway(t *testing.T, store state.Store) *api.Client {
	t.Helper()
	g, err := gateway.New(store, membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return api.New(server.URL)
}

// worked returns a client of a gateway with a worker whose tool echo returns its arguments.
func worked(t *testing.T) *api.Client {
	t.Helper()
	return api.New(workedAt(t))
}

// workedAt returns the address of a gateway like that of worked.
func workedAt(t *testing.T) string {
	t.Helper()
	store, b := memstore.New(memstore.Config{}), membus.New()
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(store, b, worker.Config{
		ID: "w1", Providers: map[string]model.Provider{"scripted": scripted.New()}, ShutdownGrace: time.Millisecond,
		Kinds: toolspec.Kinds(map[string]tool.Tool{"echo": tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			return tool.Result{Content: string(c.Arguments)}, nil
		})}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = w.Run(ctx) })
	all.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() { stop(); server.Close(); all.Wait() })
	return server.URL
}

// submit starts a run of an agent with this definition, and returns it when it first rests.
func submit(t *testing.T, c *api.Client, definition string) api.Run {
	t.Helper()
	if _, err := c.PutAgent(t.Context(), "a", []byte(definition)); err != nil {
		t.Fatal(err)
	}
	run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("go")}, "")
	if err != nil {
		t.Fatal(err)
	}
	if run, err = c.Wait(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	return run
}

// says runs a command line and returns its output on both streams.
func says(t *testing.T, c *api.Client, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := execute(t, c, strings.NewReader(""), &out, args...)
	return out.String(), err
}

// execute runs a command line.
func execute(t *testing.T, c *api.Client, in io.Reader, out io.Writer, args ...string) error {
	t.Helper()
	return executeIn(t.Context(), t, c, in, out, args...)
}

// executeIn runs a command line until a context ends.
func executeIn(ctx context.Context, t *testing.T, c *api.Client, in io.Reader, out io.Writer, args ...string) error {
	t.Helper()
	var line cli
	k, err := kong.New(&line, kong.ExplicitGroups(groups), kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := k.Parse(args)
	if err != nil {
		return err
	}
	e := newEnv(out, out, line.Output == "json", false)
	e.ctx, e.client, e.in, e.tenant = ctx, c, in, line.Tenant
	return parsed.Run(e)
}

// early is a store that examines two runs for a page, as one of many runs examines a thousand.
type early struct{ state.Store }

func (s early) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	page, err := s.Store.List(ctx, state.Filter{Tenant: f.Tenant, Cursor: f.Cursor, Limit: min(f.Limit, 2)})
	page.Runs = slices.DeleteFunc(page.Runs, func(st state.State) bool { return !f.Match(st) })
	return page, err
}

// ps lists the matching runs, even if the first pages have few or none.
func TestPsReadsOn(t *testing.T) {
	t.Parallel()
	c := atGateway(t, early{memstore.New(memstore.Config{})})
	if _, err := c.PutAgent(t.Context(), "a", []byte("name: a\nmodel: {provider: scripted}\n")); err != nil {
		t.Fatal(err)
	}
	var wanted []string // newest first
	for i := range 9 {
		run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("hi"), Metadata: map[string]string{"old": fmt.Sprint(i < 4)}}, "")
		if err != nil {
			t.Fatal(err)
		}
		if i < 4 {
			wanted = append([]string{run.ID}, wanted...)
		}
	}
	if got, err := says(t, c, "ps", "-q", "-m", "old=true"); err != nil || got != strings.Join(wanted, "\n")+"\n" {
		t.Errorf("ps printed %q, %v; want %q", got, err, wanted)
	}
	var page api.Page[api.Run]
	got, err := says(t, c, "-o", "json", "ps", "-q", "-m", "old=true", "--limit", "3")
	if err != nil || json.Unmarshal([]byte(got), &page) != nil || len(page.Items) != 3 || page.NextCursor == nil || page.Items[2].ID != wanted[2] {
		t.Errorf("ps --limit 3 -o json printed %s, %v", got, err)
	}
	if got, err := says(t, c, "ps", "-q", "--limit", "3"); err != nil || strings.Count(got, "\n") != 3 {
		t.Errorf("ps --limit 3 printed %q, %v", got, err)
	}
	if got, err := says(t, c, "-o", "json", "ps", "--agent", "none", "--limit", "1"); err != nil || !strings.Contains(got, `"items": []`) {
		t.Errorf("for no run: %s, %v", got, err)
	}
	if got, err := says(t, c, "ps", "-q", "-m", "old=true", "--text", "HI"); err != nil || got != strings.Join(wanted, "\n")+"\n" {
		t.Errorf("ps --text printed %q, %v; want %q", got, err, wanted)
	}
	if _, err := says(t, c, "ps", "--limit", "5000"); err != nil {
		t.Error(err)
	}
}

// Edited arguments apply to one call: if several wait, the command refuses.
func TestApproveWithArgumentsOneCall(t *testing.T) {
	t.Parallel()
	c := worked(t)
	run := submit(t, c, `{model: {provider: scripted, responses: [{tool_calls: [{name: echo, id: c1, arguments: {to: ann}}, {name: echo, id: c2, arguments: {to: bob}}]}, {text: done}]},
		tools: [{name: echo, approval: always}]}`)
	if _, err := says(t, c, "approve", run.ID, "--arguments", `{"to":"eve"}`); err == nil ||
		!strings.Contains(err.Error(), "--arguments applies to one call") || !strings.Contains(err.Error(), "c1 (echo") || !strings.Contains(err.Error(), "c2 (echo") {
		t.Fatalf("approve of two calls with the same arguments: %v", err)
	}
	for _, args := range [][]string{{"approve", run.ID, "c2", "--arguments", `{"to":"eve"}`}, {"approve", run.ID}} {
		if _, err := says(t, c, args...); err != nil {
			t.Fatal(err)
		}
		var err error
		if run, err = c.Wait(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
	}
	if run.Status != "completed" {
		t.Fatalf("the run is %s", run.Status)
	}
	messages, err := c.Messages(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Type == state.PartToolResult {
				results = append(results, p.Content)
			}
		}
	}
	if want := []string{`{"to":"ann"}`, `{"to":"eve"}`}; !slices.Equal(results, want) {
		t.Errorf("results %q, want %q", results, want)
	}
}

// tenants put changes only the given fields, and prints the resulting rights.
func TestTenantsPut(t *testing.T) {
	t.Parallel()
	c := atGateway(t, memstore.New(memstore.Config{}))
	put := func(want api.TenantSettings, args ...string) {
		t.Helper()
		args = append([]string{"tenants", "put", "acme"}, args...)
		printed, err := says(t, c, args...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Tenant(t.Context(), "acme")
		if diff := cmp.Diff(want, got.TenantSettings); err != nil || diff != "" {
			t.Errorf("after %q: %v\n%s", args, err, diff)
		}
		if listed, err := says(t, c, "tenants", "ls"); err != nil || printed != listed {
			t.Errorf("%q printed\n%s, and ls prints\n%s, %v", args, printed, listed, err)
		}
	}
	crm := []api.TenantSecret{{Name: "CRM", Hosts: []string{"a.example", "b.example"}}, {Name: "X"}}
	put(api.TenantSettings{})
	put(api.TenantSettings{FourEyes: true, Models: []string{"claude-*", "openai/*"}, Secrets: crm}, "--four-eyes", "--model", "claude-*,openai/*", "--secret", "CRM=a.example,CRM=b.example,X")
	put(api.TenantSettings{FourEyes: true, Suspended: true, Models: []string{"claude-*", "openai/*"}, Secrets: crm}, "--suspended")
	put(api.TenantSettings{FourEyes: true, Review: true, Hosts: []string{}, Models: []string{"gpt-*"}, MCPCommands: []string{"npx"}, Secrets: crm},
		"--no-suspended", "--review", "--model", "gpt-*", "--host", "none", "--mcp-command", "npx")
	put(api.TenantSettings{FourEyes: true, Review: true, Hosts: []string{}, Models: []string{"gpt-*"}, MCPCommands: []string{"npx"}, Secrets: crm, IndexedMetadata: []string{"user", "order"}},
		"--indexed-metadata", "user,order")
	put(api.TenantSettings{FourEyes: true, Review: true, Hosts: []string{}, Models: []string{"gpt-*"}, MCPCommands: []string{"npx"}, Secrets: crm}, "--indexed-metadata", "none")
	put(api.TenantSettings{Review: true, MCPCommands: []string{"npx"}}, "--four-eyes=false", "--model", "any", "--host", "any", "--secret", "any")
	put(api.TenantSettings{Review: true, MCPCommands: []string{"npx"}, Secrets: crm}, "--secret", "CRM=a.example,CRM=b.example,X")
	put(api.TenantSettings{Review: true, MCPCommands: []string{"npx"}}, "--secret", "own")
	put(api.TenantSettings{Suspended: true}, "--replace", "--suspended")
	if out, err := says(t, c, "tenants", "put", "Not A Name", "--review"); err == nil || out != "" {
		t.Errorf("an invalid name: %q, %v", out, err)
	}
}

// Commands that delete something report it, as an object for programs.
func TestCommandsSayWhatTheyDid(t *testing.T) {
	t.Parallel()
	c := atGateway(t, memstore.New(memstore.Config{}))
	for _, r := range []struct {
		prepare      []string
		args         []string
		text, object string
	}{
		{[]string{"agents", "put", agentFile(t)}, []string{"agents", "rm", "a"}, "removed a", `{"removed":"a"}`},
		{[]string{"tenants", "put", "acme"}, []string{"tenants", "rm", "acme"}, "removed the settings, schedules, hooks, triggers, memories, evaluations and files of acme, and suspended it", `{"removed":"acme"}`},
		{[]string{"keys", "create", "--role", "viewer"}, []string{"keys", "revoke", ""}, "revoked ID", `{"revoked":"ID"}`},
		{[]string{"agents", "put", agentFile(t)}, []string{"agents", "discard", "a"}, "discarded the draft of a", `{"discarded":"a"}`},
	} {
		if r.args[1] == "discard" {
			if _, err := says(t, c, "tenants", "put", "default", "--review"); err != nil {
				t.Fatal(err)
			}
		}
		for _, asJSON := range []bool{false, true} {
			if out, err := says(t, c, r.prepare...); err != nil {
				t.Fatal(out, err)
			}
			args, want, id := slices.Clone(r.args), r.text+"\n", ""
			if asJSON {
				args, want = append([]string{"-o", "json"}, args...), r.object
			}
			if last := &args[len(args)-1]; *last == "" {
				keys, err := c.Keys(t.Context())
				if err != nil || len(keys) != 1 {
					t.Fatal(keys, err)
				}
				id, *last = keys[0].ID, keys[0].ID
			}
			got, err := says(t, c, args...)
			if asJSON {
				got = strings.Join(strings.Fields(got), "")
			}
			if want = strings.ReplaceAll(want, "ID", id); err != nil || got != want {
				t.Errorf("%q printed %q, %v; want %q", args, got, err, want)
			}
		}
	}
}

func agentFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("name: a\nmodel: {provider: scripted}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A watcher of a run that waited before gets the hint to continue once: for the wait that is still open.
func TestWatchTellsOfTheWaitThatIs(t *testing.T) {
	t.Parallel()
	c := worked(t)
	run := submit(t, c, `{model: {provider: scripted, responses: [{tool_calls: [{name: echo, id: c1}]}, {tool_calls: [{name: echo, id: c2}]}, {text: done}]}, tools: [{name: echo, approval: always}]}`)
	if _, err := says(t, c, "approve", run.ID); err != nil {
		t.Fatal(err)
	}
	if run, err := c.Wait(t.Context(), run.ID); err != nil || run.Waiting == nil {
		t.Fatal(run.Status, err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(execute(t, c, nil, w, "watch", run.ID)) }()
	waits, hints := 0, 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "waiting_approval") {
			waits++
		}
		if !strings.Contains(lines.Text(), "continue with") {
			continue
		}
		if hints++; waits == 2 {
			if _, err := c.Signal(t.Context(), run.ID, api.SignalRequest{Approvals: []api.Approval{{CallID: "c2", Decision: "approve"}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := lines.Err(); err != nil || waits != 2 || hints != 1 {
		t.Errorf("%d waits, %d hints, %v; want 2, 1", waits, hints, err)
	}
}

// gc reports something that was already gone as not deleted.
func TestGCForgets(t *testing.T) {
	t.Parallel()
	c := worked(t)
	run := submit(t, c, `{model: {provider: scripted, responses: [{text: done}]}}`)
	e := newEnv(io.Discard, io.Discard, false, false)
	e.ctx, e.client = t.Context(), c
	for _, want := range []bool{true, false} {
		if gone, err := (&gcCmd{}).forget(e, run.ID); err != nil || gone != want {
			t.Errorf("deleted: %t, %v; want %t", gone, err, want)
		}
	}
}

// The argument - reads from the command's input stream.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	c := atGateway(t, memstore.New(memstore.Config{}))
	var out strings.Builder
	if err := execute(t, c, strings.NewReader("one\ntwo\n"), &out, "-o", "json", "batch", agentFile(t), "-"); err != nil {
		t.Fatal(err)
	}
	if list, err := c.List(t.Context(), nil); err != nil || len(list.Items) != 2 {
		t.Errorf("%d runs, %v: %s", len(list.Items), err, out.String())
	}
}
