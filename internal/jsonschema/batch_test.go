package jsonschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
)

// TestBatch: the schemas of a batch have limits together, however many there are, and equal ones count once.
func TestBatch(t *testing.T) {
	t.Parallel()
	patterns := func(i int) string { return fmt.Sprintf(`{"title":"%d","items":{"pattern":"(a?){900}"}}`, i) }
	values := func(i int) string {
		return fmt.Sprintf(`{"enum":[%d%s]}`, i, strings.Repeat(",1", 5000))
	}
	deep := func(i int) string {
		return strings.Repeat(`{"not":`, 90) + fmt.Sprintf(`{"title":"%d%s"}`, i, strings.Repeat("d", 60_000)) + strings.Repeat("}", 90)
	}
	for name, c := range map[string]struct {
		schema func(int) string
		want   string
	}{
		"patterns": {patterns, "the regular expressions of the output schemas of the batch are together too complex, more than 200000 instructions"},
		"values":   {values, "the output schemas of the batch have together more than 50000 values"},
		"levels":   {deep, "the output schemas of the batch are together too large for their depth"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			same, distinct := jsonschema.NewBatch(), jsonschema.NewBatch()
			var err error
			taken := 0
			for i := range 200 {
				if err := same.Check([]byte(c.schema(0))); err != nil {
					t.Fatalf("the same schema for the run %d: %v", i, err)
				}
				if err != nil {
					continue
				}
				if err = distinct.Check([]byte(c.schema(i))); err == nil {
					taken++
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "equal schemas count once: use fewer different ones, or split the batch") {
				t.Errorf("the schema %d gave %v, want %s", taken, err, c.want)
			}
			if taken < 4 {
				t.Errorf("only %d schemas were taken", taken)
			}
			if err := distinct.Check([]byte(c.schema(0))); err != nil {
				t.Errorf("a schema that was taken gives %v", err)
			}
		})
	}

	// A schema that exceeds its own limits gets the error about these, since smaller batches would not help.
	large := `{"enum":[1` + strings.Repeat(",1", 100_000) + `]}`
	if got, want := jsonschema.NewBatch().Check([]byte(large)), jsonschema.Check([]byte(large)); got == nil || got.Error() != want.Error() {
		t.Errorf("a schema that is too large gives %v, want %v", got, want)
	}
}
