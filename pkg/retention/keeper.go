package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config of a Keeper.
type Config struct {
	Keep   agent.Retention // by the deployment; an agent's own may be shorter
	Tenant string          // one that has runs without being stored as a tenant; default "default"
	Logger zerolog.Logger
}

// Keeper deletes runs.
type Keeper struct {
	cfg   Config
	store state.Store
	bus   bus.Intake
}

// New returns a keeper of the runs in store.
func New(store state.Store, b bus.Intake, cfg Config) *Keeper {
	return &Keeper{cfg: cfg, store: store, bus: b}
}

// ErrChild reports a run that another has started: it is deleted with that one.
var ErrChild = errors.New("it is below another run")

// Delete deletes a run with all below it, and returns how many runs that were. The error is
// a *state.NotEndedError if one of them has not ended, ErrChild for a run that another has
// started, or state.ErrNotFound.
func (k *Keeper) Delete(ctx context.Context, id state.RunID) (int, error) {
	root, err := k.store.Load(ctx, id)
	if err != nil {
		return 0, err
	}
	if root.Parent != nil {
		_, err := k.store.Load(ctx, root.Parent.RunID)
		if err == nil {
			return 0, fmt.Errorf("run %s: %w, %s", id, ErrChild, root.Parent.RunID)
		}
		if !errors.Is(err, state.ErrNotFound) {
			return 0, err
		}
	}
	tree, err := k.tree(ctx, root)
	if err != nil {
		return 0, err
	}
	for i := len(tree) - 1; i >= 0; i-- {
		if err := k.forget(ctx, tree[i]); err != nil {
			return len(tree) - 1 - i, err
		}
	}
	return len(tree), nil
}

// tree returns a run and all below it, those above first. All have ended.
func (k *Keeper) tree(ctx context.Context, root state.State) ([]state.State, error) {
	tree := []state.State{root}
	for i := 0; i < len(tree); i++ {
		if s := tree[i]; !s.Status.Terminal() {
			return nil, &state.NotEndedError{ID: s.ID, Status: s.Status}
		}
		for f := (state.Filter{Tenant: root.Tenant, Parent: tree[i].ID, Limit: page}); ; {
			children, err := k.store.List(ctx, f)
			if err != nil {
				return nil, err
			}
			tree = append(tree, children.Runs...)
			if f.Cursor = children.Next; f.Cursor == "" {
				break
			}
		}
	}
	return tree, nil
}

// forget deletes one run: first what other systems keep of it, so that a deletion which was
// interrupted finds the run.
func (k *Keeper) forget(ctx context.Context, s state.State) error {
	if err := k.bus.Forget(ctx, s.Tenant, s.ID, s.Poison != nil); err != nil {
		return fmt.Errorf("delete events of run %s: %w", s.ID, err)
	}
	if err := k.store.Delete(ctx, s.ID); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	return nil
}

const (
	page    = 200
	longest = 5 * time.Minute // between two passes
	least   = time.Second
)

// Run deletes what is old enough until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for {
		rules, err := k.rules(ctx)
		if err == nil {
			for _, r := range rules {
				if err = k.pass(ctx, r); err != nil {
					break
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			k.cfg.Logger.Warn().Err(err).Str("hint", "is the store reachable? it is tried again").Msg("old runs not deleted")
		}
		wait := time.NewTimer(interval(rules))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}

// rule says how long runs that a filter selects are kept.
type rule struct {
	filter state.Filter
	keep   time.Duration
}

// rules returns what is kept for less than ever.
func (k *Keeper) rules(ctx context.Context) ([]rule, error) {
	tenants, err := k.tenants(ctx)
	if err != nil {
		return nil, err
	}
	var rules []rule
	for _, tenant := range tenants {
		own, err := k.rulesOf(ctx, tenant)
		if err != nil {
			return rules, err
		}
		rules = append(rules, own...)
	}
	return rules, nil
}

// tenants returns the names of all tenants.
func (k *Keeper) tenants(ctx context.Context) ([]string, error) {
	stored, err := k.store.Documents(ctx, state.TenantDocument)
	if err != nil {
		return nil, err
	}
	names := append(slices.Collect(maps.Keys(stored)), state.DefaultTenant)
	if k.cfg.Tenant != "" {
		names = append(names, k.cfg.Tenant)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (k *Keeper) rulesOf(ctx context.Context, tenant string) ([]rule, error) {
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
	add("", k.cfg.Keep)
	versions, err := k.store.ListAgents(ctx, tenant)
	if err != nil {
		return rules, err
	}
	for _, v := range versions {
		own, err := agent.RetentionOf(v.Definition)
		if err != nil {
			continue // of a newer build
		}
		keep := own.Tighter(k.cfg.Keep)
		if keep != k.cfg.Keep {
			add(v.Name, keep)
		}
	}
	return rules, nil
}

// interval is how long to wait after a pass: a tenth of the shortest period.
func interval(rules []rule) time.Duration {
	wait := longest
	for _, r := range rules {
		wait = min(wait, r.keep/10)
	}
	return max(wait, least)
}

// pass deletes what a rule no longer keeps: of what was created so long ago, which is
// looked at from the newest, what has ended so long ago.
func (k *Keeper) pass(ctx context.Context, r rule) error {
	now, err := k.store.Now(ctx)
	if err != nil {
		return err
	}
	until := now.Add(-r.keep)
	f := r.filter
	f.Limit, f.Cursor = page, string(state.FirstIDAt(until))
	deleted := 0
	defer func() {
		if deleted > 0 {
			k.cfg.Logger.Info().Int("runs", deleted).Dur("kept", r.keep).Str("agent", f.Agent).Msg("old runs deleted")
		}
	}()
	for {
		found, err := k.store.List(ctx, f)
		if err != nil {
			return err
		}
		for _, s := range found.Runs {
			if s.FinishedAt.After(until) {
				continue
			}
			n, err := k.Delete(ctx, s.ID)
			deleted += n
			var live *state.NotEndedError
			if err != nil && !errors.Is(err, ErrChild) && !errors.Is(err, state.ErrNotFound) && !errors.As(err, &live) {
				return err
			}
		}
		if f.Cursor = found.Next; f.Cursor == "" {
			return nil
		}
	}
}
