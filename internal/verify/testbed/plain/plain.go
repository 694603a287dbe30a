// Package plain disables the optimisations of workers for suites of behaviour: the results of runs
// must not depend on them.
package plain

import (
	"os"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/worker"
)

// Without returns the optimisations that a suite disables: TURNPIKE_TEST_WITHOUT has eager_claims,
// sticky or quarantine, or several with commas between them, as in `make test-plain`.
func Without() worker.Optimisations {
	names := strings.Split(os.Getenv("TURNPIKE_TEST_WITHOUT"), ",")
	return worker.Optimisations{
		EagerClaims: slices.Contains(names, "eager_claims"), Sticky: slices.Contains(names, "sticky"), Quarantine: slices.Contains(names, "quarantine"),
	}
}
