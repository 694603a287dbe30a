package api_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A filter has all of its fields in the query. Times keep their fractions of a second: a reader that continues at the
// time of a run gets runs of the same second neither twice nor never.
func TestFilterQuery(t *testing.T) {
	t.Parallel()
	if got := (api.Filter{}).Query(); len(got) > 0 {
		t.Errorf("all runs: %v", got)
	}
	after := time.Date(2026, 11, 20, 12, 0, 0, 123_000_000, time.FixedZone("", 3600))
	got := api.Filter{
		Agent: "a", Loop: "l", Parent: "p", Batch: "b", WaitingReason: "w", CreatedAfter: after, CreatedBefore: after.Add(time.Nanosecond),
		Statuses: []string{"queued", "waiting"}, Metadata: map[string]string{"user": "ann", "note": ""},
	}.Query()
	want := url.Values{
		"agent": {"a"}, "loop": {"l"}, "parent": {"p"}, "batch": {"b"}, "waiting_reason": {"w"},
		"created_after": {"2026-11-20T11:00:00.123Z"}, "created_before": {"2026-11-20T11:00:00.123000001Z"},
		"status": {"queued", "waiting"}, "metadata.user": {"ann"}, "metadata.note": {""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("query:\n%s", diff)
	}
}
