package state

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// RunPrefix starts every run id.
const RunPrefix = "run_"

// Shards is the number of shards that runs are spread over. It is fixed: the shard of a run is part of its
// keys in Redis and of the subject of its turns.
const Shards = 256

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ParseRunID returns text as a RunID if it is "run_" and a ULID.
func ParseRunID(text string) (RunID, error) {
	id, ok := strings.CutPrefix(text, RunPrefix)
	if !ok || len(id) != 26 || id[0] > '7' || strings.Trim(id, crockford) != "" {
		return "", errors.New(`not a run id: pass the id as Turnpike returned it, "run_" and 26 digits and capital letters, as in run_01JD3X9K3W8Q4V5N6M7P8R9S0T`)
	}
	return RunID(text), nil
}

// Shard returns the shard of a run, 0 to Shards-1. It hashes the id (FNV-1a), so that runs created
// together spread over the shards.
func (id RunID) Shard() int {
	h := uint32(2166136261)
	for i := range len(id) {
		h ^= uint32(id[i])
		h *= 16777619
	}
	return int((h ^ h>>16) % Shards)
}

// ChildID returns the id of the run that answers a call of another run, with at as the time in the id.
// Equal arguments give the same id, so retries start the run once.
func ChildID(parent RunID, turn int, callID string, at Time) RunID {
	return derived(at, fmt.Sprintf("%s/%d/%s", parent, turn, callID))
}

// FirstIDAt returns the smallest id that a run created at a time can have: older runs follow it in
// a list.
func FirstIDAt(at time.Time) RunID {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at)) // fails after the year 10889
	return RunID(RunPrefix + id.String())
}

// MadeAt returns the time in an id, or the zero Time if id is not a valid id.
func (id RunID) MadeAt() Time {
	parsed, err := ulid.Parse(strings.TrimPrefix(string(id), RunPrefix))
	if err != nil {
		return Time{}
	}
	return At(ulid.Time(parsed.Time()))
}

// ReplayID returns the id of the run that a replay of a dead-lettered submission
// creates: the tenant's dead letter number seq, which was stored at the time at.
// Every replay of the letter has the same id. Each tenant numbers its own letters.
func ReplayID(tenant string, seq uint64, at Time) RunID {
	return derived(at, fmt.Sprintf("dead/%s/%d/%d", tenant, seq, at.UnixMilli()))
}

// derived returns an id for that time, derived from name.
func derived(at Time, name string) RunID {
	sum := sha256.Sum256([]byte(name))
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at.Time)) // fails after the year 10889
	_ = id.SetEntropy(sum[:10])             // fails for other than 10 bytes
	return RunID(RunPrefix + id.String())
}
