package redisstore

import (
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// keys builds the names of all keys of the store. All keys of a run except its idempotency key, and the index and
// counts of its shard, carry the shard's hash tag: they are on one slot, so one script can access them together.
type keys struct {
	prefix  string
	shards  []string // name prefixes, by shard
	dues    []string
	counts  []string
	tenants []string
	leases  []string
	lists   []string
	aside   []string
	marks   []string
	figures []string // what commits have added to the figures, until it is folded
}

func newKeys(prefix string) keys {
	names := func() []string { return make([]string, state.Shards) }
	k := keys{prefix, names(), names(), names(), names(), names(), names(), names(), names(), names()}
	for n := range k.shards {
		k.shards[n] = fmt.Sprintf("%s:{s%03d}", prefix, n)
		k.dues[n], k.counts[n], k.tenants[n] = k.shards[n]+":due", k.shards[n]+":count", k.shards[n]+":tenants"
		k.leases[n], k.lists[n], k.aside[n] = k.shards[n]+":leases", k.shards[n]+":lists", k.shards[n]+":aside"
		k.marks[n], k.figures[n] = k.shards[n]+":mark", k.shards[n]+":figures"
	}
	return k
}

func (k keys) due(shard int) string   { return k.dues[shard] }
func (k keys) count(shard int) string { return k.counts[shard] }
func (k keys) ready(shard int) string { return k.shards[shard] + ":ready" }

// run has the keys of one run.
type run struct{ header, log, journal, inbox, seen, due, count, tenants, leases, lists, mark, figures string }

func (k keys) run(id state.RunID) run {
	n := id.Shard()
	var b strings.Builder
	b.Grow(5*(len(k.shards[n])+len(id)) + len(":run:log:journal:inbox:seen") + 5)
	ends := [5]int{}
	for i, kind := range [5]string{":run:", ":log:", ":journal:", ":inbox:", ":seen:"} {
		b.WriteString(k.shards[n])
		b.WriteString(kind)
		b.WriteString(string(id))
		ends[i] = b.Len()
	}
	all := b.String()
	return run{
		all[:ends[0]], all[ends[0]:ends[1]], all[ends[1]:ends[2]], all[ends[2]:ends[3]], all[ends[3]:], k.dues[n], k.counts[n], k.tenants[n],
		k.leases[n], k.lists[n], k.marks[n], k.figures[n],
	}
}

// tree returns the key of the set of a run's descendants.
func (k keys) tree(id state.RunID) string { return k.shards[id.Shard()] + ":tree:" + string(id) }

// idempotency returns the key for the name of an idempotency key, see record.KeyName.
func (k keys) idempotency(name string) string { return k.prefix + ":idem:" + name }

// deletedBatch returns the key of the deleted runs of the batch that begins with a run.
func (k keys) deletedBatch(first state.RunID) string { return k.prefix + ":batch:" + string(first) }

// heartbeat returns a key that expires when the worker no longer counts as alive.
func (k keys) heartbeat(worker string) string { return k.prefix + ":worker:" + worker }

// identity returns the key of the id of the store.
func (k keys) identity() string { return k.prefix + ":id" }

// marker returns a key, on the slot of key, that the store writes at the end of writes that
// replicas confirm.
func (k keys) marker(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return k.prefix + ":confirm:{" + key + "}"
}

// Agents of the default tenant have the same keys as before agents had a tenant. No agent name has
// a slash.
func (k keys) agent(tenant, name string) string {
	if tenant == state.DefaultTenant {
		return k.prefix + ":agent:" + name
	}
	return k.prefix + ":agent:" + tenant + "/" + name
}

func (k keys) agents(tenant string) string {
	if tenant == state.DefaultTenant {
		return k.prefix + ":agents"
	}
	return k.prefix + ":agents:" + tenant
}

func (k keys) documents(kind state.DocumentKind) string {
	return k.prefix + ":documents:" + string(kind)
}
func (k keys) audit(tenant string) string { return k.prefix + ":audit:" + tenant }
func (k keys) pin(key string) string      { return k.prefix + ":pin:" + key }

// hour returns the key of a tenant's figures of an hour, and folded that of the positions up to which
// they have the streams of shards. Both are on the tenant's slot.
func (k keys) hour(tenant, hour string) string   { return k.prefix + ":hour:{" + tenant + "}:" + hour }
func (k keys) folded(tenant, hour string) string { return k.hour(tenant, hour) + ":folded" }

// fold returns a key that lasts while no other process need fold.
func (k keys) fold() string { return k.prefix + ":fold" }

// quota returns the key of a rate limit's bucket, on its own slot, and quotaCall that of one call
// of it; slowed lists those that a pause has slowed down.
func (k keys) quota(key string) string            { return k.prefix + ":quota:{" + key + "}" }
func (k keys) quotaCall(key, token string) string { return k.quota(key) + ":call:" + token }
func (k keys) slowed() string                     { return k.prefix + ":slowed" }
