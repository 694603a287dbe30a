package state

import (
	"context"
	"encoding/json"
	"errors"
)

// DefaultTenant owns everything that names no tenant, or was stored before agents had one.
const DefaultTenant = "default"

// Agents keeps every version of each agent definition permanently. Names are scoped to a tenant:
// several tenants may use the same one. A name is any text that is not empty, but names with a slash are
// safe only if all agents have the same tenant.
type Agents interface {
	// PutAgent stores a definition as the next version of name. The first version is 1, and a deletion does
	// not reset the numbers. The caller must pass the definition as json.Marshal encodes it, because stores
	// compare bytes: unless always is set, PutAgent stores nothing if the agent is not deleted and its latest
	// version has the same bytes, and returns that version. So concurrent calls with equal definitions and
	// without always make at most one version, unless another call changes the agent in between. A repetition
	// after an unknown outcome may store the definition twice with always, or after such a change.
	PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, always bool) (AgentVersion, error)

	// Agent returns one version of an agent, or the latest if version is 0, or ErrNotFound. A
	// deleted agent has no latest version, but its numbered ones stay for the runs that use them.
	Agent(ctx context.Context, tenant, name string, version int) (AgentVersion, error)

	// AgentNames returns the names of the agents of a tenant, without deleted ones, sorted.
	AgentNames(ctx context.Context, tenant string) ([]string, error)

	// DeleteAgent removes an agent from AgentNames until PutAgent stores another version. Until then the
	// agent has no latest version; Agent still returns its versions by their numbers. DeleteAgent returns
	// ErrNotFound if the agent does not exist or was deleted; so does a repetition.
	DeleteAgent(ctx context.Context, tenant, name string) error

	// Pin stores value under key permanently, unless key has a value, and returns the stored value:
	// the first of all pins of a key wins. An empty value pins nothing; Pin then returns the stored
	// value, or none. A key is any text that is not empty; it belongs to no tenant.
	Pin(ctx context.Context, key string, value []byte) (kept []byte, err error)
}

// EachAgent calls visit with the latest version of every agent of a tenant, in the order of their names.
// It returns the first error of the store or of visit. It omits agents that are deleted while it runs.
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

	// Guard identifies this version for NewRun.Guard: no other version of any agent has it. Agent sets it, unless the
	// store gives no guards.
	Guard string `json:"-"`

	// Status is empty in stores, which keep only published versions. The API sets it in its answers.
	Status string `json:"status,omitempty"`
}
