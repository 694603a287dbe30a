package check

import (
	"errors"
	"fmt"
)

// Finding is one thing that was looked at.
type Finding struct {
	Name   string `json:"name"`   // "redis: maxmemory-policy"
	OK     bool   `json:"ok"`     //
	Fatal  bool   `json:"fatal"`  // a process must not start on this
	Detail string `json:"detail"` // what was found
	Remedy string `json:"remedy"` // how to mend it; empty if OK
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
