package service

import (
	"fmt"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func note(c *noisy, tenant string, times int, each ...bool) {
	for range times {
		for _, noisy := range each {
			c.note(state.Created{State: state.State{Status: state.Queued, Tenant: tenant}, Noisy: noisy})
		}
	}
}

// A few runs that the store reports as noisy may be an accident of their shards. A tenant is noisy while many
// are reported; other tenants are not affected.
func TestNoisyTenants(t *testing.T) {
	t.Parallel()
	var c noisy
	note(&c, "a", 1000, true, false, false, false, false, false)
	if c.full("a") {
		t.Error("one in six is enough")
	}
	note(&c, "a", 60, true, false, false)
	if !c.full("a") {
		t.Error("one in three is not enough")
	}
	if c.full("b") {
		t.Error("a tenant is noisy because another one is")
	}
	note(&c, "b", noisyFull, false)
	if !c.full("a") {
		t.Error("the quiet runs of another tenant count")
	}
	c.note(state.Created{State: state.State{Status: state.Waiting, Tenant: "a"}})
	note(&c, "a", noisyFull, false)
	if c.full("a") || len(c.levels) != 0 {
		t.Errorf("an expired report still counts: %v", c.levels)
	}
}

func TestNoisyTenantsAreBounded(t *testing.T) {
	t.Parallel()
	var c noisy
	for i := range 3 * noisyTenants {
		note(&c, fmt.Sprint(i), 1, true)
		if len(c.levels) > noisyTenants {
			t.Fatalf("%d tenants are remembered", len(c.levels))
		}
	}
}
