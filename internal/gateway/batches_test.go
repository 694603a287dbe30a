package gateway_test

import (
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The list of batches is newest first and has each once, however many runs lie between them and however the
// pages are cut.
func TestBatchesAreListed(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var want []string
	for _, size := range []int{3, 150, 1, 205, 2} {
		req := api.BatchRequest{MaxParallel: 1}
		for range size {
			req.Runs = append(req.Runs, api.SubmitRequest{Agent: "slow", Input: api.Text("x")})
		}
		b, err := s.client.SubmitBatch(t.Context(), req, "")
		if err != nil {
			t.Fatal(err)
		}
		want = append([]string{b.BatchID}, want...)
		for range 30 {
			s.submit("once")
		}
	}
	for _, limit := range []int{1, 2, 20} {
		var got []string
		for cursor, more := "", true; more; {
			page, err := s.client.Batches(t.Context(), cursor, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) > limit {
				t.Fatalf("a page of %d has %d batches", limit, len(page.Items))
			}
			for _, b := range page.Items {
				got = append(got, b.ID)
				n := 0
				for _, of := range b.Counts {
					n += of
				}
				if n != b.Total || b.Done || b.MaxParallel != 1 || b.CreatedAt.IsZero() {
					t.Errorf("batch %+v", b)
				}
			}
			if more = page.NextCursor != nil; more {
				cursor = *page.NextCursor
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", limit, got, want)
		}
	}
	if code, _, p := s.call("GET", "/v1/batches?cursor=x", ""); code != 400 || p["code"] != "invalid_cursor" {
		t.Errorf("an invalid cursor: %d %v", code, p)
	}
}
