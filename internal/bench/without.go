package bench

import (
	"os"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// withoutVariable carries Config.Without to the processes that a measurement starts.
const withoutVariable = "TURNPIKE_BENCH_WITHOUT"

// doWithout takes optimisations out for the measurements of this process, and of those that it
// starts.
func doWithout(names []string) error { return os.Setenv(withoutVariable, strings.Join(names, ",")) }

// without reports whether an optimisation is taken out.
func without(name string) bool {
	return slices.Contains(strings.Split(os.Getenv(withoutVariable), ","), name)
}

func optimisations() worker.Optimisations {
	return worker.Optimisations{EagerClaims: without("eager_claims"), Executor: without("executor"), Quarantine: without("quarantine")}
}

// redisAt is the store of a measurement.
func redisAt(url string) redisstore.Config {
	return redisstore.Config{URL: url, NoBatching: without("batching")}
}
