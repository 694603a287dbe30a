package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// AfterEach calls f after each command and each pipeline of the store.
func (s *Store) AfterEach(f func()) { s.rdb.AddHook(afterEach{f}) }

type afterEach struct{ f func() }

func (afterEach) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h afterEach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer h.f()
		return next(ctx, cmd)
	}
}

func (h afterEach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer h.f()
		return next(ctx, cmds)
	}
}

// QuotaAt is a store's quotas with a test clock.
type QuotaAt struct {
	*Store

	Now func() time.Time
}

// Take implements state.Quotas.
func (q QuotaAt) Take(ctx context.Context, key string, t state.Take) (state.Taken, error) {
	return q.takeAt(ctx, key, t, q.Now())
}

// Correct implements state.Quotas.
func (q QuotaAt) Correct(ctx context.Context, key string, limit state.Quota, tokens int64) error {
	return q.correctAt(ctx, key, limit, tokens, q.Now())
}

// Pause implements state.Quotas.
func (q QuotaAt) Pause(ctx context.Context, key string, d time.Duration) error {
	return q.pauseAt(ctx, key, d, q.Now())
}

// Known returns the cached extent of a run's log: the number of entries, and the hash of the last.
func (s *Store) Known(id state.RunID) (n int, sum string) {
	known := s.cache.Get(id)
	return len(known.Entries), known.Sum
}

// Batched returns the number of pipelines in flight, and that of the calls that wait for one.
func (s *Store) Batched() (inFlight, waiting int) {
	s.batcher.mu.Lock()
	defer s.batcher.mu.Unlock()
	return s.batcher.inFlight, len(s.batcher.calls)
}

// SweepAs sweeps like a build that can read runs up to a format.
func (s *Store) SweepAs(ctx context.Context, format int, id state.RunID) error {
	src := fmt.Sprintf("local FORMAT, NOISY, LOOK = %d, %d, %d\n", format, state.NoisyAbove, state.BacklogLook) + lib + sweepSrc
	k := s.keys.run(id)
	return s.rdb.Eval(ctx, src, []string{k.header, k.log, k.due, k.count, k.tenants, k.leases, k.lists, s.keys.aside[id.Shard()], k.mark}, string(id), 1000, 0, 0, 0, "", 0).Err()
}

// Spread makes the store use its server as if it were a cluster.
func (s *Store) Spread() { s.oneNode = false }

// LeasesKey returns the key of the leases of one shard.
func (s *Store) LeasesKey() string { return s.keys.leases[0] }

// Options returns the options of the client for a URL and a login.
func Options(url string, l Login) (*redis.UniversalOptions, error) {
	o, err := options(url)
	if err != nil {
		return nil, err
	}
	return o, l.login().apply(o)
}

// Verdict evaluates the answers of a server to the marker of a message and to the request for confirmation.
func Verdict(confirm string, marked error, copies any, err error) error {
	c, bad := parseConfirm(confirm, 0)
	if bad != nil {
		return bad
	}
	return c.verdict(asked{marked: redis.NewCmdResult("OK", marked), copies: redis.NewCmdResult(copies, err)})
}

// Question returns the commands that request the confirmation of a message.
func Question(ctx context.Context, confirm string, within time.Duration, pipe redis.Pipeliner) (marked, copies []any, err error) {
	c, err := parseConfirm(confirm, within)
	if err != nil {
		return nil, nil, err
	}
	a := c.ask(ctx, pipe, "marker")
	return a.marked.Args(), a.copies.Args(), nil
}

// WaitsForAOF reports whether a server of a version has WAITAOF.
func WaitsForAOF(version string) bool {
	info := &redis.InfoCmd{}
	info.SetVal(map[string]map[string]string{"Server": {"redis_version": version}})
	return waitsForAOF(info)
}

// Together is a call that is sent in one pipeline with others.
type Together struct {
	Ctx     context.Context //nolint:containedctx // of the caller, as in call
	Promise bool            // replicas must confirm the write
	Args    []any
	Err     error // of the reply
}

// SendTogether sends calls in one pipeline and sets the error of each. The result is that of the batcher.
func (s *Store) SendTogether(calls ...*Together) error {
	batch := make([]*call, len(calls))
	for i, c := range calls {
		batch[i] = &call{c.Ctx, redis.NewCmd(c.Ctx, c.Args...), size(c.Args), c.Promise, make(chan struct{})}
	}
	err := s.batcher.send(batch)
	for i, c := range batch {
		<-c.done
		calls[i].Err = c.cmd.Err()
	}
	return err
}
