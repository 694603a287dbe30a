package definition

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// undescribed are the tools of one kind whose definitions leave their description to the service behind them.
type undescribed struct {
	kind  tool.Kind
	tools []tool.Bound
}

func (a *Agents) undescribed(tenant string, of *agent.Agent) []undescribed {
	var all []undescribed
	for _, name := range a.cfg.Kinds.Names() {
		u := undescribed{kind: a.cfg.Kinds[name]}
		for _, d := range of.Definition.Tools {
			if t := of.Tool(d.Name); t != nil && t.Kind == name && t.Described && (d.Description == "" || len(d.Schema) == 0) {
				u.tools = append(u.tools, t.Bound(tenant, a.SecretOf(tenant)))
			}
		}
		if len(u.tools) > 0 {
			all = append(all, u)
		}
	}
	return all
}

// askAgain is the interval at which a worker asks kinds for the descriptions of services.
const askAgain = time.Second

// described returns an agent with the descriptions that its definition leaves to the services
// behind its tools. A service may change its description from turn to turn; an author who does
// not want that writes the description into the definition. The answers of the kinds hold for askAgain;
// then one turn asks, see mustAsk, and the others use the old answers until it has the new ones. The error is an
// *InvalidError.
func (a *Agents) described(ctx context.Context, key agentKey, b *bound) (*bound, error) {
	said := map[string]tool.Description{}
	for _, u := range b.undescribed {
		maps.Copy(said, a.ask(ctx, u))
	}
	if b.said != nil && maps.EqualFunc(said, b.said, func(x, y tool.Description) bool { return x.Text == y.Text && bytes.Equal(x.Schema, y.Schema) }) {
		return b, nil
	}
	def := b.def
	def.Tools = slices.Clone(def.Tools)
	for i, t := range def.Tools {
		d, ok := said[t.Name]
		if !ok || !b.leavesOpen(t.Name) {
			continue
		}
		if t.Description == "" {
			def.Tools[i].Description = d.Text
		}
		// Ignore an unusable schema: the service still checks its arguments.
		if len(t.Schema) == 0 && jsonschema.CheckArguments(d.Schema) == nil {
			def.Tools[i].Schema = d.Schema
		}
	}
	next, err := a.compile(key, def)
	if err != nil {
		b.asked.Store(0) // so that every turn reports it
		return nil, &InvalidError{fmt.Errorf("with the descriptions and schemas that services give of its tools, the definition is not valid: %w", err)}
	}
	next.def, next.undescribed, next.said = b.def, b.undescribed, said
	next.asked.Store(time.Now().UnixNano())
	a.put(key, next)
	return next, nil
}

// mustAsk reports whether the caller must ask the kinds for descriptions. While nothing is known, every caller must.
func (b *bound) mustAsk() bool {
	if len(b.undescribed) == 0 {
		return false
	}
	now, asked := time.Now().UnixNano(), b.asked.Load()
	age := time.Duration(now - asked) // negative if the clock was set back
	return b.said == nil || (age < 0 || age >= askAgain) && b.asked.CompareAndSwap(asked, now)
}

// ask requests the descriptions of tools from their kind. If the kind does not answer in time, or panics, the
// tools keep the descriptions in the definition.
func (a *Agents) ask(ctx context.Context, u undescribed) (said map[string]tool.Description) {
	ctx, cancel := context.WithTimeout(ctx, agent.DefaultToolTimeout)
	defer cancel()
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			a.cfg.Log.Error("the implementation of a tool kind panicked when asked for descriptions of tools; models read those in the definition", "panic", p.Value, "kind", u.tools[0].Kind, "stack", string(p.Stack), "hint", "fix the implementation of this tool kind; until then models read the descriptions in the agent's definition")
		}
	}()
	said, _ = timelimit.Call(ctx, a.cfg.Calls, timelimit.Straggle, func() map[string]tool.Description { return u.kind.Describe(ctx, u.tools) })
	return said
}

// leavesOpen reports whether the description of a tool comes from its service.
func (b *bound) leavesOpen(name string) bool {
	return slices.ContainsFunc(b.undescribed, func(u undescribed) bool {
		return slices.ContainsFunc(u.tools, func(t tool.Bound) bool { return t.Name == name })
	})
}
