package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// usagef returns an error for a mistake in the command line: the process exits with code 80.
func usagef(format string, args ...any) error { return app.Usagef(format, args...) }

// checkLimit returns a usage error if the value of --limit is less than 1.
func checkLimit(limit int) error {
	if limit < 1 {
		return usagef("--limit is %d: set 1 or more", limit)
	}
	return nil
}

// named adds the remedy to an error about a file that an argument names. If the file does not exist, the result is a
// usage error.
func named(err error) error {
	if bare, ok := errors.AsType[*fs.PathError](err); ok && bare.Error() == err.Error() {
		err = fmt.Errorf("%w: name a file that this user can read", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%w", err)
	}
	return err
}

// mostListed is the maximum number of items that a gateway returns at once.
const mostListed = 1000

// upTo reads at most limit items of a list with read, and returns them as one page. It reads several pages if
// necessary, because a page may have fewer items than its limit, or none, although more follow.
func upTo[T any](limit int, read func(cursor string, limit int) (api.Page[T], error)) (api.Page[T], error) {
	all := api.NewPage([]T{}, "")
	if err := checkLimit(limit); err != nil {
		return all, err
	}
	for cursor := ""; ; cursor = *all.NextCursor {
		page, err := read(cursor, min(limit-len(all.Items), mostListed))
		if err != nil {
			return all, err
		}
		page.Items = append(all.Items, page.Items...)
		if all = page; all.NextCursor == nil || len(all.Items) >= limit {
			return all, nil
		}
	}
}
