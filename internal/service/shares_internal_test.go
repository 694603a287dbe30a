package service

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// A caller that gives up, whatever share it waits for, keeps nothing of any.
func TestSharesOfCallersThatGiveUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		others int // callers that have a share
		tenant func(i int) string
		size   int64
	}{
		"of the tenant": {triggersOfTenant, func(int) string { return "acme" }, 0},
		"of all":        {triggersAtOnce, func(i int) string { return fmt.Sprint("t", i/triggersOfTenant) }, 0},
		"of the bytes":  {1, func(int) string { return "t" }, triggerBytes},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newShares()
			var leave []func()
			for i := range test.others {
				done, err := s.enter(t.Context(), test.tenant(i), test.size)
				if err != nil {
					t.Fatal(err)
				}
				leave = append(leave, done)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var late sync.WaitGroup
			for range triggersAtOnce + 1 {
				late.Go(func() {
					if _, err := s.enter(ctx, "acme", 1); err == nil {
						t.Errorf("%s: there are more shares than there should be", name)
					}
				})
			}
			synctest.Wait()
			cancel()
			late.Wait()
			for _, done := range leave {
				done()
				done() // without effect
			}
			if n := len(s.tenants); n != 0 {
				t.Errorf("%s: %d tenants are remembered, want none", name, n)
			}
			if !s.all.TryAcquire(triggersAtOnce) || !s.bytes.TryAcquire(triggerBytes) {
				t.Errorf("%s: not all shares are free again", name)
			}
		})
	}
}
