//go:build hunt

package redisstore_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The tests in this file show known defects of many runs at once. They fail until the
// defect that each one names is mended: `make hunt` runs them, `make verify` sees that
// they compile. Who mends one moves its test to the package's other tests.

// Finding 9: a list with a filter that nothing matches walks every run.
func TestHuntList(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb, total, with := openAt(t, p.URL, "list"), raw(t, p.URL), 0, map[int]cost{}
	for _, n := range []int{few, many} {
		fill(t, s, n-total, true, time.Second)
		total = n
		with[n] = spent(t, rdb, func() {
			if page, err := s.List(t.Context(), state.Filter{Status: []state.Status{state.Failed}}); err != nil || len(page.Runs) != 0 {
				t.Fatal(len(page.Runs), err)
			}
		})
	}
	compare(t, "a list without a match", with)
}
