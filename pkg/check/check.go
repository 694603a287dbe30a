package check

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNoWrites is wrapped by errors about a server that answers and does not store: its disk or
// memory is full, or it was set to refuse writes.
var ErrNoWrites = errors.New("takes no writes")

// Finding is one thing that was looked at.
type Finding struct {
	Name   string `json:"name"`   // "redis: maxmemory-policy"
	OK     bool   `json:"ok"`     //
	Fatal  bool   `json:"fatal"`  // a process must not start on this
	Broken bool   `json:"broken"` // a process starts, but runs do not make progress: doctor fails
	Detail string `json:"detail"` // what was found
	Remedy string `json:"remedy"` // how to mend it; empty if OK
}

// Failed reports whether runs cannot make progress: a finding is not OK, and fatal or broken.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return !f.OK && (f.Fatal || f.Broken) })
}

// Err joins the fatal findings into one error, or returns nil.
func Err(findings []Finding) error {
	var errs []error
	for _, f := range findings {
		if !f.OK && f.Fatal {
			errs = append(errs, fmt.Errorf("%s: %s; %s", f.Name, f.Detail, f.Remedy))
		}
	}
	return errors.Join(errs...)
}
