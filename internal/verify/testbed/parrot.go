package testbed

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ParrotTools returns the names of the tools of a Parrot.
func ParrotTools() []string {
	return []string{"asks", "asks_in_between", "bars", "crashes", "fails", "keeps", "paints", "refuses", "says"}
}

// Parrot returns an MCP server that repeats a secret wherever a server can return text: in lists,
// in results and refusals, in images, in questions and their state, in progress messages, and on
// its standard error.
func Parrot(secret string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "parrot", Version: "1"}, nil)
	form := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{
		"v": {Type: "string", Title: secret, Description: "as in " + secret},
	}}
	asked := &mcp.ElicitParams{Mode: "form", Message: "Is it " + secret + "?", RequestedSchema: form}
	content := []mcp.Content{&mcp.TextContent{Text: "It is " + secret}}
	tools := map[string]mcp.ToolHandler{
		"says": func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if token := r.Params.GetProgressToken(); token != nil {
				if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Message: "half of " + secret, Progress: 1}); err != nil {
					return nil, err
				}
			}
			return &mcp.CallToolResult{
				Content:           append(content, &mcp.ResourceLink{Name: secret, URI: "x:" + secret, Description: secret}, &mcp.AudioContent{MIMEType: "audio/" + secret}),
				StructuredContent: map[string]any{"it": secret, secret: []string{secret}},
			}, nil
		},
		"paints": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.ImageContent{MIMEType: "image/" + secret, Data: []byte("picture")},
				&mcp.ImageContent{MIMEType: "image/png", Data: []byte("png " + secret)},
			}}, nil
		},
		"fails": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Content: content}, nil
		},
		"refuses": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no " + secret}
		},
		"bars": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, mcp.URLElicitationRequiredError([]*mcp.ElicitParams{{Mode: "url", Message: "log in with " + secret, URL: "https://example.com/?k=" + secret, ElicitationID: "e"}})
		},
		"asks": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": asked}, RequestState: "state"}, nil
		},
		"keeps": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": asked}, RequestState: "state " + secret}, nil
		},
		"asks_in_between": func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			a, err := r.Session.Elicit(ctx, asked)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: append(content, &mcp.TextContent{Text: a.Action})}, nil
		},
		"crashes": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			// Any truncation of the output cuts one of them in two.
			fmt.Fprint(os.Stderr, strings.Repeat(secret+" ", 1000))
			os.Exit(3)
			return nil, nil //nolint:nilnil // not reached
		},
	}
	for _, name := range ParrotTools() {
		s.AddTool(&mcp.Tool{Name: name, Description: "knows " + secret, InputSchema: &jsonschema.Schema{Type: "object", Description: secret}}, tools[name])
	}
	return s
}

// ServeParrot serves a Parrot on the standard streams.
func ServeParrot(secret string) error {
	return Parrot(secret).Run(context.Background(), &mcp.StdioTransport{})
}
