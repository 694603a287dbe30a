package main

import (
	"errors"
	"io/fs"

	"github.com/turnpike-dev/turnpike/internal/app"
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

// named returns a usage error for err if err says that a file does not exist which an argument names, else err.
func named(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%w", err)
	}
	return err
}
