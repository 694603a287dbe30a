package mcptool

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serverMode makes the test binary an MCP server that misbehaves on demand.
const serverMode = "MCPTOOL_SERVER"

// notes names the directory in which it records what it receives.
const notes = "MCPTOOL_NOTES"

// bad returns the server that is this program.
func bad(t *testing.T) Server {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Command: []string{self}, Env: map[string]string{serverMode: "1"}}
}

func add(s *mcp.Server, name string, f func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
	s.AddTool(&mcp.Tool{Name: name, Description: name, InputSchema: map[string]any{"type": "object"}}, f)
}

func text(format string, args ...any) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil
}

// serveOnStdio runs the program as a server.
func serveOnStdio() {
	s := mcp.NewServer(&mcp.Implementation{Name: "bad", Version: "1"}, nil)
	add(s, "crash", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "panic: out of cheese")
		os.Exit(3)
		return nil, nil //nolint:nilnil // not reached
	})
	add(s, "hang", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { select {} })
	// It records, in a file each, that it has started and that it was told to stop.
	add(s, "waits", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := os.WriteFile(filepath.Join(os.Getenv(notes), "begun"), nil, 0o600); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, os.WriteFile(filepath.Join(os.Getenv(notes), "cancelled"), nil, 0o600)
	})
	add(s, "pid", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%d", os.Getpid())
	})
	add(s, "env", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%s", strings.Join(os.Environ(), "\n"))
	})
	add(s, "flood", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%s", strings.Repeat("x", maxMessage+1))
	})
	// The child holds its parent's streams and does not end by itself.
	add(s, "child", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		child := exec.Command("sleep", "1000")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return nil, err
		}
		return text("%d", child.Process.Pid)
	})
	add(s, "grow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add(s, "new", nil)
		return text("grown")
	})
	first, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || os.Getenv(serverMode) == hangsUp && strings.Contains(first, "server/discover") {
		fmt.Fprintln(os.Stderr, "what?")
		os.Exit(1)
	}
	_ = s.Run(context.Background(), &mcp.IOTransport{Reader: io.NopCloser(io.MultiReader(strings.NewReader(first), os.Stdin)), Writer: os.Stdout})
}

// hangsUp is the mode of a server that exits when it gets the newer greeting.
const hangsUp = "hangs up"

// old makes a server use the older protocol, without support for the newer greeting.
func old(s *mcp.Server) *mcp.Server {
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "server/discover" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "unknown method"}
			}
			return next(ctx, method, r)
		}
	})
	return s
}

func newServer() *mcp.Server { return mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil) }

// overHTTP serves an MCP server in this process.
func overHTTP(t *testing.T, s *mcp.Server) Server {
	t.Helper()
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(h.Close)
	return Server{URL: h.URL}
}

// asking is a tool of the older protocol that asks two questions in the middle of its call, and counts its
// starts and its ends.
func asking(t *testing.T, begun, ended chan<- string) Server {
	t.Helper()
	s := old(newServer())
	add(s, "order", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		begun <- "begun"
		var said []string
		for _, q := range []string{"How many?", "Sure?"} {
			a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: q, RequestedSchema: &jsonschema.Schema{
				Type: "object", Properties: map[string]*jsonschema.Schema{"v": {Type: "string"}}, Required: []string{"v"},
			}})
			if err != nil {
				return nil, err
			}
			if a.Action != "accept" {
				return text("%s", a.Action)
			}
			said = append(said, fmt.Sprint(a.Content["v"]))
		}
		ended <- "ended"
		return text("%s", strings.Join(said, ", "))
	})
	return overHTTP(t, s)
}

// soon waits for something that is about to happen.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s did not happen", what)
		}
	}
}

// zombie reports whether a process has ended but has not been reaped by its parent.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
