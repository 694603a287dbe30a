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
// executor, quarantine, separated by commas. `make test-plain` names all.
func Without() worker.Optimisations {
	names := strings.Split(os.Getenv("TURNPIKE_TEST_WITHOUT"), ",")
	return worker.Optimisations{
		EagerClaims: slices.Contains(names, "eager_claims"), Executor: slices.Contains(names, "executor"), Quarantine: slices.Contains(names, "quarantine"),
	}
}
