package loop_test

import (
	"flag"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/loop/looptest"
	"github.com/turnpike-dev/turnpike/pkg/loop"
)

var update = flag.Bool("update", false, "rewrite what the loops decide in the scenarios")

// The loops' decisions match the scenarios in testdata/scenarios, which name the behaviors they show.
func TestScenarios(t *testing.T) {
	t.Parallel()
	looptest.Play(t, loop.Builtin(), "testdata/scenarios/*.txt", *update)
}
