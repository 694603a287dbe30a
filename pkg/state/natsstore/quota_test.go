package natsstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A17: processes that ask one quota at the same time meet conflicts, and each gets
// its answer all the same: together no more than the quota.
func TestQuotaOfManyProcesses(t *testing.T) {
	t.Parallel()
	const processes, each, limit = 30, 10, 100
	server := testbed.NATSServer(t)
	p := prefix()
	began := time.Now()
	var entered atomic.Int64
	var group sync.WaitGroup
	for i := range processes {
		nc, err := server.Conn(fmt.Sprint("process ", i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		s := open(t, nc, p)
		group.Go(func() {
			for range each {
				got, err := s.Take(t.Context(), "k", state.Take{Quota: state.Quota{Requests: limit}})
				if err != nil {
					t.Errorf("Take: %v", err)
				}
				if got.Wait == 0 {
					entered.Add(1)
				}
			}
		})
	}
	group.Wait()
	if most := limit/20 + 1 + int64(time.Since(began)*limit/time.Minute); entered.Load() > most {
		t.Errorf("%d are let in after %s, want %d at most", entered.Load(), time.Since(began), most)
	}
}
