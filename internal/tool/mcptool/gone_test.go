package mcptool

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A server over HTTP that loses its connections, or goes away, in the middle of a call only fails that call.
func TestConnectionIsLost(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*mcp.Server) *mcp.Server{
		"new": func(s *mcp.Server) *mcp.Server { return s },
		"old": old,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := prepare(newServer())
			var h *httptest.Server
			var begun atomic.Int32
			told := make(chan string, 1)
			add(server, "crash", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				begun.Add(1)
				h.CloseClientConnections()
				return text("nobody hears this")
			})
			add(server, "crash late", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				begun.Add(1)
				if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
					return nil, err
				}
				<-told
				h.CloseClientConnections()
				return text("nobody hears this")
			})
			add(server, "fine", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("fine") })
			h = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
			t.Cleanup(h.Close)
			c, s := caller(t, Config{}), Server{URL: h.URL}
			crash, late, fine := ready(t, c, s, "crash"), ready(t, c, s, "crash late"), ready(t, c, s, "fine")
			if r := try(t, crash, tool.Call{}); !r.IsError {
				t.Errorf("crash = %+v", r)
			}
			if r := try(t, late, tool.Call{Progress: func(text string) { told <- text }}); !r.IsError {
				t.Errorf("crash in the middle of an answer = %+v", r)
			}
			if r := try(t, fine, tool.Call{}); r.IsError || r.Content != "fine" {
				t.Errorf("after it = %+v", r)
			}
			if n := begun.Load(); n != 2 {
				t.Errorf("two calls were started %d times (I4)", n)
			}
		})
	}
}

// A cancellation also reaches a program before it is ended.
func TestCancellationReachesTheProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, s := caller(t, Config{Confinement: testbed.Confinement(t, confine.Config{Write: []string{dir}})}), bad(t)
	s.Env[notes] = dir
	wrote := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	}
	waits := ready(t, c, s, "waits")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := waits.Call(ctx, tool.Call{ID: "c", Arguments: []byte(`{}`)})
		done <- err
	}()
	soon(t, "the call", wrote("begun"))
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Call = %v", err)
	}
	soon(t, "the cancellation", wrote("cancelled"))
}
