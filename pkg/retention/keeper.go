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
	notes notes
}

// New returns a keeper of the runs in store.
func New(store state.Store, b bus.Intake, cfg Config) *Keeper {
	return &Keeper{cfg: cfg, store: store, bus: b, notes: notes{at: map[string]time.Time{}}}
}

// ErrChild reports a run that another has started: it is deleted with that one.
var ErrChild = errors.New("it is below another run")

// Delete deletes a run with all below it, and returns how many runs that were. The error is
// a *state.NotEndedError if one of them has not ended, ErrChild for a run that another has
// started, or state.ErrNotFound.
func (k *Keeper) Delete(ctx context.Context, id state.RunID) (n int, err error) {
	root, err := k.store.Load(ctx, id)
	if err != nil {
		return 0, err
	}
	if err := k.checkRoot(ctx, root); err != nil {
		return 0, err
	}
	trees, err := k.trees(ctx, []member{memberOf(root)})
	if err != nil {
		return 0, err
	}
	if trees[0].live != nil {
		return 0, trees[0].live
	}
	err = k.noted(ctx, root.Tenant, func() (err error) {
		n, err = k.forgetTree(ctx, trees[0])
		return err
	})
	return n, err
}

// checkRoot returns ErrChild for a run that another has started which is still there.
func (k *Keeper) checkRoot(ctx context.Context, s state.State) error {
	if s.Parent == nil {
		return nil
	}
	_, err := k.store.Load(ctx, s.Parent.RunID)
	if err == nil {
		return fmt.Errorf("run %s: %w, %s", s.ID, ErrChild, s.Parent.RunID)
	}
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if errors.Is(err, state.ErrFormat) {
		return fmt.Errorf("run %s: %w, %w", s.ID, ErrChild, err)
	}
	return err
}

// tree is a run and all below it, those above first.
type tree struct {
	runs []member
	live *state.NotEndedError // of one that has not ended; nil if all have
}

// member is what must be known of a run to delete it, which has up to a megabyte.
type member struct {
	id      state.RunID
	tenant  string
	status  state.Status
	letters bool // it has dead letters
}

func memberOf(s state.State) member { return member{s.ID, s.Tenant, s.Status, s.Poison != nil} }

func (t *tree) add(m member) {
	t.runs = append(t.runs, m)
	if !m.status.Terminal() && t.live == nil {
		t.live = &state.NotEndedError{ID: m.id, Status: m.status}
	}
}

// trees returns the trees of some runs of one tenant. The store is asked once for what is below
// many of them, not once for each.
func (k *Keeper) trees(ctx context.Context, roots []member) ([]tree, error) {
	trees := make([]tree, len(roots))
	of := map[state.RunID]int{}
	var above []state.RunID
	for i, root := range roots {
		trees[i].add(root)
		of[root.id], above = i, append(above, root.id)
	}
	for len(above) > 0 {
		var below []state.RunID
		for part := range slices.Chunk(above, page) {
			for f := (state.Filter{Tenant: roots[0].tenant, Parents: part, Limit: page, Bytes: pageBytes}); ; {
				children, err := k.store.List(ctx, f)
				if err != nil {
					return nil, err
				}
				for _, s := range children.Runs {
					i := of[s.Parent.RunID]
					trees[i].add(memberOf(s))
					of[s.ID], below = i, append(below, s.ID)
				}
				if f.Cursor = children.Next; f.Cursor == "" {
					break
				}
			}
		}
		above = below
	}
	return trees, nil
}

// forgetTree deletes the runs of a tree, those above last, and returns how many it has.
func (k *Keeper) forgetTree(ctx context.Context, t tree) (int, error) {
	if t.live != nil {
		return 0, t.live
	}
	for i := len(t.runs) - 1; i >= 0; i-- {
		if err := k.forget(ctx, t.runs[i]); err != nil {
			return len(t.runs) - 1 - i, err
		}
	}
	return len(t.runs), nil
}

// forget deletes one run: first what other systems keep of it, so that a deletion which was
// interrupted finds the run. Last it says so to whoever shows it.
func (k *Keeper) forget(ctx context.Context, m member) error {
	if err := k.bus.Forget(ctx, m.tenant, m.id, m.letters); err != nil {
		return fmt.Errorf("delete events of run %s: %w", m.id, err)
	}
	if err := k.store.Delete(ctx, m.id); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	k.bus.Deleted(m.tenant, m.id)
	return nil
}

const (
	page      = 200
	pageBytes = 8 << 20         // ends a page early: a run has up to a megabyte
	longest   = 5 * time.Minute // between two passes
	least     = time.Second
	told      = 10 // of the runs that a pass could not delete
)

// Run deletes what is old enough until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for {
		rules := k.passes(ctx)
		wait := time.NewTimer(interval(rules))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}

// passes goes through all rules once and returns them. What one cannot delete keeps no other
// from it, unless the store is away.
func (k *Keeper) passes(ctx context.Context) []rule {
	rules, err := k.rules(ctx)
	if err != nil && ctx.Err() == nil {
		k.cfg.Logger.Warn().Err(err).Str("hint", "is the store reachable? it is tried again").Msg("how long runs are kept not read")
	}
	for _, r := range rules {
		now, err := k.store.Now(ctx)
		if err != nil {
			if ctx.Err() == nil {
				k.cfg.Logger.Warn().Err(err).Str("hint", "is the store reachable? it is tried again").Msg("old runs not deleted")
			}
			break
		}
		if err := k.pass(ctx, r, now.Add(-r.keep)); err != nil && ctx.Err() == nil {
			k.cfg.Logger.Warn().Err(err).Str("tenant", r.filter.Tenant).Str("agent", r.filter.Agent).
				Str("hint", "are the store and NATS reachable? is the run of a newer build? it is tried again").Msg("old runs not deleted")
		}
	}
	return rules
}

// rule says how long runs that a filter selects are kept.
type rule struct {
	filter state.Filter
	keep   time.Duration
}

// rules returns what is kept for less than ever, of all tenants whose agents can be read.
func (k *Keeper) rules(ctx context.Context) ([]rule, error) {
	tenants, err := k.tenants(ctx)
	if err != nil {
		return nil, err
	}
	var rules []rule
	var failed failures
	for _, tenant := range tenants {
		own, err := k.rulesOf(ctx, tenant)
		if err != nil {
			failed.add(fmt.Errorf("tenant %s: %w", tenant, err))
		}
		rules = append(rules, own...)
	}
	return rules, failed.err()
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
	err := state.EachAgent(ctx, k.store, tenant, func(v state.AgentVersion) error {
		own, err := agent.RetentionOf(v.Definition)
		if err != nil {
			return nil //nolint:nilerr // of a newer build
		}
		keep := own.Tighter(k.cfg.Keep)
		if keep != k.cfg.Keep {
			add(v.Name, keep)
		}
		return nil
	})
	return rules, err
}

// interval is how long to wait after a pass: a tenth of the shortest period.
func interval(rules []rule) time.Duration {
	wait := longest
	for _, r := range rules {
		wait = min(wait, r.keep/10)
	}
	return max(wait, least)
}

// failures are errors that keep nothing else from being done.
type failures struct {
	first []error
	more  int
}

func (f *failures) add(err error) {
	if len(f.first) == told {
		f.more++
		return
	}
	f.first = append(f.first, err)
}

func (f *failures) err() error {
	if f.more > 0 {
		return fmt.Errorf("%w\nand %d more", errors.Join(f.first...), f.more)
	}
	return errors.Join(f.first...)
}

// pass deletes what a rule no longer keeps: of what was created so long ago, which is
// looked at from the newest, what has ended so long ago.
func (k *Keeper) pass(ctx context.Context, r rule, until time.Time) error {
	f := r.filter
	f.Limit, f.Bytes, f.Cursor = page, pageBytes, string(state.FirstIDAt(until))
	deleted := 0
	defer func() {
		if deleted > 0 {
			k.cfg.Logger.Info().Int("runs", deleted).Dur("kept", r.keep).Str("agent", f.Agent).Msg("old runs deleted")
		}
	}()
	var failed failures
	for {
		old, next, err := k.old(ctx, f, until, &failed)
		if err != nil {
			failed.add(err)
			return failed.err()
		}
		n, err := k.deleteAll(ctx, old, &failed)
		if deleted += n; err != nil {
			failed.add(err)
			return failed.err()
		}
		if f.Cursor = next; f.Cursor == "" {
			return failed.err()
		}
	}
}

// old returns what is to be deleted of a page of runs, and where the next begins.
func (k *Keeper) old(ctx context.Context, f state.Filter, until time.Time, failed *failures) (old []member, next string, err error) {
	found, err := k.store.List(ctx, f)
	if err != nil {
		return nil, "", err
	}
	for _, s := range found.Runs {
		if s.FinishedAt.After(until) {
			continue
		}
		switch err := k.checkRoot(ctx, s); {
		case err == nil:
			old = append(old, memberOf(s))
		case !errors.Is(err, ErrChild):
			failed.add(fmt.Errorf("run %s: %w", s.ID, err))
		}
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
	}
	return old, found.Next, nil
}

// deleteAll deletes some runs of one tenant with what is below them, but for what has not ended
// and for what fails. The error is of what all of them need.
func (k *Keeper) deleteAll(ctx context.Context, roots []member, failed *failures) (deleted int, err error) {
	if len(roots) == 0 {
		return 0, nil
	}
	trees, err := k.eachTree(ctx, roots, failed)
	if err != nil {
		return 0, err
	}
	trees = slices.DeleteFunc(trees, func(t tree) bool { return t.live != nil })
	if len(trees) == 0 {
		return 0, nil
	}
	err = k.noted(ctx, roots[0].tenant, func() error {
		for _, t := range trees {
			n, err := k.forgetTree(ctx, t)
			deleted += n
			var live *state.NotEndedError
			if err != nil && !errors.As(err, &live) {
				failed.add(fmt.Errorf("run %s: %w", t.runs[0].id, err))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	return deleted, err
}

// eachTree is trees, but for those that cannot be read: one of them does not hide the others.
func (k *Keeper) eachTree(ctx context.Context, roots []member, failed *failures) ([]tree, error) {
	trees, err := k.trees(ctx, roots)
	if err == nil {
		return trees, nil
	}
	if _, away := k.store.Now(ctx); away != nil {
		return nil, err
	}
	for _, root := range roots {
		one, err := k.trees(ctx, []member{root})
		if err != nil {
			failed.add(fmt.Errorf("run %s: %w", root.id, err))
		}
		trees = append(trees, one...)
	}
	return trees, nil
}
