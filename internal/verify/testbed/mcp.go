package testbed

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MCPTool makes one call of a tool. key is the idempotency key of the call.
type MCPTool func(ctx context.Context, key string, arguments json.RawMessage) (string, error)

// MCPHandler returns an MCP server over HTTP that has these tools, by name, and keeps no sessions.
func MCPHandler(tools map[string]MCPTool) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "testbed", Version: "1"}, nil)
	for name, call := range tools {
		s.AddTool(&mcp.Tool{Name: name, Description: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				key, _ := r.Params.Meta["turnpike.dev/idempotencyKey"].(string)
				text, err := call(ctx, key, r.Params.Arguments)
				if err != nil {
					return nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
			})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
}
