package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// pagesAhead is the number of pages of runs that a pass finds before it has deleted them: the
	// backlog is exact up to that.
	pagesAhead = 50

	// pagesAtOnce is the number of pages that a pass deletes concurrently.
	pagesAtOnce = 2

	// maxRate is the maximum number of trees per second that a pass deletes while it has full pages,
	// so that it leaves the store to the runs in flight.
	maxRate = 1000
)

// pace limits the rate of deletions: after the deletion of a number of trees, which began at began, it waits until the
// next page may be deleted, or until ctx ends. It does not wait after fewer than `page` trees.
func pace(ctx context.Context, runs int, began time.Time) {
	if runs < page {
		return
	}
	t := time.NewTimer(time.Duration(runs*pagesAtOnce)*time.Second/maxRate - time.Since(began))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// pass deletes the runs that a rule no longer keeps, each with all runs below it: those that ended before until and
// have no parent any more, unless a run below has not ended. It searches the runs that were created before until, from
// the newest. If it cannot delete a run, it continues with the others; if the store fails, it ends. The error names the
// first failures.
func (c *Cleaner) pass(ctx context.Context, r rule, until time.Time) error {
	f := r.filter
	f.Limit, f.Bytes, f.Cursor = page, pageBytes, string(state.FirstIDAt(until))
	var failed failures
	found := c.stats.begin(r)
	pages := make(chan []member, pagesAhead)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pages)
		for {
			old, next, err := c.old(ctx, f, until, &failed)
			if err != nil {
				return err
			}
			found.add(old, r.keep)
			select {
			case pages <- old:
			case <-ctx.Done():
				return ctx.Err()
			}
			if f.Cursor = next; f.Cursor == "" {
				return nil
			}
		}
	})
	var mu sync.Mutex
	deleted := 0
	for range pagesAtOnce {
		group.Go(func() error {
			for old := range pages {
				began := time.Now()
				n, err := c.deleteAll(ctx, old, found, &failed)
				mu.Lock()
				deleted += n
				mu.Unlock()
				if err != nil {
					return err
				}
				pace(ctx, len(old), began)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		failed.add(err)
	}
	if deleted > 0 {
		c.cfg.Logger.Info("old runs deleted", "runs", deleted, "kept", r.keep, "agent", f.Agent)
	}
	return failed.err()
}

// old returns the runs of a page that a rule no longer keeps, and the cursor of the next page.
func (c *Cleaner) old(ctx context.Context, f state.Filter, until time.Time, failed *failures) (old []member, next string, err error) {
	found, err := c.store.List(ctx, f)
	if err != nil {
		return nil, "", err
	}
	for _, s := range found.Runs {
		if s.FinishedAt.After(until) {
			continue
		}
		switch err := c.checkRoot(ctx, s); {
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

// deleteAll deletes some runs of one tenant with all runs below them. It leaves out trees that have not ended, and
// adds failed ones to failed. It returns the number of runs that it has deleted. An error concerns all of the trees;
// some of them may be deleted nevertheless.
func (c *Cleaner) deleteAll(ctx context.Context, roots []member, found *finding, failed *failures) (deleted int, err error) {
	if len(roots) == 0 {
		return 0, nil
	}
	trees, err := c.eachTree(ctx, roots, failed)
	if err != nil {
		return 0, err
	}
	trees = slices.DeleteFunc(trees, func(t tree) bool {
		if t.live != nil {
			found.done(1)
		}
		return t.live != nil
	})
	results, err := c.delete(ctx, roots[0].tenant, trees)
	if err != nil {
		return 0, err
	}
	for _, r := range results {
		deleted += r.deleted
		if r.err == nil || refused(r.err) || errors.Is(r.err, state.ErrNotFound) {
			found.done(1)
		} else if ctx.Err() == nil {
			failed.add(fmt.Errorf("run %s: %w", r.root, r.err))
		}
	}
	c.stats.deleted(deleted)
	return deleted, ctx.Err()
}

// eachTree returns the trees of some runs. If some of them cannot be read, it reads each by
// itself, so that one failure does not keep the others.
func (c *Cleaner) eachTree(ctx context.Context, roots []member, failed *failures) ([]tree, error) {
	trees, err := c.trees(ctx, roots)
	if err == nil || ctx.Err() != nil {
		return trees, err
	}
	if _, away := c.store.Now(ctx); away != nil {
		return nil, err
	}
	for _, root := range roots {
		one, err := c.trees(ctx, []member{root})
		if err != nil {
			failed.add(fmt.Errorf("run %s: %w", root.id, err))
			continue
		}
		trees = append(trees, one...)
	}
	return trees, nil
}

// failures are errors that do not stop a pass. It is safe for concurrent use.
type failures struct {
	mu    sync.Mutex
	first []error
	more  int
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.first) == told {
		f.more++
		return
	}
	f.first = append(f.first, err)
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more > 0 {
		return fmt.Errorf("%w\nand %d more", errors.Join(f.first...), f.more)
	}
	return errors.Join(f.first...)
}
