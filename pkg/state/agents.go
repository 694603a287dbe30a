package state

import (
	"context"
	"encoding/json"
	"errors"
)

// DefaultTenant owns everything that names no tenant, or was stored before agents had one.
const DefaultTenant = "default"

// Agents keeps every version of each agent definition permanently. Names are scoped to a tenant:
// several tenants may use the same one. A name is any text that is not empty.
type Agents interface {
	// PutAgent stores a definition, in the form that json.Marshal gives it, as the next version of name, starting
	// from 1, also after a deletion. Unless always is set, it stores nothing if the latest version has the same
	// bytes, and returns that one: equal definitions of concurrent calls make one version. Other concurrent calls
	// get versions of their own. With always, a repetition after an unknown outcome may store the definition twice.
	PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (AgentVersion, error)

	// Agent returns one version of an agent, or the latest if version is 0, or ErrNotFound. A
	// deleted agent has no latest version, but its numbered ones stay for the runs that pinned
	// them.
	Agent(ctx context.Context, tenant, name string, version int) (AgentVersion, error)

	// AgentNames returns the names of the agents of a tenant, sorted. Definitions have up to a
	// megabyte each: callers that need them must read them one by one.
	AgentNames(ctx context.Context, tenant string) ([]string, error)

	// DeleteAgent removes an agent from AgentNames and its latest version, until PutAgent stores
	// another one. It returns ErrNotFound if the agent does not exist or was deleted; so does a
	// repetition.
	DeleteAgent(ctx context.Context, tenant, name string) error

	// Pin stores value under key permanently, unless key has a value, and returns the stored value:
	// the first of all pins of a key wins. An empty value pins nothing; Pin then returns the stored
	// value, or none. A key is any text; it belongs to no tenant.
	Pin(ctx context.Context, key string, value []byte) (kept []byte, err error)
}

// EachAgent visits the latest version of every agent of a tenant, by name, until visit returns
// an error, which it returns.
func EachAgent(ctx context.Context, agents Agents, tenant string, visit func(AgentVersion) error) error {
	names, err := agents.AgentNames(ctx, tenant)
	if err != nil {
		return err
	}
	for _, name := range names {
		v, err := agents.Agent(ctx, tenant, name, 0)
		if errors.Is(err, ErrNotFound) {
			continue // deleted in the meantime
		}
		if err != nil {
			return err
		}
		if err := visit(v); err != nil {
			return err
		}
	}
	return nil
}

// AgentVersion is one stored version of an agent definition.
type AgentVersion struct {
	Name       string          `json:"name"`
	Version    int             `json:"version"`
	Definition json.RawMessage `json:"definition"`
	CreatedAt  Time            `json:"created_at"`

	// Status is for readers: stores keep only published versions.
	Status string `json:"status,omitempty"`
}
