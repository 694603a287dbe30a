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

// ChildID returns the id of the run that answers a call of another run: the same
// for the same call, so that it is started once however often it is tried.
func ChildID(parent RunID, turn int, callID string, at Time) RunID {
	return derived(at, fmt.Sprintf("%s/%d/%s", parent, turn, callID))
}

// FirstIDAt returns the least id that a run of a time can have: runs that are older come
// behind it in a list.
func FirstIDAt(at time.Time) RunID {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at)) // fails after the year 10889
	return RunID(RunPrefix + id.String())
}

// MadeAt returns the time that an id carries, or the zero Time if it is no id.
func (id RunID) MadeAt() Time {
	parsed, err := ulid.Parse(strings.TrimPrefix(string(id), RunPrefix))
	if err != nil {
		return Time{}
	}
	return At(ulid.Time(parsed.Time()))
}

// ReplayID returns the id of the run that a submission becomes which is dead letter seq of a
// tenant since at: the same however often it is replayed. Each tenant has numbers of its own.
func ReplayID(tenant string, seq uint64, at Time) RunID {
	return derived(at, fmt.Sprintf("dead/%s/%d/%d", tenant, seq, at.UnixMilli()))
}

// derived returns the id of that time that follows from a name.
func derived(at Time, name string) RunID {
	sum := sha256.Sum256([]byte(name))
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at.Time)) // fails after the year 10889
	_ = id.SetEntropy(sum[:10])             // fails for other than 10 bytes
	return RunID(RunPrefix + id.String())
}
