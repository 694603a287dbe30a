package natstool

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Kind is the kind of tools that NATS services serve and describe. It is safe for concurrent use.
type Kind struct {
	tool.Plain

	tool      *Tool
	catalogue *Catalogue
}

var _ tool.Kind = (*Kind)(nil)

// NewKind returns the kind for the services of the deployment with this prefix. The caller must keep the connection
// open, and closes it.
func NewKind(nc *nats.Conn, prefix string) *Kind {
	return &Kind{tool: New(nc, prefix), catalogue: NewCatalogue(nc, prefix)}
}

// Spec implements tool.Kind.
func (*Kind) Spec() tool.Spec { return toolspec.NATSSpec }

// Describe implements tool.Kind with a Catalogue.
func (k *Kind) Describe(ctx context.Context, tools []tool.Bound) map[string]tool.Description {
	if len(tools) == 0 {
		return nil
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return k.catalogue.Describe(ctx, tools[0].Tenant, names) // all tools are of one agent, and so of one tenant
}

// Call implements tool.Kind with a Tool.
func (k *Kind) Call(ctx context.Context, _ tool.Bound, c tool.Call) (tool.Result, error) {
	return k.tool.Call(ctx, c)
}
