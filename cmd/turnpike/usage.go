package main

import (
	"errors"
	"io/fs"

	"github.com/turnpike-dev/turnpike/internal/app"
)

// usagef returns an error of how the command was called: it exits with code 80.
func usagef(format string, args ...any) error { return app.Usagef(format, args...) }

// checkLimit refuses a --limit that leaves nothing.
func checkLimit(limit int) error {
	if limit < 1 {
		return usagef("--limit is %d: set 1 or more", limit)
	}
	return nil
}

// named is an error of reading a file that an argument names: a missing file is a
// mistake in the argument.
func named(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%w", err)
	}
	return err
}
