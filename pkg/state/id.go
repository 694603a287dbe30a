package state

import (
	"errors"
	"strings"
)

// RunPrefix starts every run id.
const RunPrefix = "run_"

// Shards is the number of shards over which runs are spread. It is fixed: the
// shard is part of every key and subject of a run.
const Shards = 256

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ParseRunID returns text as a RunID if it is "run_" and a ULID.
func ParseRunID(text string) (RunID, error) {
	id, ok := strings.CutPrefix(text, RunPrefix)
	if !ok || len(id) != 26 || id[0] > '7' || strings.Trim(id, crockford) != "" {
		return "", errors.New(`a run id is "run_" and 26 characters of Crockford's base 32, as in run_01JD3X9K3W8Q4V5N6M7P8R9S0T`)
	}
	return RunID(text), nil
}

// Shard returns the shard of a run, 0 to Shards-1. It hashes the id (FNV-1a),
// so runs that are created together spread.
func (id RunID) Shard() int {
	h := uint32(2166136261)
	for i := range len(id) {
		h ^= uint32(id[i])
		h *= 16777619
	}
	return int((h ^ h>>16) % Shards)
}
