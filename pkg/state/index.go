package state

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
)

// MaxIndexed is the maximum number of metadata keys that a tenant indexes.
const MaxIndexed = 4

// IndexName returns the name of a metadata key with a value, for indexes: 22 letters, digits, hyphens
// and underscores, whatever the key and the value are. Different pairs have different names.
func IndexName(key, value string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(key)) + ":" + key + value))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// IndexNames returns the run's names in an index, sorted, see Indexed.
func (n NewRun) IndexNames() []string {
	names := map[string]bool{}
	for _, key := range n.Indexed {
		if value, ok := n.State.Metadata[key]; ok {
			names[IndexName(key, value)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// IndexNames returns the index names of those pairs of f.Metadata whose key is in f.Indexed, each
// with the first run from which on the index has all runs with that pair. It returns none if f
// selects runs of all tenants, and none if f names a parent or a batch, which have fewer runs.
func (f Filter) IndexNames() map[string]RunID {
	if f.Tenant == "" || f.Parent != "" || len(f.Parents) > 0 || f.Batch != "" {
		return nil
	}
	names := map[string]RunID{}
	for key, value := range f.Metadata {
		if from, ok := f.Indexed[key]; ok {
			names[IndexName(key, value)] = from
		}
	}
	return names
}
