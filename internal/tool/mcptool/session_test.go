package mcptool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A session in which a question has ended a call may still be executing that call, so no other call uses it.
func TestNoCallFollowsAQuestion(t *testing.T) {
	t.Parallel()
	server := old(newServer())
	add(server, "where", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%s", r.Session.ID())
	})
	add(server, "asks", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Sure?", RequestedSchema: &jsonschema.Schema{Type: "object"}})
		return nil, err
	})
	at, c := overHTTP(t, server), caller(t, Config{})
	where := ready(t, c, at, "where")
	first := try(t, where, tool.Call{})
	if again := try(t, where, tool.Call{}); first.Content == "" || again.Content != first.Content {
		t.Fatalf("two calls use the sessions %q and %q, want one", first.Content, again.Content)
	}
	if r := try(t, ready(t, c, at, "asks"), tool.Call{Idempotent: true}); r.Ask == nil {
		t.Fatalf("asks = %+v, want a question", r)
	}
	if after := try(t, where, tool.Call{}); after.IsError || after.Content == first.Content {
		t.Errorf("after the question = %+v, want another session than %s", after, first.Content)
	}
}

// An answer is given only to the question that a person has answered: a repeated call may ask another.
func TestAnswerToAnotherQuestion(t *testing.T) {
	t.Parallel()
	schema := func(kind string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"v": {Type: kind}}, Required: []string{"v"}}
	}
	for name, tt := range map[string]struct {
		second *mcp.ElicitParams
		asked  bool
	}{
		"the same":     {&mcp.ElicitParams{Message: "How many?", RequestedSchema: schema("string")}, false},
		"another text": {&mcp.ElicitParams{Message: "Delete how many?", RequestedSchema: schema("string")}, true},
		"another form": {&mcp.ElicitParams{Message: "How many?", RequestedSchema: schema("integer")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := old(newServer())
			var calls atomic.Int32
			add(server, "order", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				q := &mcp.ElicitParams{Message: "How many?", RequestedSchema: schema("string")}
				if calls.Add(1) > 1 {
					q = tt.second
				}
				a, err := r.Session.Elicit(ctx, q)
				if err != nil {
					return nil, err
				}
				return text("%s %v", a.Action, a.Content["v"])
			})
			at := overHTTP(t, server) // closed after the caller
			order := ready(t, caller(t, Config{}), at, "order")
			r := try(t, order, tool.Call{Idempotent: true})
			if r.Ask == nil {
				t.Fatalf("result = %+v, want a question", r)
			}
			r = try(t, order, tool.Call{Idempotent: true, Resume: &tool.Resume{State: r.Ask.State, Answer: "3"}})
			if tt.asked && (r.Ask == nil || !strings.HasPrefix(r.Ask.Question, tt.second.Message)) || !tt.asked && r.Content != "accept 3" {
				t.Errorf("the second question leads to %+v", r)
			}
		})
	}
}

// Calls of a server that cannot be reached take no place of those that reach it.
func TestFailedConnectionsTakeNoPlace(t *testing.T) {
	t.Parallel()
	server := newServer()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	var down atomic.Bool
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	c, at := caller(t, Config{Sessions: 2}), Server{URL: h.URL}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	held, err := c.acquire(ctx, "", at, noSecrets) // keeps the pool in use
	if err != nil {
		t.Fatal(err)
	}
	defer held.release(false)
	down.Store(true)
	for range 3 {
		if _, err := c.acquire(ctx, "", at, noSecrets); err == nil || !strings.Contains(err.Error(), "cannot be used") {
			t.Fatalf("acquire from a server that is down = %v", err)
		}
	}
	down.Store(false)
	l, err := c.acquire(ctx, "", at, noSecrets)
	if err != nil {
		t.Fatalf("acquire from a server that is up again = %v", err)
	}
	l.release(false)
}

// A server that no call uses any more is forgotten, however its last call ended.
func TestUnusedServersAreForgotten(t *testing.T) {
	t.Parallel()
	server := overHTTP(t, newServer())
	for name, call := range map[string]func(c *Caller, ctx context.Context) error{
		"a broken session": func(c *Caller, ctx context.Context) error {
			l, err := c.acquire(ctx, "", server, noSecrets)
			if err == nil {
				l.release(true)
			}
			return err
		},
		"no connection": func(c *Caller, ctx context.Context) error {
			if _, err := c.acquire(ctx, "", Server{URL: "http://127.0.0.1:1"}, noSecrets); err == nil {
				return errors.New("a session with no server")
			}
			return nil
		},
		"a call that gave up": func(c *Caller, ctx context.Context) error {
			l, err := c.acquire(ctx, "", server, noSecrets)
			if err != nil {
				return err
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := c.acquire(ended, "", server, noSecrets); err == nil {
				return errors.New("two sessions, one is allowed")
			}
			l.release(true)
			return nil
		},
	} {
		c := caller(t, Config{Sessions: 1})
		if err := call(c, t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.mu.Lock()
		if n := len(c.pools); n != 0 {
			t.Errorf("%s: %d servers are remembered, want none", name, n)
		}
		c.mu.Unlock()
	}
}

// Progress texts do not have the secrets of the server in them.
func TestProgressHasNoSecrets(t *testing.T) {
	t.Parallel()
	server := newServer()
	heard := make(chan struct{})
	add(server, "t", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Message: "half of " + core}); err != nil {
			return nil, err
		}
		select { // a note that arrives with the result may be lost
		case <-heard:
		case <-ctx.Done():
		}
		return text("done")
	})
	at, c := overHTTP(t, server), caller(t, Config{})
	at.Headers = map[string]string{"X-Key": "secret://KEY"}
	resolve := func(string, string) (string, error) { return core, nil }
	l, err := c.List(t.Context(), "", at, resolve)
	if err != nil {
		t.Fatal(err)
	}
	var told string
	if r := try(t, c.Tool(at, "t", nil, l, resolve), tool.Call{Progress: func(text string) { told = text; close(heard) }}); r.IsError {
		t.Errorf("result = %+v", r)
	}
	if want := "0: half of " + secret.Redacted; told != want {
		t.Errorf("progress %q, want %q", told, want)
	}
}

// Calls with other credentials, or of another tenant, use another session.
func TestSessionsAreNotShared(t *testing.T) {
	t.Parallel()
	server := newServer()
	add(server, "where", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("a key of %d bytes", len(r.Extra.Header.Get("X-Key"))) // the key itself would be redacted
	})
	at := overHTTP(t, server) // closed after the caller
	c, value := caller(t, Config{}), "first"
	at.Headers = map[string]string{"X-Key": "secret://KEY"}
	resolve := func(string, string) (string, error) { return value, nil }
	l, err := c.List(t.Context(), "", at, resolve)
	if err != nil {
		t.Fatal(err)
	}
	for _, rotated := range []string{"first", "second one", "first"} {
		value = rotated
		if got, want := try(t, c.Tool(at, "where", nil, l, resolve), tool.Call{}).Content, fmt.Sprintf("a key of %d bytes", len(value)); got != want {
			t.Errorf("the server gets %q, want %q", got, want)
		}
	}
	keys := map[string]string{}
	for name, one := range map[string]struct {
		tenant string
		server Server
	}{
		"first":         {"a", Server{URL: "https://x", Headers: map[string]string{"K": "v"}}},
		"another value": {"a", Server{URL: "https://x", Headers: map[string]string{"K": "w"}}},
		"another name":  {"a", Server{URL: "https://x", Headers: map[string]string{"L": "v"}}},
		"another URL":   {"a", Server{URL: "https://y", Headers: map[string]string{"K": "v"}}},
		"of a tenant":   {"b", Server{URL: "https://x", Headers: map[string]string{"K": "v"}}},
		"program":       {"a", Server{Command: []string{"p", "ab"}, Env: map[string]string{"K": "v"}}},
		"its arguments": {"a", Server{Command: []string{"p", "a", "b"}, Env: map[string]string{"K": "v"}}},
		"its variables": {"a", Server{Command: []string{"p", "ab"}, Env: map[string]string{"K": "w"}}},
	} {
		key := target{Server: one.server}.key(one.tenant)
		if other, taken := keys[key]; taken {
			t.Errorf("%s and %s share their sessions", name, other)
		}
		keys[key] = name
	}
}
