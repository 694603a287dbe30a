package service

import (
	"context"
	"errors"
	"net/url"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	defaultPage = 50
	maxPage     = 1000

	// ListBytes is the size in bytes at which a page ends early: a run has up to 8 MiB, a definition up to 1 MiB.
	ListBytes = 8 << 20

	// readsAtOnce is the number of concurrent reads if the items of a page are read one by one.
	readsAtOnce = 8
)

// Page is the part of a list that a caller asks for.
type Page struct {
	Limit   int // 1 to 1,000; default 50
	Cursor  string
	Limited bool // the caller has set Limit; if not, a list that is in memory is one page
}

// ParsePage reads the parameters limit and cursor. It does not check the cursor.
func ParsePage(query url.Values) (Page, error) {
	p := Page{Limit: defaultPage, Cursor: query.Get("cursor"), Limited: query.Has("limit")}
	text := query.Get("limit")
	if text == "" {
		return p, nil
	}
	var err error
	if p.Limit, err = strconv.Atoi(text); err != nil || p.Limit < 1 || p.Limit > maxPage {
		return p, invalid("limit %q is not valid: give a number from 1 to %d", text, maxPage)
	}
	return p, nil
}

func invalidCursor() error {
	return problem(badRequest, api.CodeInvalidCursor, "invalid cursor: pass next_cursor from a response of the same list")
}

// Cut returns a page of a list that is in memory: all the rest if p.Limited is false. The cursor is an index, so a page
// may miss or repeat items if the list changes between requests.
func Cut[T any](p Page, items []T) (api.Page[T], error) {
	from, to, err := p.places(len(items))
	if err != nil {
		return api.Page[T]{}, err
	}
	return api.NewPage(items[from:to], placeCursor(to, len(items))), nil
}

// Skip returns the number of items before the page.
func (p Page) Skip() (int, error) {
	if p.Cursor == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(p.Cursor)
	if err != nil || n < 0 {
		return 0, invalidCursor()
	}
	return n, nil
}

// places returns the bounds of the page in a list of n items.
func (p Page) places(n int) (from, to int, err error) {
	if from, err = p.Skip(); err != nil {
		return 0, 0, err
	}
	from = min(from, n)
	if !p.Limited {
		return from, n, nil
	}
	return from, min(from+p.Limit, n), nil
}

// placeCursor returns the cursor after the first items of a list of n, or "" at its end.
func placeCursor(items, n int) string {
	if items == n {
		return ""
	}
	return strconv.Itoa(items)
}

// eachRun calls visit with the newest runs after f.Cursor that match a filter, at most f.Limit, and returns the cursor
// of the rest, or "" at the end. It holds one page of the store in memory at a time. f.Limit must be positive.
func (k *core) eachRun(ctx context.Context, f state.Filter, visit func(state.State)) (next string, err error) {
	f.Bytes = ListBytes
	for {
		page, err := k.store.List(ctx, f)
		if err != nil {
			return "", err
		}
		for _, st := range page.Runs {
			visit(st)
		}
		if f.Limit -= len(page.Runs); f.Limit <= 0 || page.Next == "" {
			return page.Next, nil
		}
		f.Cursor = page.Next
	}
}

// readEach calls read for each number from 0 to n-1, readsAtOnce concurrently, and returns the first error: sequential
// reads of a distant store would exceed the budget of the request.
func (k *core) readEach(ctx context.Context, n int, read func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(readsAtOnce)
	for i := range n {
		all.Go(k.guarded(func() error { return read(ctx, i) }))
	}
	return all.Wait()
}

// readPage returns a page of a list whose names are known and whose items it reads one by one. read returns an item and
// its size in bytes; readPage omits an item if the error wraps state.ErrNotFound. A page may be shorter than its limit.
func readPage[T any](ctx context.Context, k *core, p Page, names []string, read func(ctx context.Context, name string) (T, int, error)) (api.Page[T], error) {
	from, to, err := p.places(len(names))
	if err != nil {
		return api.Page[T]{}, err
	}
	items := make([]T, 0, to-from)
	for size := 0; from < to && size < ListBytes; {
		some := names[from:min(from+readsAtOnce, to)]
		found, sizes := make([]*T, len(some)), make([]int, len(some))
		err := k.readEach(ctx, len(some), func(ctx context.Context, i int) error {
			item, n, err := read(ctx, some[i])
			if errors.Is(err, state.ErrNotFound) {
				return nil
			}
			found[i], sizes[i] = &item, n
			return err
		})
		if err != nil {
			return api.Page[T]{}, err
		}
		for i, item := range found {
			if item != nil {
				items, size = append(items, *item), size+sizes[i]
			}
		}
		from += len(some)
	}
	return api.NewPage(items, placeCursor(from, len(names))), nil
}
