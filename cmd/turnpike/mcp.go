package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/tool/httptool"
	"github.com/turnpike-dev/turnpike/pkg/tool/mcptool"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

type mcpCmd struct {
	Ls mcpLsCmd `cmd:"" help:"List the tools of MCP servers, and the hash by which an agent pins them."`
}

type mcpLsCmd struct {
	Server     []string          `arg:"" help:"Agent file, URL, or behind -- a command with its arguments."`
	Header     map[string]string `help:"Header for a URL: NAME=VALUE; VALUE may have secret://NAME in it."`
	Allow      []string          `help:"List only these tools, by commas."`
	Timeout    time.Duration     `default:"1m" help:"How long a server may take."`
	SecretsDir string            `env:"TURNPIKE_SECRETS_DIR" help:"Directory with one file a secret."`
}

// mcpListing is what the command shows of one server.
type mcpListing struct {
	Server string    `json:"server"`
	Pin    string    `json:"pin"`
	Tools  []mcpTool `json:"tools"`
}

type mcpTool struct {
	Name string `json:"name"` // that the model sees
	mcptool.Listed
	Remote string `json:"remote_name"`
}

func (c *mcpLsCmd) Run(e *env) error {
	def, err := c.definition()
	if err != nil {
		return err
	}
	if len(def.Sources()) == 0 {
		return fmt.Errorf("agent %s has no tools of kind mcp", def.Name)
	}
	ctx, cancel := context.WithTimeout(e.ctx, c.Timeout)
	defer cancel()
	var all []mcpListing
	for _, i := range def.Sources() {
		one, err := c.list(ctx, def, i)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	var text strings.Builder
	for _, l := range all {
		fmt.Fprintf(&text, "%s\npin %s\n%s", l.Server, l.Pin, table("TOOL\tNAME THERE\tDESCRIPTION", l.Tools, func(t mcpTool) string {
			return fmt.Sprintf("%s\t%s\t%s", t.Name, t.Remote, firstLine(t.Description))
		}))
	}
	return e.print(all, strings.TrimSuffix(text.String(), "\n"))
}

// definition returns the agent of a file, or one with the server that the arguments
// name.
func (c *mcpLsCmd) definition() (agent.Definition, error) {
	first := c.Server[0]
	t := agent.Tool{Kind: agent.KindMCP, Allow: c.Allow}
	switch {
	case strings.HasPrefix(first, "http://") || strings.HasPrefix(first, "https://"):
		t.URL, t.Headers = first, c.Header
	case len(c.Server) == 1 && slices.ContainsFunc([]string{".yaml", ".yml", ".json"}, func(end string) bool { return strings.HasSuffix(first, end) }):
		if len(c.Allow)+len(c.Header) > 0 {
			return agent.Definition{}, errors.New("--allow and --header are for a URL or a command; an agent file has its own")
		}
		return agent.Load(first)
	default:
		t.Command = c.Server
	}
	return agent.Definition{Tools: []agent.Tool{t}}, t.Server().Check()
}

func (c *mcpLsCmd) list(ctx context.Context, def agent.Definition, i int) (mcpListing, error) {
	t := def.Tools[i]
	var allowed []string
	if u, err := url.Parse(t.URL); err == nil && u.Host != "" {
		// Whoever runs the command has chosen the address.
		allowed = []string{httptool.HostPort(u)}
	}
	guard, err := httptool.NewGuard(allowed)
	if err != nil {
		return mcpListing{}, err
	}
	caller := mcptool.New(guard, mcptool.Config{Commands: []string{"*"}})
	defer caller.Close()
	listing, err := caller.List(ctx, t.Server(), func(name string) (string, error) { return worker.Secret(c.SecretsDir, "secret://"+name) })
	if err != nil {
		return mcpListing{}, err
	}
	if listing, err = listing.Pick(t.Allow); err != nil {
		return mcpListing{}, fmt.Errorf("MCP server %q: %w", t.Server(), err)
	}
	out := mcpListing{Server: t.Server().String(), Pin: listing.Hash()}
	shown := agent.Definition{Tools: []agent.Tool{t}}.WithListings(map[int]mcptool.Listing{0: listing}).Tools
	for n, l := range listing {
		out.Tools = append(out.Tools, mcpTool{Name: shown[n].Name, Remote: l.Name, Listed: l})
	}
	return out, nil
}
