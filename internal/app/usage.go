package app

import (
	"errors"
	"fmt"
	"net"
)

// UsageError is a mistake in a flag, an argument or a variable that is found after they were
// read, and before anything was done.
type UsageError struct{ error }

// Unwrap returns the mistake.
func (e *UsageError) Unwrap() error { return e.error }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// exitCode is the exit code of a process after an error.
func exitCode(err error) int {
	if _, ok := errors.AsType[*UsageError](err); ok {
		return exitUsage
	}
	return 1
}

// listening adds the remedy to an error of a process that could not listen.
func listening(err error) error {
	if _, ok := errors.AsType[*net.AddrError](err); ok {
		return Usagef("--addr: %w: write one such as 127.0.0.1:7070", errors.Unwrap(err))
	}
	return fmt.Errorf("%w: choose another address with --addr", err)
}
