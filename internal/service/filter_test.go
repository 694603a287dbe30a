package service_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A list of runs before a time begins there, and its next page begins at the cursor. A cursor behind that time does
// not bring back the runs in between.
func TestCursorOfRunsBeforeATime(t *testing.T) {
	t.Parallel()
	before := time.UnixMilli(1_800_000_000_000).UTC()
	at := string(state.FirstIDAt(before))
	older, newer := string(state.FirstIDAt(before.Add(-time.Hour))), string(state.FirstIDAt(before.Add(time.Hour)))
	for _, test := range []struct{ before, cursor, want string }{
		{"", "", ""}, {"", older, older}, {before.Format(time.RFC3339), "", at}, {before.Format(time.RFC3339), older, older}, {before.Format(time.RFC3339), newer, at},
	} {
		query := url.Values{}
		for name, value := range map[string]string{"created_before": test.before, "cursor": test.cursor} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if f, err := service.ParseFilter(query); err != nil || f.Cursor != test.want {
			t.Errorf("%v: the list begins at %q, %v; want %q", query, f.Cursor, err, test.want)
		}
	}
}
