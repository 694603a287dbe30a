package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/mcptool"
)

const (
	listTries = 3
	listPause = time.Second
)

// expand puts the tools of MCP servers into a definition. The first worker that needs
// them asks the server and pins what it lists; all others, and all runs of that version
// of the agent, go by the pin, so the model always sees the same tools and a server that
// is down does not keep a run from going on.
func (a *agents) expand(ctx context.Context, key agentKey, def agent.Definition) (agent.Definition, error) {
	listings := map[int]mcptool.Listing{}
	for _, i := range def.Sources() {
		name := fmt.Sprintf("mcp/%s/%d/%d", key.name, key.version, i)
		// What one turn asks for, others that come meanwhile get, too.
		found := a.listings.DoChan(name, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agent.DefaultToolTimeout)
			defer cancel()
			return a.pinned(ctx, name, def.Tools[i])
		})
		select {
		case r := <-found:
			if r.Err != nil {
				return agent.Definition{}, r.Err
			}
			listings[i], _ = r.Val.(mcptool.Listing)
		case <-ctx.Done():
			return agent.Definition{}, ctx.Err()
		}
	}
	if len(listings) == 0 {
		return def, nil
	}
	return def.WithListings(listings), nil
}

// pinned returns the tools of one server that a version of an agent has, or an
// *invalidAgentError if they were never pinned and the server does not list them.
func (a *agents) pinned(ctx context.Context, key string, t agent.Tool) (mcptool.Listing, error) {
	kept, err := a.store.Pin(ctx, key, nil)
	if err != nil {
		return nil, err
	}
	if len(kept) == 0 {
		now, err := a.list(ctx, t)
		if err != nil {
			return nil, &invalidAgentError{fmt.Errorf("the tools of MCP server %q are not known: %w", t.Server(), err)}
		}
		value, err := json.Marshal(now)
		if err != nil {
			return nil, fmt.Errorf("encode tools of MCP server: %w", err)
		}
		if kept, err = a.store.Pin(ctx, key, value); err != nil {
			return nil, err
		}
	}
	var l mcptool.Listing
	if err := json.Unmarshal(kept, &l); err != nil {
		return nil, fmt.Errorf("decode pinned tools of MCP server: %w", err)
	}
	return l, nil
}

// list asks a server, which may just be starting, for the tools that t allows.
func (a *agents) list(ctx context.Context, t agent.Tool) (mcptool.Listing, error) {
	for try := 1; ; try++ {
		l, err := a.listed(ctx, t.Server())
		if err == nil {
			return l.Pick(t.Allow)
		}
		if try == listTries || !pause(ctx, listPause) {
			return nil, err
		}
	}
}

// list asks an MCP server for its tools.
func (w *Worker) list(ctx context.Context, s mcptool.Server) (mcptool.Listing, error) {
	if w.cfg.MCPTools == nil {
		return nil, errors.New("this worker has no MCP client")
	}
	return w.cfg.MCPTools.List(ctx, s, w.resolve)
}

// resolve returns the secret of a name.
func (w *Worker) resolve(name string) (string, error) { return w.secret(secretScheme + name) }

// resumeOf returns the answer with which a call goes on; nil if it is a new one.
func resumeOf(asked json.RawMessage, answer *string) *tool.Resume {
	if asked == nil || answer == nil {
		return nil
	}
	return &tool.Resume{State: asked, Answer: *answer}
}
