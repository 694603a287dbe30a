package worker

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// undescribed returns the names of the NATS tools whose definition leaves it to
// their service to say what they are.
func undescribed(def agent.Definition) []string {
	var names []string
	for _, t := range def.Tools {
		if t.Kind == agent.KindNATS && (t.Description == "" || len(t.Schema) == 0) {
			names = append(names, t.Name)
		}
	}
	return names
}

// described returns an agent whose tools are described by their services where its
// definition does not. What a service says may change from turn to turn; whoever
// does not want that writes it into the definition.
func (a *agents) described(ctx context.Context, key agentKey, b *bound) (*bound, error) {
	if a.describe == nil || len(b.undescribed) == 0 {
		return b, nil
	}
	said := a.describe(ctx, b.undescribed)
	if maps.EqualFunc(said, b.said, func(x, y tool.Description) bool { return x.Text == y.Text && bytes.Equal(x.Schema, y.Schema) }) {
		return b, nil
	}
	def := b.def
	def.Tools = slices.Clone(def.Tools)
	for i, t := range def.Tools {
		d, ok := said[t.Name]
		if !ok || !slices.Contains(b.undescribed, t.Name) {
			continue
		}
		if t.Description == "" {
			def.Tools[i].Description = d.Text
		}
		// A schema that cannot be used is none: the service still checks what it gets.
		if len(t.Schema) == 0 && agent.CheckArguments(d.Schema) == nil {
			def.Tools[i].Schema = d.Schema
		}
	}
	next, err := a.compile(key, def)
	if err != nil {
		return nil, fmt.Errorf("describe tools: %w", err)
	}
	next.def, next.undescribed, next.said = b.def, b.undescribed, said
	a.keep(key, next)
	return next, nil
}
