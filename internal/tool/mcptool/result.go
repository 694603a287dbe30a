package mcptool

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

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
			// Servers repeat structured content as text, for clients that only know text.
			if structured != nil && string(tool.Canonical(json.RawMessage(c.Text))) == string(structured) {
				structured = nil
			}
		case *mcp.ImageContent:
			out.Images = append(out.Images, image(c.MIMEType, c.Data))
		case *mcp.AudioContent:
			out.Files = append(out.Files, tool.File("", c.MIMEType, c.Data))
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

// nameOf returns the last element of a URI as the name of a file, or "".
func nameOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	name := path.Base(u.Path)
	if len(name) > tool.MaxFileName || strings.Trim(name, "./") == "" || strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) {
		return ""
	}
	return name
}

func embedded(r *mcp.ResourceContents, texts *[]string, out *tool.Result) {
	switch {
	case r.Text != "" || len(r.Blob) == 0:
		*texts = append(*texts, fmt.Sprintf("[resource %s]\n%s", r.URI, r.Text))
	case strings.HasPrefix(r.MIMEType, "image/"):
		out.Images = append(out.Images, image(r.MIMEType, r.Blob))
	default:
		*texts = append(*texts, fmt.Sprintf("[resource %s: a file]", r.URI))
		out.Files = append(out.Files, tool.File(nameOf(r.URI), cmp.Or(r.MIMEType, "application/octet-stream"), r.Blob))
	}
}
