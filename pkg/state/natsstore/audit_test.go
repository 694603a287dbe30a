package natsstore_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// The cost of a page of the audit log depends on its size, not on what other tenants, or this one, have written
// before.
func TestAuditBesideOthers(t *testing.T) {
	t.Parallel()
	const many = 20_000
	nc := testbed.NATS(t)
	s := open(t, nc, "p")
	written := map[string]int{}
	write := func(tenant string, n int) {
		t.Helper()
		for range n {
			if err := nc.Publish("p.audit."+tenant, []byte(strconv.Itoa(written[tenant]))); err != nil {
				t.Fatal(err)
			}
			written[tenant]++
		}
		// The server stores the messages of a connection in their order.
		if err := s.AppendAudit(t.Context(), tenant, json.RawMessage(strconv.Itoa(written[tenant]))); err != nil {
			t.Fatal(err)
		}
		written[tenant]++
	}
	write("beta", many)
	for i := range 20 {
		write("acme", 50*i)
		write("beta", i%3)
	}
	write("acme", many)
	write("beta", 5)
	for _, limit := range []int{1, 10, 100, 1000} {
		before := nc.Stats().OutMsgs
		want := written["beta"] - 1
		for cursor, pages := "", 1; pages <= 4; pages++ {
			page, next, err := s.Audit(t.Context(), "beta", cursor, limit)
			if err != nil || len(page) != limit || next == "" {
				t.Fatalf("Audit with limit %d = %d entries, next %q, %v", limit, len(page), next, err)
			}
			for _, e := range page {
				if string(e) != fmt.Sprint(want) {
					t.Fatalf("an entry of a page of %d is %s, want %d", limit, e, want)
				}
				want--
			}
			cursor = next
		}
		if requests, most := nc.Stats().OutMsgs-before, uint64(300+20*limit); requests > most { //nolint:gosec // above 0
			t.Errorf("four pages of %d entries took %d requests, want at most %d", limit, requests, most)
		}
	}
}
