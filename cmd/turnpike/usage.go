package main

import (
	"errors"
	"fmt"
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
