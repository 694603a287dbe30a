package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ErrNoWrites is wrapped by errors about a server that answers and does not store: its disk or
// memory is full, or it was set to refuse writes.
var ErrNoWrites = errors.New("takes no writes")

// Failed reports whether runs cannot make progress: a finding is not OK, and fatal or broken.
func Failed(findings []state.Finding) bool {
	return slices.ContainsFunc(findings, func(f state.Finding) bool { return !f.OK && (f.Fatal || f.Broken) })
}

// Err joins the fatal findings into one error, or returns nil.
func Err(findings []state.Finding) error {
	var errs []error
	for _, f := range findings {
		if !f.OK && f.Fatal {
			errs = append(errs, fmt.Errorf("%s: %s; %s", f.Name, f.Detail, f.Remedy))
		}
	}
	return errors.Join(errs...)
}
