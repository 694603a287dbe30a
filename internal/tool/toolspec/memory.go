package toolspec

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Files is the settings of the kind Memory.
type Files struct {
	// Scope selects the runs that share the memory: tenant for all runs of the tenant, agent for those of the agent, or
	// metadata.KEY for those with the same value of a metadata key.
	Scope string `json:"scope,omitempty"`

	// MaxBytes is the maximum size of the paths and texts of all files together, in bytes. 0 means memory.DefaultBytes.
	MaxBytes int `json:"max_bytes,omitempty"`
}

// Limit returns the maximum size of the memory in bytes.
func (f Files) Limit() int { return cmp.Or(f.MaxBytes, memory.DefaultBytes) }

func checkFiles(d tool.Definition, f *Files) (tool.Needs, error) {
	var errs []error
	key, ok := memory.MetadataKey(f.Scope)
	switch {
	case f.Scope == "":
		errs = append(errs, tool.Invalid("scope", "it is missing: write tenant, agent, or metadata.KEY for one memory per value of that metadata key"))
	case strings.HasPrefix(f.Scope, "metadata.") && !ok:
		errs = append(errs, tool.Invalid("scope", "the key in %.160q is not valid: use 1 to 128 characters after metadata., without : and control characters", f.Scope))
	case f.Scope != memory.ScopeTenant && f.Scope != memory.ScopeAgent && !ok:
		errs = append(errs, tool.Invalid("scope", "it is %.80q: write tenant, agent or metadata.KEY", f.Scope))
	}
	if isZero(d, "max_bytes") || f.MaxBytes < 0 || f.MaxBytes > memory.MaxBytes {
		errs = append(errs, tool.Invalid("max_bytes", "%d is not between 1 and %d: write a number in that range, or omit it for %d", f.MaxBytes, memory.MaxBytes, memory.DefaultBytes))
	}
	if len(d.Schema) > 0 {
		errs = append(errs, tool.Invalid("schema", "a memory defines its own arguments: remove the schema"))
	}
	return tool.Needs{Stateful: true, Arguments: json.RawMessage(memory.Schema), Purpose: memory.Purpose, Metadata: key}, errors.Join(errs...)
}
