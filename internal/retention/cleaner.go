package retention

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config configures a Cleaner.
type Config struct {
	Keep   agent.Retention // by the deployment; an agent's own may be shorter
	Tenant string          // one more tenant to clean, without a document of its own; default none
	Logger *slog.Logger    // default: no log
	Random io.Reader       // for the tokens of seals, read by several goroutines at once; default crypto/rand
}

// Cleaner deletes runs. It has many methods because a deletion has many steps. It is safe for concurrent use.
type Cleaner struct {
	cfg   Config
	store state.Store
	bus   bus.Intake
	notes notes
	stats stats
}

// New returns a cleaner of the runs in store.
func New(store state.Store, b bus.Intake, cfg Config) *Cleaner {
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Cleaner{cfg: cfg, store: store, bus: b, notes: notes{at: map[string]time.Time{}}}
}

const (
	page      = 200
	pageBytes = 8 << 20     // ends a page early: a run has up to a megabyte
	longest   = time.Minute // between two passes
	least     = time.Second
	told      = 10 // of the runs that a pass could not delete
)

// Run deletes expired runs, and completes interrupted deletions, until ctx ends. It logs failures and retries
// them.
func (c *Cleaner) Run(ctx context.Context) {
	for {
		c.resume(ctx)
		rules := c.passes(ctx)
		wait := time.NewTimer(interval(rules))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}

// passes applies all rules once and returns them. A rule that fails does not stop the others,
// unless the store is unreachable.
func (c *Cleaner) passes(ctx context.Context) []rule {
	rules, err := c.rules(ctx)
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("retention settings not read, the gateway retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
	}
	for _, r := range rules {
		now, err := c.store.Now(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.cfg.Logger.Warn("old runs not deleted, the gateway retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
			}
			break
		}
		if err := c.pass(ctx, r, now.Add(-r.keep)); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("old runs not deleted", "error", err, "tenant", r.filter.Tenant, "agent", r.filter.Agent, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation; upgrade this gateway if a newer build wrote the run; the gateway retries")
		}
	}
	return rules
}

// rule is the retention period of the runs that a filter selects.
type rule struct {
	filter state.Filter
	keep   time.Duration
}

// key identifies a rule of a cleaner.
func (r rule) key() string { return fmt.Sprint(r.filter.Tenant, "/", r.filter.Agent, r.filter.Status) }

// rules returns the finite retention periods of all tenants, and the error of those whose agents cannot be
// read.
func (c *Cleaner) rules(ctx context.Context) ([]rule, error) {
	tenants, err := c.tenants(ctx)
	if err != nil {
		return nil, err
	}
	var rules []rule
	var failed failures
	for _, tenant := range tenants {
		own, err := c.rulesOf(ctx, tenant)
		if err != nil {
			failed.add(fmt.Errorf("tenant %s: %w", tenant, err))
		}
		rules = append(rules, own...)
	}
	return rules, failed.err()
}

// tenants returns the names of all tenants, deleted ones included, whose runs stay.
func (c *Cleaner) tenants(ctx context.Context) ([]string, error) {
	names := []string{state.DefaultTenant}
	for _, kind := range []state.DocumentKind{state.TenantDocument, state.DeletedTenantDocument} {
		stored, err := c.store.Documents(ctx, kind)
		if err != nil {
			return nil, err
		}
		names = append(names, slices.Collect(maps.Keys(stored))...)
	}
	if c.cfg.Tenant != "" {
		names = append(names, c.cfg.Tenant)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (c *Cleaner) rulesOf(ctx context.Context, tenant string) ([]rule, error) {
	var rules []rule
	add := func(name string, keep agent.Retention) {
		if keep.Completed > 0 {
			f := state.Filter{Tenant: tenant, Agent: name, Status: []state.Status{state.Completed, state.Incomplete, state.Cancelled}}
			rules = append(rules, rule{f, time.Duration(keep.Completed)})
		}
		if keep.Failed > 0 {
			f := state.Filter{Tenant: tenant, Agent: name, Status: []state.Status{state.Failed}}
			rules = append(rules, rule{f, time.Duration(keep.Failed)})
		}
	}
	add("", c.cfg.Keep)
	err := state.EachAgent(ctx, c.store, tenant, func(v state.AgentVersion) error {
		own, err := agent.RetentionOf(v.Definition)
		if err != nil {
			return nil //nolint:nilerr // of a newer build
		}
		keep := own.Tighter(c.cfg.Keep)
		if keep != c.cfg.Keep {
			add(v.Name, keep)
		}
		return nil
	})
	return rules, err
}

// interval returns the time to wait after a pass: a tenth of the shortest period, from a second to a minute.
func interval(rules []rule) time.Duration {
	wait := longest
	for _, r := range rules {
		wait = min(wait, r.keep/10)
	}
	return max(wait, least)
}
