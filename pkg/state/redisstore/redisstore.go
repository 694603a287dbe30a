package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/state/logcache"
	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// keyTTL is the lifetime of an idempotency key.
	keyTTL = 7 * 24 * time.Hour

	// remembered is the number of signal ids that a run keeps.
	remembered = 1000

	// readTimeout is the maximum time for an answer of the server.
	readTimeout = 3 * time.Second

	defaultCache = 64 << 20
	defaultLimit = 50
)

// Config of a Store.
type Config struct {
	// URL of the server: redis://user:password@host:port/db or rediss://…; several hosts, separated
	// by commas, are the nodes of a cluster, and ?cluster=true makes one host such a node;
	// ?master_name=NAME makes the hosts Sentinels, which may have their own user and password:
	// &sentinel_username=NAME&sentinel_password=WORD. Values are percent-encoded.
	URL string

	// Login has the credentials that the URL does not contain.
	Login Login

	Prefix     string // of every key, without braces; default "turnpike"
	CacheBytes int64  // of logs kept in memory; default 64 MiB

	// RequireAOF makes a server without an append-only file a Fatal finding of Check. By default it
	// is a warning.
	RequireAOF bool

	// Confirm selects the copies that must have a write before its call returns nil: "replicas:N" for N replicas, "aof"
	// for the append-only file of the server, "aof:N" for that and those of N replicas; N is 1 to 100. A write that is
	// not confirmed in time returns a *state.UnconfirmedError: its durability is unknown. Confirm does not apply to
	// Claim, Renew, Release, Sweep, Evict, MarkFinalized, Heartbeat, RaiseMarks and rate limits. Default "off".
	Confirm string

	// ConfirmWithin is the time that a write waits for its confirmation, 1 ms to 2 s. Default 1 s.
	ConfirmWithin time.Duration

	// NoBatching sends each call separately. By default concurrent calls share a pipeline, except
	// in a cluster.
	NoBatching bool
}

// Store is a state.Store in Redis. It has many methods because the port has.
type Store struct {
	state.FormatSetting
	figures

	rdb        redis.UniversalClient
	keys       keys
	batcher    *batcher // nil if each call is sent by itself
	oneNode    bool     // scripts may have keys of any slot
	latest     latest
	loads      singleflight.Group
	cache      *logcache.Cache
	requireAOF bool
	confirm    confirm
	floor      atomic.Int64 // see SetFloor
}

var _ state.Store = (*Store)(nil)

// Open returns a store. Its connections open in the background: Open fails only for an invalid Config, and
// does not wait for the server; Check does.
func Open(_ context.Context, cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "turnpike"
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return nil, fmt.Errorf("prefix is %q, but its braces would select the hash slot of keys in Redis Cluster: remove the braces (TURNPIKE_PREFIX; in Go, Prefix)", cfg.Prefix)
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = defaultCache
	}
	opts, err := options(cfg.URL)
	if err == nil {
		err = cfg.Login.login().apply(opts)
	}
	if err != nil {
		return nil, err
	}
	confirm, err := parseConfirm(cfg.Confirm, cfg.ConfirmWithin)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewUniversalClient(opts)
	keys := newKeys(cfg.Prefix)
	var batcher *batcher
	if !cfg.NoBatching {
		batcher = newBatcher(rdb, confirm, keys.marker("all"))
	}
	_, oneNode := rdb.(*redis.Client)
	s := &Store{
		rdb: rdb, batcher: batcher, oneNode: oneNode, keys: keys, cache: logcache.New(cfg.CacheBytes), requireAOF: cfg.RequireAOF, confirm: confirm,
	}
	s.figures.store = s
	return s, nil
}

// Close closes the connections. Calls in flight, and later calls, return an error.
func (s *Store) Close() error {
	s.batcher.close()
	err := s.rdb.Close() // ends calls in flight
	s.batcher.wait()
	return err
}

// Now implements state.Store. In a cluster it asks any server.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of Redis: %w", err)
	}
	return now, nil
}

// Ready implements state.Store. It writes to a random shard.
func (s *Store) Ready(ctx context.Context) error {
	return s.writeReady(ctx, rand.IntN(state.Shards)) //nolint:gosec // not a secret
}

// writeReady writes to a shard a key that expires after a minute.
func (s *Store) writeReady(ctx context.Context, shard int) error {
	if _, err := s.write(ctx, "set", s.keys.ready(shard), 1, "ex", 60); err != nil {
		if _, answered := errors.AsType[redis.Error](err); answered {
			err = fmt.Errorf("%w: %w", check.ErrNoWrites, err)
		}
		return fmt.Errorf("write to Redis: %w", err)
	}
	return nil
}

// Create implements state.Runs. Outside a cluster, one script takes the key and creates the run. In a cluster Create
// takes the key first, and then creates the run under the id that the key names: after a crash in between, the next
// Create with that key and fingerprint completes it. Create takes over a key that names a deleted run.
func (s *Store) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	return record.Create(n, func() (state.Created, error) { return s.create(ctx, n) }, func(deleted state.RunID) error {
		return s.freeKey(ctx, s.keys.idempotency(record.KeyName(n.State.Tenant, n.Key)), deleted)
	})
}

// create is one attempt of Create. If the run that the key names was deleted, create returns its
// id.
func (s *Store) create(ctx context.Context, n state.NewRun) (state.Created, error) {
	st := n.State
	if n.Guard != "" && !s.oneNode { // of another store: this one gives none
		return state.Created{}, fmt.Errorf("agent %s: %w", st.Agent, state.ErrChanged)
	}
	if n.Key == "" {
		made, _, err := s.createRun(ctx, st, n, "")
		return made, err
	}
	mine := record.Owner{Run: st.ID, Fingerprint: n.Fingerprint}.String()
	var err error
	if s.oneNode {
		made, owner, err := s.createRun(ctx, st, n, mine)
		if err != nil || owner == "" {
			return made, err
		}
		if st.ID, err = record.OwnerOf(owner, n.Fingerprint); err != nil {
			return state.Created{}, err
		}
		known, err := s.Load(ctx, st.ID)
		if !errors.Is(err, state.ErrNotFound) {
			return state.Created{State: known, Existing: err == nil}, err
		}
	} else if st.ID, err = s.takeKey(ctx, n, mine); err != nil {
		return state.Created{}, err
	}
	made, _, err := s.createRun(ctx, st, n, "")
	return made, err
}

// createRun creates a run. If the run exists, it returns it; if it was deleted, its id and state.ErrDeleted. If take is
// set, createRun first sets the idempotency key to that value. If the key exists already, createRun returns its value
// as owner, and creates nothing.
func (s *Store) createRun(ctx context.Context, st state.State, n state.NewRun, take string) (made state.Created, owner string, err error) {
	st = *st.Formatted(s.Written())
	bare := st
	bare.ID = "" // the keys have it
	fixed, header, err := state.EncodeHeader(&bare)
	if err != nil {
		return state.Created{}, "", err
	}
	entries, err := appendEntries(nil, st.Log)
	if err != nil {
		return state.Created{}, "", err
	}
	awaited, err := names(st.Accepts())
	if err != nil {
		return state.Created{}, "", err
	}
	owned := ""
	if n.Key != "" {
		owned = record.KeyName(st.Tenant, n.Key)
	}
	k := s.keys.run(st.ID)
	keys := []string{k.header, k.log, k.due, k.count, k.tenants, k.lists}
	if take != "" {
		keys = append(keys, s.keys.idempotency(owned))
	}
	if n.Guard != "" {
		keys = append(keys, s.keys.agent(st.Tenant, st.Agent))
	}
	args := append([]any{
		string(st.ID), n.RedeliveryDelay.Milliseconds(), string(st.Status), st.Version, header, awaited, wake(&st), string(st.Priority), st.Format, st.Tenant, fixed, waitReason(&st), listNames(&st, n.IndexNames()), owned,
		take, int64(keyTTL / time.Second), logBytesOf(&st), n.Guard,
	}, entries...)
	r, err := createScript.batched(ctx, s, keys, args...)
	if err != nil {
		return state.Created{}, "", fmt.Errorf("create run: %w", err)
	}
	switch r.str(createWord) {
	case "taken":
		return state.Created{}, reply[takenPlace](r).str(takenOwner), nil
	case "changed":
		return state.Created{}, "", fmt.Errorf("agent %s: %w", st.Agent, state.ErrChanged)
	case "deleted":
		return state.Created{State: state.State{ID: st.ID}}, "", fmt.Errorf("run %s: %w", st.ID, state.ErrDeleted)
	case "exists":
		st, err = s.Load(ctx, st.ID)
		return state.Created{State: st, Existing: true}, "", err
	default:
		return state.Created{State: st, Noisy: r.flag(createNoisy)}, "", nil
	}
}

// takeKey takes the idempotency key of a run on a cluster, where the key has its own slot, and
// returns the run that has the key.
func (s *Store) takeKey(ctx context.Context, n state.NewRun, mine string) (state.RunID, error) {
	name := s.keys.idempotency(record.KeyName(n.State.Tenant, n.Key))
	switch _, err := s.write(ctx, "set", name, mine, "ex", int64(keyTTL/time.Second), "nx"); {
	case err == nil:
		return n.State.ID, nil
	case !errors.Is(err, redis.Nil): // redis.Nil means that the key was free
		return "", fmt.Errorf("take idempotency key: %w", err)
	}
	have, err := s.rdb.Get(ctx, name).Result()
	if err != nil {
		return "", fmt.Errorf("read idempotency key: %w", err)
	}
	return record.OwnerOf(have, n.Fingerprint)
}

// wake returns the time at which a waiting run must be woken, in milliseconds; 0 means never.
func wake(s *state.State) int64 {
	if due := s.Due(); !due.IsZero() {
		return due.UnixMilli()
	}
	return 0
}

func names(list []string) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// appendEntries appends the encoded entries, each a []byte, to the arguments of a script.
func appendEntries(args []any, entries []state.Entry) ([]any, error) {
	for i := range entries {
		b, err := state.EncodeEntry(&entries[i])
		if err != nil {
			return nil, err
		}
		args = append(args, b)
	}
	return args, nil
}

// decodeEntries appends the entries after the first ones of a run's log, and releases each text
// after decoding it: a long log is large.
func decodeEntries(log []state.Entry, after int64, encoded []string) ([]state.Entry, error) {
	log = slices.Grow(log, len(encoded))
	for i, text := range encoded {
		var err error
		if log, err = state.AppendEntry(log, after+int64(i)+1, text); err != nil {
			return nil, err
		}
		encoded[i] = ""
	}
	return log, nil
}

// read decodes the storedFields of a run's hash.
func read(id state.RunID, r reply[storedPlace]) (state.State, error) {
	header := r.str(storedHeader)
	if header == "" {
		return state.State{}, fmt.Errorf("run %s: %w", id, absent(r.str(storedMarker)))
	}
	st, err := state.DecodeHeader(r.str(storedFixed), header)
	if err != nil {
		return state.State{}, fmt.Errorf("run %s: %w", id, err)
	}
	st.ID = id
	return st.As(state.Status(r.str(storedStatus)), millis(r.num(storedStarted))), nil
}

func millis(ms int64) state.Time {
	if ms == 0 {
		return state.Time{}
	}
	return state.At(time.UnixMilli(ms))
}

// Load implements state.Runs.
func (s *Store) Load(ctx context.Context, id state.RunID) (state.State, error) {
	r, err := fields[storedPlace](ctx, s, s.keys.run(id).header, storedFields)
	if err != nil {
		return state.State{}, fmt.Errorf("load run: %w", err)
	}
	return read(id, r)
}

// LoadByKey implements state.Runs. On a cluster the key and the run have different slots, so it
// reads one after the other.
func (s *Store) LoadByKey(ctx context.Context, tenant, key, fingerprint string) (state.State, error) {
	have, err := s.rdb.Get(ctx, s.keys.idempotency(record.KeyName(tenant, key))).Result()
	if errors.Is(err, redis.Nil) {
		return state.State{}, fmt.Errorf("idempotency key: %w", state.ErrNotFound)
	}
	if err != nil {
		return state.State{}, fmt.Errorf("read idempotency key: %w", err)
	}
	id, err := record.OwnerOf(have, fingerprint)
	if err != nil {
		return state.State{}, err
	}
	return s.Load(ctx, id)
}

// Log implements state.Runs.
func (s *Store) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	k := s.keys.run(id)
	after = min(max(after, 0), math.MaxInt64/2) // larger numbers would overflow, and the server would count from the end
	stop := int64(-1)
	if limit > 0 {
		stop = after + int64(limit) - 1
	}
	pipe := s.rdb.Pipeline()
	header := pipe.HMGet(ctx, k.header, loggedFields...)
	list := pipe.LRange(ctx, k.log, after, stop)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	h := reply[loggedPlace](header.Val())
	if h.str(loggedStatus) == "" {
		return nil, fmt.Errorf("run %s: %w", id, absent(h.str(loggedMarker)))
	}
	if err := (&state.State{Format: int(h.num(loggedFormat))}).CheckFormat(); err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	return decodeEntries(nil, after, list.Val())
}

// LogPage implements state.Runs.
func (s *Store) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	k := s.keys.run(id)
	after = min(max(after, 0), 1<<50) // the script has numbers of 53 bits
	r, err := logScript.batched(ctx, s, []string{k.header, k.log}, after, max(limit, 0), max(bytes, 0))
	if err != nil {
		return state.LogPage{}, fmt.Errorf("read log: %w", err)
	}
	if err := verdict(r, id, 0); err != nil {
		return state.LogPage{}, err
	}
	encoded, err := r.list(logEntries)
	if err != nil {
		return state.LogPage{}, fmt.Errorf("read log: %w", err)
	}
	entries, err := decodeEntries(nil, after, encoded)
	return state.LogPage{Entries: entries, More: r.flag(logMore)}, err
}
