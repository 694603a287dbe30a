package mcptool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A server that crashes only fails its call.
func TestCrash(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{Confinement: asTheyAre(t)}), bad(t)
	before := try(t, ready(t, c, s, "pid"), tool.Call{})
	r := try(t, ready(t, c, s, "crash"), tool.Call{})
	if !r.IsError || !strings.Contains(r.Content, "out of cheese") {
		t.Errorf("crash = %+v", r)
	}
	after := try(t, ready(t, c, s, "pid"), tool.Call{})
	if after.IsError || after.Content == before.Content {
		t.Errorf("after the crash = %+v, before %+v", after, before)
	}
}

// A server that hangs blocks its call until the time limit, while others are served.
func TestHang(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{}), bad(t)
	hang, pid := ready(t, c, s, "hang"), ready(t, c, s, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan error, 1)
	go func() {
		_, err := hang.Call(ctx, tool.Call{ID: "h", Arguments: []byte(`{}`)})
		hung <- err
	}()
	if r := try(t, pid, tool.Call{}); r.IsError {
		t.Errorf("next to the hung call = %+v", r)
	}
	cancel()
	if err := <-hung; !errors.Is(err, context.Canceled) {
		t.Errorf("hung call = %v", err)
	}
	if r := try(t, pid, tool.Call{}); r.IsError {
		t.Errorf("after the hung call = %+v", r)
	}
}

// No process that a server has started outlives its session.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{Confinement: asTheyAre(t)}), bad(t)
	var pids []int
	for _, name := range []string{"pid", "child"} {
		r := try(t, ready(t, c, s, name), tool.Call{})
		pid, err := strconv.Atoi(r.Content)
		if err != nil {
			t.Fatalf("%s = %+v", name, r)
		}
		pids = append(pids, pid)
	}
	c.Close()
	for _, pid := range pids {
		soon(t, "the end of the process", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) })
	}
	if _, err := c.List(t.Context(), "", s, noSecrets); err == nil {
		t.Error("a closed caller starts another")
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{Idle: time.Millisecond, Confinement: asTheyAre(t)}), bad(t)
	r := try(t, ready(t, c, s, "pid"), tool.Call{})
	pid, err := strconv.Atoi(r.Content)
	if err != nil {
		t.Fatalf("pid = %+v", r)
	}
	soon(t, "the end of the process", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	soon(t, "an empty table", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.pools) == 0
	})
}

func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{Processes: 1}), bad(t)
	hang, pid := ready(t, c, s, "hang"), ready(t, c, s, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan error, 1)
	go func() {
		_, err := hang.Call(ctx, tool.Call{ID: "h", Arguments: []byte(`{}`)})
		hung <- err
	}()
	soon(t, "the call", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range c.pools {
			return len(p.slots) == 1
		}
		return false
	})
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := pid.Call(short, tool.Call{ID: "p", Arguments: []byte(`{}`)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second call = %v, want it to wait", err)
	}
	cancel()
	<-hung
	if r := try(t, pid, tool.Call{}); r.IsError {
		t.Errorf("once it is free = %+v", r)
	}
}

// A server may keep in its session what a call has left there.
func TestTenantsShareNoSession(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{Confinement: asTheyAre(t)}), bad(t)
	impl := ready(t, c, s, "pid")
	pids := map[string]string{}
	for _, tenant := range []string{"acme", "other", "acme"} {
		r := try(t, impl, tool.Call{Tenant: tenant})
		if was, known := pids[tenant]; r.IsError || known && was != r.Content {
			t.Errorf("process of tenant %s = %+v, was %q", tenant, r, was)
		}
		pids[tenant] = r.Content
	}
	if pids["acme"] == pids["other"] {
		t.Errorf("two tenants use the process %s", pids["acme"])
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{}), bad(t)
	if r := try(t, ready(t, c, s, "flood"), tool.Call{}); !r.IsError || len(r.Content) > 4000 {
		t.Errorf("flood = %d bytes, %v", len(r.Content), r.IsError)
	}
	if r := try(t, ready(t, c, s, "pid"), tool.Call{}); r.IsError {
		t.Errorf("after the flood = %+v", r)
	}
}

// A program gets the secrets that its agent names and none of the worker's, and they do not reach the model.
func TestEnvironment(t *testing.T) {
	t.Setenv("OTHERS_SECRET", "hunter2")
	c, s := caller(t, Config{}), bad(t)
	s.Env["TOKEN"] = "Bearer secret://MINE"
	resolve := func(name, _ string) (string, error) { return "value-of-" + name, nil }
	l, err := c.List(t.Context(), "", s, resolve)
	if err != nil {
		t.Fatal(err)
	}
	r := try(t, c.Tool(s, "env", nil, l, resolve), tool.Call{})
	if !strings.Contains(r.Content, "TOKEN=Bearer [redacted]") || strings.Contains(r.Content, "value-of") || strings.Contains(r.Content, "hunter2") {
		t.Errorf("environment = %s", r.Content)
	}
}

func TestOnlyAdmittedProgramsStart(t *testing.T) {
	t.Parallel()
	c := caller(t, Config{Commands: []string{"npx"}})
	if _, err := c.List(t.Context(), "", bad(t), noSecrets); err == nil || !strings.Contains(err.Error(), "TURNPIKE_MCP_COMMANDS") {
		t.Errorf("List = %v", err)
	}
}

// No agent can reach addresses that only the worker can reach.
func TestAddressesAreGuarded(t *testing.T) {
	t.Parallel()
	guard, err := guard.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := New(guard, Config{})
	t.Cleanup(c.Close)
	for url, want := range map[string]string{
		overHTTP(t, newServer()).URL: "requests without TLS are not allowed",
		"https://localhost:443/mcp":  "TURNPIKE_HTTP_ALLOW",
	} {
		if _, err := c.List(t.Context(), "", Server{URL: url}, noSecrets); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("List of %s = %v, want %q in it", url, err, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	var seen []string
	inner := newServer()
	add(inner, "t", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("it is sesame") })
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return inner }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			seen = append(seen, r.Header.Get("Authorization"))
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	s := Server{URL: h.URL, Headers: map[string]string{"Authorization": "Bearer secret://OPEN"}}
	resolve := func(string, string) (string, error) { return "sesame", nil }
	c := caller(t, Config{})
	l, err := c.List(t.Context(), "", s, resolve)
	if err != nil {
		t.Fatalf("List = %v; refused: %q", err, seen)
	}
	if r := try(t, c.Tool(s, "t", nil, l, resolve), tool.Call{}); r.IsError || r.Content != "it is [redacted]" {
		t.Errorf("result = %+v", r)
	}
}

// A server of the older protocol asks in the middle of a call. The call is made again with the answers, if its
// tool says that this is safe (I4).
func TestInlineQuestions(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan string, 10), make(chan string, 10)
	s := asking(t, begun, ended)
	c := tool.Call{Idempotent: true}
	var asked []string
	for _, answer := range []string{"3", "decline?", ""} {
		r := try(t, ready(t, caller(t, Config{}), s, "order"), c)
		if r.Ask == nil {
			if r.IsError || r.Content != "3, decline?" {
				t.Errorf("result = %+v", r)
			}
			break
		}
		asked = append(asked, strings.Split(r.Ask.Question, "\n")[0])
		c.Resume = &tool.Resume{State: r.Ask.State, Answer: answer}
	}
	if diff := cmp.Diff([]string{"How many?", "Sure?"}, asked); diff != "" {
		t.Errorf("questions:\n%s", diff)
	}
	if len(begun) != 3 || len(ended) != 1 {
		t.Errorf("started %d times, ended %d times", len(begun), len(ended))
	}
}

func TestInlineQuestionsOfOtherToolsAreNotPassedOn(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan string, 10), make(chan string, 10)
	s := asking(t, begun, ended)
	r := try(t, ready(t, caller(t, Config{}), s, "order"), tool.Call{})
	if r.Ask != nil || !strings.HasPrefix(r.Content, "cancel\n[The server asked: \"How many?\"") {
		t.Errorf("result = %+v", r)
	}
	if len(begun) != 1 || len(ended) != 0 {
		t.Errorf("started %d times, ended %d times", len(begun), len(ended))
	}
}

func TestCancellationReachesTheServer(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*mcp.Server) *mcp.Server{
		"new": func(s *mcp.Server) *mcp.Server { return s },
		"old": old,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := prepare(newServer())
			begun, over := make(chan struct{}), make(chan struct{})
			add(server, "slow", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				close(begun)
				<-ctx.Done()
				close(over)
				return nil, ctx.Err()
			})
			s := overHTTP(t, server)
			slow := ready(t, caller(t, Config{}), s, "slow")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := slow.Call(ctx, tool.Call{ID: "c", Arguments: []byte(`{}`)})
				done <- err
			}()
			<-begun
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Call = %v", err)
			}
			<-over
		})
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	server := newServer()
	heard := make(chan struct{})
	add(server, "t", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Total: 100, Message: "step 0"}); err != nil {
			return nil, err
		}
		select { // a note that arrives with the result may be lost
		case <-heard:
		case <-ctx.Done():
		}
		return text("done")
	})
	at := overHTTP(t, server)
	var told []string
	r := try(t, ready(t, caller(t, Config{}), at, "t"), tool.Call{Progress: func(text string) {
		told = append(told, text)
		close(heard)
	}})
	if want := []string{"0 of 100: step 0"}; r.IsError || !slices.Equal(told, want) {
		t.Errorf("result = %+v, progress %q, want %q", r, told, want)
	}
}

// A server whose list of tools has no last page cannot be used.
func TestEndlessPages(t *testing.T) {
	t.Parallel()
	server := newServer()
	var asked atomic.Int32
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/list" && asked.Add(1) <= 4*maxPages {
				return &mcp.ListToolsResult{Tools: []*mcp.Tool{}, NextCursor: "next"}, nil
			}
			return next(ctx, method, r)
		}
	})
	_, err := caller(t, Config{}).List(t.Context(), "", overHTTP(t, server), noSecrets)
	if err == nil || !strings.Contains(err.Error(), "more than 100 pages") || asked.Load() > 2*maxPages { // once for each greeting
		t.Errorf("after %d pages: %v", asked.Load(), err)
	}
}

// A server that sends notifications without end fails its call, and says why.
func TestFloodOfNotifications(t *testing.T) {
	t.Parallel()
	server := newServer()
	var sent atomic.Int64
	add(server, "t", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for ctx.Err() == nil && sent.Add(1) < 1_000_000 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Total: 100, Message: "step"}); err != nil {
				return nil, err
			}
		}
		return text("done")
	})
	c, at := caller(t, Config{}), overHTTP(t, server)
	if r, err := ready(t, c, at, "t").Call(t.Context(), tool.Call{ID: "c", Arguments: []byte(`{}`), Progress: func(string) {}}); err == nil && !r.IsError || !strings.Contains(fmt.Sprint(r, err), "fewer notifications") {
		t.Errorf("the flooded call = %+v, %v", r, err)
	}
	if n := sent.Load(); n >= 1_000_000 {
		t.Errorf("%d notifications were accepted", n)
	}
}

// A server with tracing joins the trace of the call.
func TestTraceContext(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	s := newServer()
	add(s, "t", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%v", r.Params.Meta["traceparent"])
	})
	at := overHTTP(t, s)
	impl := ready(t, caller(t, Config{}), at, "t")
	for in, want := range map[string]string{parent: parent, "": "<nil>"} {
		if r := try(t, impl, tool.Call{TraceParent: in}); r.Content != want {
			t.Errorf("traceparent %q arrived as %q", in, r.Content)
		}
	}
}

func TestContents(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{}), program(t, "conformance/everything-server")
	audio := try(t, ready(t, c, s, "test_audio_content"), tool.Call{})
	if kept, remark := tool.CheckFiles(audio.Files); len(kept) != 1 || remark != "" || kept[0].MediaType != "audio/wav" || kept[0].Bytes != 44 {
		t.Errorf("audio = %+v %s", audio, remark)
	}
	for name, want := range map[string]tool.Result{
		"test_error_handling":    {Content: "this tool intentionally returns an error for testing", IsError: true},
		"test_embedded_resource": {Content: "[resource test://embedded-resource]\nThis is an embedded resource"},
	} {
		if diff := cmp.Diff(want, try(t, ready(t, c, s, name), tool.Call{})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	r := try(t, ready(t, c, s, "test_image_content"), tool.Call{})
	if kept, remark := tool.CheckImages(r.Images); len(kept) != 1 || remark != "" || kept[0].MediaType != "image/png" {
		t.Errorf("image = %+v %s", r, remark)
	}
}

// If a server has lost its sessions, the call had no effect and is made again.
func TestForgottenSession(t *testing.T) {
	t.Parallel()
	server := old(newServer())
	var calls atomic.Int32
	add(server, "t", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%d", calls.Add(1))
	})
	var handler atomic.Pointer[mcp.StreamableHTTPHandler]
	start := func() {
		handler.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	}
	start()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(h.Close)
	impl := ready(t, caller(t, Config{}), Server{URL: h.URL}, "t")
	for n := range 2 {
		if r := try(t, impl, tool.Call{}); r.IsError || r.Content != strconv.Itoa(n+1) {
			t.Errorf("call %d = %+v", n+1, r)
		}
		start()
	}
}

func TestServersThatKnowOnlyTheOlderGreeting(t *testing.T) {
	t.Parallel()
	c, s := caller(t, Config{}), bad(t)
	s.Env[serverMode] = hangsUp
	if r := try(t, ready(t, c, s, "pid"), tool.Call{}); r.IsError {
		t.Errorf("result = %+v", r)
	}
}
