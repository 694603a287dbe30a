package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/programs"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/tool/mcptool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

type mcpCmd struct {
	Ls mcpLsCmd `cmd:"" help:"List the tools of MCP servers, with the hash that an agent pins."`
}

type mcpLsCmd struct {
	Server     []string          `arg:"" help:"Agent file, URL, or a command with its arguments after --."`
	Header     map[string]string `help:"Header for a URL: NAME=VALUE; VALUE may contain secret://NAME."`
	Allow      []string          `help:"List only these tools, separated by commas."`
	Timeout    time.Duration     `default:"1m" help:"Time limit for a server."`
	SecretsDir string            `env:"TURNPIKE_SECRETS_DIR" help:"Directory with one file per secret."`
	DataDir    string            `env:"TURNPIKE_DATA_DIR" default:".turnpike" help:"Data directory of turnpike dev, which contains the home of its programs."`
	Programs   app.Programs      `embed:""`
}

// mcpListing is the output for one server.
type mcpListing struct {
	Server string    `json:"server"`
	Pin    string    `json:"pin"`
	Tools  []mcpTool `json:"tools"`
}

type mcpTool struct {
	Name string `json:"name"` // the name that the model sees
	mcptool.Listed
	Remote string `json:"remote_name"`
}

func (c *mcpLsCmd) Run(e *env) error {
	if err := (definition.Secrets{Dir: c.SecretsDir}).CheckDir(); err != nil {
		return err
	}
	sources, err := c.sources()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(e.ctx, c.Timeout)
	defer cancel()
	var all []mcpListing
	for _, t := range sources {
		one, err := c.list(ctx, t)
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

// sources returns the servers in an agent file, or the server that the arguments name.
func (c *mcpLsCmd) sources() ([]tool.Bound, error) {
	first := c.Server[0]
	own := toolspec.Servers{Allow: c.Allow}
	switch {
	case strings.HasPrefix(first, "http://") || strings.HasPrefix(first, "https://"):
		own.URL, own.Headers = first, c.Header
	case len(c.Server) == 1 && slices.ContainsFunc([]string{".yaml", ".yml", ".json"}, func(end string) bool { return strings.HasSuffix(first, end) }):
		if len(c.Allow)+len(c.Header) > 0 {
			return nil, usagef("--allow and --header apply to a URL or a command only: set allow and headers in the agent file")
		}
		return c.sourcesOf(first)
	default:
		own.Command = c.Server
	}
	return []tool.Bound{{Definition: &tool.Definition{Kind: toolspec.MCP}, Settings: &own, Secret: c.secret}}, own.Check()
}

// sourcesOf returns the servers in an agent file.
func (c *mcpLsCmd) sourcesOf(file string) ([]tool.Bound, error) {
	def, err := agent.Load(file)
	if err != nil {
		return nil, named(err)
	}
	var sources []tool.Bound
	for i, t := range def.Tools {
		if t.Kind != toolspec.MCP {
			continue
		}
		own := &toolspec.Servers{}
		if len(t.Own) > 0 {
			if err := json.Unmarshal(t.Own, own); err != nil {
				return nil, fmt.Errorf("%s: tools[%d]: %w", file, i, err)
			}
		}
		if err := own.Check(); err != nil {
			return nil, fmt.Errorf("%s: tools[%d]: %w", file, i, err)
		}
		sources = append(sources, tool.Bound{Definition: &def.Tools[i], Settings: own, Secret: c.secret})
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("agent %s has no tools of kind mcp: give another agent file, or the URL or the command of an MCP server", def.Name)
	}
	return sources, nil
}

func (c *mcpLsCmd) secret(name, host string) (string, error) {
	return definition.Secrets{Dir: c.SecretsDir, Getenv: os.Getenv}.Find(state.DefaultTenant, name, host, policy.Policy{})
}

func (c *mcpLsCmd) list(ctx context.Context, t tool.Bound) (mcpListing, error) {
	own, ok := t.Settings.(*toolspec.Servers)
	if !ok {
		return mcpListing{}, fmt.Errorf("the settings of the tool have the unexpected type %T: report this bug in Turnpike", t.Settings)
	}
	var allowed []string
	if u, err := url.Parse(own.URL); err == nil && u.Host != "" {
		// Allow the host, because the user has named it on the command line.
		allowed = []string{guard.HostPort(u)}
	}
	guard, err := guard.New(allowed)
	if err != nil {
		return mcpListing{}, err
	}
	cfg := mcptool.Config{Commands: []string{"*"}}
	if own.URL == "" {
		if cfg.Confinement, err = confine.New(confine.Config(programs.Dev(c.Programs, c.DataDir, c.SecretsDir))); err != nil {
			return mcpListing{}, err
		}
	}
	caller := mcptool.New(guard, cfg)
	defer caller.Close()
	listing, err := caller.List(ctx, t.Tenant, own.Server, t.Secret)
	if err != nil {
		return mcpListing{}, err
	}
	if listing, err = listing.Pick(own.Allow); err != nil {
		return mcpListing{}, fmt.Errorf("MCP server %q: %w", own.Server, err)
	}
	pin, err := json.Marshal(listing)
	if err != nil {
		return mcpListing{}, err
	}
	shown, err := caller.Expand(t, pin)
	if err != nil {
		return mcpListing{}, err
	}
	out := mcpListing{Server: own.Server.String(), Pin: listing.Hash()}
	for n, l := range listing {
		out.Tools = append(out.Tools, mcpTool{Name: shown[n].Name, Remote: l.Name, Listed: l})
	}
	return out, nil
}
