package mcptool

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// convert converts a server's result to one for the model.
func convert(r *mcp.CallToolResult) tool.Result {
	out := tool.Result{IsError: r.IsError}
	structured, err := canonical(r.StructuredContent)
	if err != nil || r.StructuredContent == nil {
		structured = nil
	}
	var texts []string
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			texts = append(texts, c.Text)
			// Servers repeat it as text, for clients that know nothing else.
			if structured != nil && string(tool.Canonical(json.RawMessage(c.Text))) == string(structured) {
				structured = nil
			}
		case *mcp.ImageContent:
			out.Images = append(out.Images, image(c.MIMEType, c.Data))
		case *mcp.AudioContent:
			texts = append(texts, fmt.Sprintf("[audio, %s, %d bytes: left out]", c.MIMEType, len(c.Data)))
		case *mcp.ResourceLink:
			texts = append(texts, link(c))
		case *mcp.EmbeddedResource:
			if c.Resource != nil {
				embedded(c.Resource, &texts, &out)
			}
		default:
			texts = append(texts, fmt.Sprintf("[%T: left out]", c))
		}
	}
	if structured != nil {
		texts = append(texts, string(structured))
	}
	out.Content = strings.Join(texts, "\n")
	return out
}

func image(mediaType string, data []byte) state.Image {
	return state.Image{MediaType: mediaType, Data: base64.StdEncoding.EncodeToString(data)}
}

func link(c *mcp.ResourceLink) string {
	text := fmt.Sprintf("[resource %s: %s", c.Name, c.URI)
	if c.MIMEType != "" {
		text += ", " + c.MIMEType
	}
	if c.Size != nil {
		text += fmt.Sprintf(", %d bytes", *c.Size)
	}
	text += "]"
	if c.Description != "" {
		text += " " + c.Description
	}
	return text
}

func embedded(r *mcp.ResourceContents, texts *[]string, out *tool.Result) {
	switch {
	case r.Text != "" || len(r.Blob) == 0:
		*texts = append(*texts, fmt.Sprintf("[resource %s]\n%s", r.URI, r.Text))
	case strings.HasPrefix(r.MIMEType, "image/"):
		out.Images = append(out.Images, image(r.MIMEType, r.Blob))
	default:
		*texts = append(*texts, fmt.Sprintf("[resource %s, %s, %d bytes: left out]", r.URI, r.MIMEType, len(r.Blob)))
	}
}
