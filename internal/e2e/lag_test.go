package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The gateway exports the deployment's lag by lane, even without workers. Workers export none, so that a sum
// over processes counts each turn once.
func TestQueueLag(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, 0)
	s.definePlain()
	for _, priority := range []string{"high", "high", "normal"} {
		s.submitPlain(priority)
	}
	lag := func(high, normal int) {
		t.Helper()
		eventually(t, "lag", func() error {
			_, body, err := get(t, s.url+"/metrics")
			for lane, n := range map[string]int{"high": high, "normal": normal, "low": 0} {
				if line := fmt.Sprintf("turnpike_queue_lag{lane=%q} %d\n", lane, n); !strings.Contains(body, line) {
					err = errors.Join(err, fmt.Errorf("%q is missing", line))
				}
				if waits := !strings.Contains(body, fmt.Sprintf("turnpike_queue_oldest_seconds{lane=%q} 0\n", lane)); waits != (n > 0) {
					err = errors.Join(err, fmt.Errorf("lane %s: a turn waits is %v", lane, waits))
				}
			}
			return err
		})
	}
	lag(2, 1)
	addr := freeAddr(t)
	spawn(t, "worker", append(s.env, "TURNPIKE_METRICS_ADDR="+addr))
	lag(0, 0)
	eventually(t, "the worker's metrics", func() error {
		_, body, err := get(t, "http://"+addr+"/metrics")
		if err == nil && !strings.Contains(body, `turnpike_turns_total{reason="completed"} 3`) {
			err = errors.New("the turns are missing")
		}
		if strings.Contains(body, "turnpike_queue_lag") {
			t.Fatal("the worker exports a lag")
		}
		return err
	})
}
