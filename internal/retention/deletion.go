package retention

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// treesAtOnce is the number of trees that a deletion processes concurrently, and runsAtOnce the
	// number of runs of one tree.
	treesAtOnce = 64
	runsAtOnce  = 8

	// creationGrace is the time after the end of a tree within which a run that the tree has admitted may still
	// be created. After that the deletion prevents its creation.
	creationGrace = time.Minute

	// interrupted is the minimum age of a deletion that another process completes.
	interrupted = time.Minute
)

// ErrChild reports a run that another run has started: it is deleted with that run.
var ErrChild = errors.New("it is the child of another run")

// NotCreatedError reports a tree that cannot be deleted because a run was admitted to it that
// does not exist yet.
type NotCreatedError struct {
	Root, ID state.RunID
}

func (e *NotCreatedError) Error() string {
	return fmt.Sprintf("a child run %s of run %s is about to be created", e.ID, e.Root)
}

// refused reports whether a deletion was refused, and has changed nothing.
func refused(err error) bool {
	_, live := errors.AsType[*state.NotEndedError](err)
	_, early := errors.AsType[*NotCreatedError](err)
	return live || early || errors.Is(err, ErrChild)
}

// Delete deletes a run with all runs below it, and returns their number; the caller must have checked that the run is
// one of the tenant. Delete deletes none and returns a *state.NotEndedError if one of them has not ended, a
// *NotCreatedError if one is about to be created, ErrChild if the parent of the run still exists, or state.ErrNotFound.
// If the store has a marker of the run's deletion, Delete removes what a failed deletion may have left, and then
// returns state.ErrDeleted. After any other error some or all of the runs may be deleted: a Cleaner.Run of the
// deployment completes or cancels a deletion that has begun, a minute or more later.
func (c *Cleaner) Delete(ctx context.Context, tenant string, id state.RunID) (n int, err error) {
	n, err = c.deleteRoot(ctx, id, false)
	if errors.Is(err, state.ErrDeleted) {
		err = cmp.Or(c.purgeDeleted(ctx, tenant, id), err)
	}
	return n, err
}

// deleteRoot is Delete. With takeOver it removes the seals that another process left on a tree
// that cannot be deleted.
func (c *Cleaner) deleteRoot(ctx context.Context, id state.RunID, takeOver bool) (n int, err error) {
	root, err := c.store.Load(ctx, id)
	if err != nil {
		return 0, err
	}
	if err := c.checkRoot(ctx, root); err != nil {
		return 0, err
	}
	trees, err := c.trees(ctx, []member{memberOf(root)})
	if err != nil {
		return 0, err
	}
	if trees[0].live != nil && !takeOver {
		return 0, trees[0].live
	}
	results, err := c.delete(ctx, root.Tenant, trees)
	if err != nil {
		return 0, err
	}
	return results[0].deleted, results[0].err
}

// checkRoot returns ErrChild for a run whose parent still exists.
func (c *Cleaner) checkRoot(ctx context.Context, s state.State) error {
	if s.Parent == nil {
		return nil
	}
	_, err := c.store.Load(ctx, s.Parent.RunID)
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

// tree is a run and all runs below it, the run first.
type tree struct {
	runs []member
	live *state.NotEndedError // of one that has not ended; nil if all have
}

// member is the part of a run that its deletion needs; a whole run has up to a megabyte.
type member struct {
	id       state.RunID
	tenant   string
	status   state.Status
	depth    int // below the root of its tree
	finished time.Time
	letters  bool // it has dead letters
}

func memberOf(s state.State) member {
	m := member{id: s.ID, tenant: s.Tenant, status: s.Status, finished: s.FinishedAt.Time, letters: s.DeadLettered}
	if s.Parent != nil {
		m.depth = s.Parent.Depth
	}
	return m
}

func (t *tree) add(m member) {
	t.runs = append(t.runs, m)
	if !m.status.Terminal() && t.live == nil {
		t.live = &state.NotEndedError{ID: m.id, Status: m.status}
	}
}

func (t *tree) root() member { return t.runs[0] }

func (t *tree) has(id state.RunID) bool {
	return slices.ContainsFunc(t.runs, func(m member) bool { return m.id == id })
}

// trees returns the trees of some runs of one tenant, as far as lists have them. It asks the store
// once for the runs below many, not once for each.
func (c *Cleaner) trees(ctx context.Context, roots []member) ([]tree, error) {
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
				children, err := c.store.List(ctx, f)
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

// result is the outcome of the deletion of a tree.
type result struct {
	root    state.RunID
	deleted int // runs
	err     error
}

// delete deletes some trees of one tenant. It first seals all runs of a tree, so that none can continue. If one has not
// ended or is about to be created, delete removes the seals again; otherwise it deletes the runs. If a crash or a
// failure interrupts it, a later resume, in this process or another, completes or cancels it from an intent in the
// store. The results have the errors of single trees; the error of delete concerns all of them, and some may be deleted
// nevertheless.
func (c *Cleaner) delete(ctx context.Context, tenant string, trees []tree) ([]result, error) {
	if len(trees) == 0 {
		return nil, nil
	}
	now, err := c.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	results, all := make([]result, len(trees)), make([]int, len(trees))
	in := intent{Tenant: tenant, At: state.At(now)}
	for i, t := range trees {
		results[i].root, all[i] = t.root().id, i
		in.Roots = append(in.Roots, t.root().id)
	}
	name := string(in.Roots[0])
	if err := c.intend(ctx, name, in); err != nil {
		return nil, err
	}
	c.each(all, func(i int) { results[i].err = c.seal(ctx, &trees[i], now) })
	sealed := slices.DeleteFunc(all, func(i int) bool { return results[i].err != nil })
	if len(sealed) > 0 {
		err = c.noted(ctx, tenant, func() error {
			c.each(sealed, func(i int) { results[i].deleted, results[i].err = c.deleteTree(ctx, trees[i]) })
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	in.Roots = nil
	for _, r := range results {
		if r.err != nil && !refused(r.err) && !errors.Is(r.err, state.ErrNotFound) {
			in.Roots = append(in.Roots, r.root)
		}
	}
	// Keep the intent consistent even if the client has gone.
	return results, c.intend(context.WithoutCancel(ctx), name, in)
}

// each calls fn for some trees, several at a time.
func (c *Cleaner) each(trees []int, fn func(i int)) {
	var group errgroup.Group
	group.SetLimit(treesAtOnce)
	for _, i := range trees {
		group.Go(func() error {
			fn(i)
			return nil
		})
	}
	_ = group.Wait() // each has its own result
}

// seal seals all runs of a tree, or none. It gets the runs from the root's admissions: a list may
// not yet have a run that was just created.
func (c *Cleaner) seal(ctx context.Context, t *tree, now time.Time) error {
	root := t.root()
	token, err := c.newToken()
	if err != nil {
		return err
	}
	admitted, err := c.store.Seal(ctx, root.id, token)
	if err != nil && !refused(err) {
		return err
	}
	missing, missingErr := c.complete(ctx, t, admitted)
	if err = cmp.Or(err, missingErr); err == nil && len(missing) > 0 && now.Sub(root.finished) < creationGrace {
		err = &NotCreatedError{Root: root.id, ID: missing[0]}
	}
	// All of them, also if one has refused: a seal that another process has left goes with it.
	if err == nil || refused(err) {
		err = cmp.Or(err, c.eachRun(t.runs[1:], func(m member) error {
			_, err := c.store.Seal(ctx, m.id, token)
			if errors.Is(err, state.ErrNotFound) {
				return nil // another process has deleted it
			}
			return err
		}))
	}
	for _, id := range missing {
		if err == nil {
			err = c.preventCreation(ctx, root, id)
		}
	}
	if err == nil || !refused(err) {
		// After a failure the seals stay: another process may be deleting the tree under them,
		// and the intent has this deletion completed.
		return err
	}
	if failed := c.eachRun(t.runs, func(m member) error { return c.store.Unseal(context.WithoutCancel(ctx), m.id, token) }); failed != nil {
		// This is no refusal: the intent must stay, so that resume removes the seals.
		return fmt.Errorf("undo the refused deletion of run %s: %w", root.id, failed)
	}
	return err
}

// newToken returns the token of a seal.
func (c *Cleaner) newToken() (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(c.cfg.Random, b[:]); err != nil {
		return "", fmt.Errorf("generate a random token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// complete adds to a tree the runs that its root has admitted and that it lacks, and returns
// those that do not exist yet.
func (c *Cleaner) complete(ctx context.Context, t *tree, admitted []state.RunID) (missing []state.RunID, err error) {
	for _, id := range admitted {
		if t.has(id) {
			continue
		}
		s, err := c.store.Load(ctx, id)
		switch {
		case err == nil:
			t.add(memberOf(s))
		case errors.Is(err, state.ErrDeleted):
			if err := c.purgeDeleted(ctx, t.root().tenant, id); err != nil {
				return nil, err
			}
		case errors.Is(err, state.ErrNotFound):
			missing = append(missing, id)
		default:
			return nil, err
		}
	}
	return missing, nil
}

// preventCreation prevents the creation of a run that a tree has admitted. It returns a *state.NotEndedError if
// the run was created first.
func (c *Cleaner) preventCreation(ctx context.Context, root member, id state.RunID) error {
	if err := c.store.PreventCreation(ctx, root.tenant, id); err != nil {
		return err
	}
	s, err := c.store.Load(ctx, id)
	if errors.Is(err, state.ErrDeleted) {
		return nil
	}
	return cmp.Or(err, error(&state.NotEndedError{ID: id, Status: s.Status})) // it was created meanwhile
}

// eachRun calls fn for some runs of a tree, several at a time, and returns an error of one: a
// refusal if there is any.
func (*Cleaner) eachRun(runs []member, fn func(member) error) error {
	errs := make([]error, len(runs))
	var group errgroup.Group
	group.SetLimit(runsAtOnce)
	for i, m := range runs {
		group.Go(func() error {
			errs[i] = fn(m)
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	if i := slices.IndexFunc(errs, refused); i >= 0 {
		return errs[i]
	}
	return cmp.Or(errs...)
}

// deleteTree deletes the runs of a tree that is sealed, those above last, and returns how many
// it has deleted.
func (c *Cleaner) deleteTree(ctx context.Context, t tree) (deleted int, err error) {
	levels := slices.Clone(t.runs)
	slices.SortStableFunc(levels, func(a, b member) int { return cmp.Compare(b.depth, a.depth) })
	for len(levels) > 0 {
		n := 1
		for n < len(levels) && levels[n].depth == levels[0].depth {
			n++
		}
		if err := c.eachRun(levels[:n], func(m member) error { return c.deleteRun(ctx, m) }); err != nil {
			return deleted, err
		}
		deleted, levels = deleted+n, levels[n:]
	}
	return deleted, nil
}

// deleteRun deletes one run, and then publishes a deletion notice, also if the store no longer had the run. It purges
// the bus first, so that a retry of an interrupted deletion still finds the run, and again after the store, because a
// worker may have published in between. A worker that publishes later finds the marker of the deletion in the store,
// and purges the run's events itself.
func (c *Cleaner) deleteRun(ctx context.Context, m member) error {
	if err := c.bus.PurgeRun(ctx, m.tenant, m.id, m.letters); err != nil {
		return fmt.Errorf("delete events of run %s: %w", m.id, err)
	}
	if err := c.store.Delete(ctx, m.id); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	if err := c.bus.PurgeRun(ctx, m.tenant, m.id, m.letters); err != nil {
		return fmt.Errorf("delete events of run %s: %w", m.id, err)
	}
	c.bus.Deleted(m.tenant, m.id)
	return nil
}

// purgeDeleted completes an earlier deletion of a run. That deletion may have failed before it had removed everything
// from the store, or before its last purge of the bus.
func (c *Cleaner) purgeDeleted(ctx context.Context, tenant string, id state.RunID) error {
	if err := c.store.Delete(ctx, id); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	if err := c.bus.PurgeRun(ctx, tenant, id, true); err != nil {
		return fmt.Errorf("delete events of run %s: %w", id, err)
	}
	return nil
}

// intent names the trees of a deletion that is in progress.
type intent struct {
	Tenant string        `json:"tenant"`
	Roots  []state.RunID `json:"roots"`
	At     state.Time    `json:"at"`
}

// intend stores an intent, or removes it if it names no trees.
func (c *Cleaner) intend(ctx context.Context, name string, in intent) error {
	if len(in.Roots) == 0 {
		return c.store.DeleteDocument(ctx, state.DeletionDocument, name)
	}
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the list of runs to delete: %w", err)
	}
	return c.store.PutDocument(ctx, state.DeletionDocument, name, data)
}

// resume completes deletions that began more than a minute ago: it deletes the trees that can be deleted, and
// removes the seals of the others.
func (c *Cleaner) resume(ctx context.Context) {
	warn := func(err error) {
		if ctx.Err() == nil {
			c.cfg.Logger.Warn("deletions not completed, the gateway retries", "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation; upgrade this gateway if a newer build wrote the run or the deletion")
		}
	}
	documents, err := c.store.Documents(ctx, state.DeletionDocument)
	if err == nil && len(documents) == 0 {
		return
	}
	now, nowErr := c.store.Now(ctx)
	if err := cmp.Or(err, nowErr); err != nil {
		warn(err)
		return
	}
	for name, data := range documents {
		var in intent
		if err := json.Unmarshal(data, &in); err != nil {
			warn(fmt.Errorf("decode deletion %s: %w", name, err))
			continue
		}
		if now.Sub(in.At.Time) < interrupted {
			continue
		}
		left := intent{Tenant: in.Tenant, At: in.At}
		for _, root := range in.Roots {
			_, err := c.deleteRoot(ctx, root, true)
			if errors.Is(err, state.ErrDeleted) {
				err = c.purgeDeleted(ctx, in.Tenant, root)
			}
			if err != nil && !refused(err) && !errors.Is(err, state.ErrNotFound) {
				warn(fmt.Errorf("run %s: %w", root, err))
				left.Roots = append(left.Roots, root)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err := c.intend(ctx, name, left); err != nil {
			warn(err)
		}
	}
}
