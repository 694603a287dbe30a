package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/tool/mcptool"
)

// ListedTool is a tool of an MCP server.
type ListedTool struct {
	Name    string          // that the server gives it
	Listing mcptool.Listing // that the agent's version has pinned
}

// Server returns the server of a tool of kind mcp.
func (t Tool) Server() mcptool.Server {
	return mcptool.Server{Command: t.Command, Env: t.Env, URL: t.URL, Headers: t.Headers}
}

// source reports whether t stands for all the tools of a server.
func (t Tool) source() bool { return t.Kind == KindMCP && t.Listed == nil }

// Sources returns the places in d.Tools that stand for all the tools of a server.
func (d Definition) Sources() []int {
	var places []int
	for i, t := range d.Tools {
		if t.source() {
			places = append(places, i)
		}
	}
	return places
}

// WithListings returns d with the tools of MCP servers in the places that stand for
// them. What it returns is compiled and never stored.
func (d Definition) WithListings(listings map[int]mcptool.Listing) Definition {
	var tools []Tool
	for i, t := range d.Tools {
		if !t.source() {
			tools = append(tools, t)
			continue
		}
		for _, l := range listings[i] {
			one := t
			one.Name, one.Description, one.Schema = givenName(t.Name, l.Name), l.Description, l.Schema
			one.Listed = &ListedTool{Name: l.Name, Listing: listings[i]}
			tools = append(tools, one)
		}
	}
	d.Tools = tools
	return d
}

var unfit = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// givenName returns the name under which a model knows the tool of a server. Models
// take fewer names than servers give; one that had to be changed ends with a part of
// its hash, so it stays different from others.
func givenName(prefix, name string) string {
	whole := name
	if prefix != "" {
		whole = prefix + "_" + name
	}
	if toolNamePattern.MatchString(whole) && whole != AskUser {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	fit := unfit.ReplaceAllString(whole, "_")
	return fit[:min(len(fit), 55)] + "_" + hex.EncodeToString(sum[:4])
}

// mayHave reports whether the agent has a tool of that name. What a server will list
// is not known before it is asked.
func (a *Agent) mayHave(name string) bool {
	return slices.ContainsFunc(a.Tools, func(t Tool) bool { return t.Name == name || t.source() })
}

func (c *checker) server(place string, t Tool) {
	if t.Listed != nil {
		return
	}
	if err := t.Server().Check(); err != nil {
		c.fault(place, "%v", err)
	}
	if t.Description != "" || len(t.Schema) > 0 {
		c.fault(place, "description and schema come from the MCP server")
	}
	for i, name := range t.Allow {
		if name == "" || slices.Contains(t.Allow[:i], name) {
			c.fault(place+".allow", "%q is empty or there twice", name)
		}
	}
}
