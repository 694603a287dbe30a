package redisstore_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// A server whose memory is full answers reads. The store is not ready then, and Check names the limit, although
// doctor may not write.
func TestFullServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		maxmemory string
		ok        bool
	}{{"0", true}, {"100kb", false}} {
		s := testbed.RedisProcess(t, "--maxmemory", c.maxmemory, "--maxmemory-policy", "noeviction")
		store, err := redisstore.Open(t.Context(), redisstore.Config{URL: s.URL, Prefix: "p"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		if err := store.Ready(t.Context()); (err == nil) != c.ok || err != nil && !errors.Is(err, check.ErrNoWrites) {
			t.Errorf("maxmemory %s: Ready = %v", c.maxmemory, err)
		}
		findings := store.Check(t.Context())
		i := slices.IndexFunc(findings, func(f state.Finding) bool { return f.Name == "redis: writes" })
		if i < 0 || findings[i].OK != c.ok || check.Failed(findings[i:i+1]) == c.ok {
			t.Errorf("maxmemory %s: findings %+v", c.maxmemory, findings)
		}
	}
}
