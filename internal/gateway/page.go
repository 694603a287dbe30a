package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	defaultPage = 50
	maxPage     = 1000

	// listBytes ends a page early: a run, and a definition, has up to a megabyte.
	listBytes = 8 << 20

	// readsAtOnce is how many of the items of a page are read at a time, where each is read
	// by itself.
	readsAtOnce = 8
)

func limitOf(r *http.Request) (int, error) { return limitIn(r.URL.Query()) }

func limitIn(query url.Values) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, invalid("limit %q must be a number from 1 to %d", text, maxPage)
	}
	return n, nil
}

// pageOf answers with one page of a list that is at hand; the cursor is a place.
// Without a limit the whole list is one page.
func pageOf[T any](w http.ResponseWriter, r *http.Request, items []T) error {
	page, err := cut(r, items)
	if err != nil {
		return err
	}
	return replyPage(w, page)
}

// cut returns the page of a list that a request asks for.
func cut[T any](r *http.Request, items []T) (api.Page[T], error) {
	from, to, err := placesOf(r, len(items))
	if err != nil {
		return api.Page[T]{}, err
	}
	return api.NewPage(items[from:to], placeCursor(to, len(items))), nil
}

// placesOf is where the page of a list of n begins and ends that a request asks for.
func placesOf(r *http.Request, n int) (from, to int, err error) {
	if text := r.URL.Query().Get("cursor"); text != "" {
		from, err = strconv.Atoi(text)
		if err != nil || from < 0 {
			return 0, 0, problem(http.StatusBadRequest, api.CodeInvalidCursor, "the cursor is not one that a list gave")
		}
		from = min(from, n)
	}
	if !r.URL.Query().Has("limit") {
		return from, n, nil
	}
	limit, err := limitOf(r)
	return from, min(from+limit, n), err
}

// placeCursor is the cursor of what comes after the first items of a list of n, empty at its end.
func placeCursor(items, n int) string {
	if items == n {
		return ""
	}
	return strconv.Itoa(items)
}

// eachRun visits the newest runs that an index of the store has for a filter, f.Limit at most, and
// returns where more of them begin. It does not hold them at once.
func (g *Gateway) eachRun(ctx context.Context, f state.Filter, visit func(state.State)) (next string, err error) {
	f.Bytes = listBytes
	for {
		page, err := g.store.List(ctx, f)
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

// readEach calls read for each number below n, some at a time: one after the other they would
// use up what a request has to wait for a store that is far away.
func (g *Gateway) readEach(ctx context.Context, n int, read func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(readsAtOnce)
	for i := range n {
		all.Go(g.guarded(func() error { return read(ctx, i) }))
	}
	return all.Wait()
}

// readPage answers with one page of a list whose names are at hand and whose items are read one
// by one; read returns an item and its bytes. What is gone meanwhile is left out.
func readPage[T any](g *Gateway, w http.ResponseWriter, r *http.Request, names []string, read func(ctx context.Context, name string) (T, int, error)) error {
	from, to, err := placesOf(r, len(names))
	if err != nil {
		return err
	}
	items := make([]T, 0, to-from)
	for size := 0; from < to && size < listBytes; {
		some := names[from:min(from+readsAtOnce, to)]
		found, sizes := make([]*T, len(some)), make([]int, len(some))
		err := g.readEach(r.Context(), len(some), func(ctx context.Context, i int) error {
			item, n, err := read(ctx, some[i])
			if errors.Is(err, state.ErrNotFound) {
				return nil
			}
			found[i], sizes[i] = &item, n
			return err
		})
		if err != nil {
			return err
		}
		for i, item := range found {
			if item != nil {
				items, size = append(items, *item), size+sizes[i]
			}
		}
		from += len(some)
	}
	return replyPage(w, api.NewPage(items, placeCursor(from, len(names))))
}
