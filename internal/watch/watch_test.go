package watch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Whoever follows a run sees what its tools are at, and how far.
func TestPrinterShowsTools(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := watch.Printer{Out: &out}
	for _, data := range []string{
		`{"seq":null,"type":"tool.started","turn":1,"attempt":1,"call_id":"c","name":"import","worker":"w1"}`,
		`{"seq":null,"type":"tool.progress","turn":1,"attempt":1,"call_id":"c","name":"import","progress":"2 of 3: rows\n200"}`,
		`{"seq":2,"type":"tool.finished","turn":1,"attempt":1,"call_id":"c","name":"import","is_error":true,"message":{"role":"tool","parts":[{"type":"tool_result","call_id":"c","content":"no"}]}}`,
	} {
		e, err := api.DecodeEvent([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		w.Show(e)
	}
	want := "  turn 1 · import started on w1\n  turn 1 · import: 2 of 3: rows 200\n  turn 1 ✗ import: no\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output:\n%s", diff)
	}
}
