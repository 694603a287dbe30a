package jsonschema_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
)

// TestOutputSchemaIsCompiledOnce: the runs of a batch often have one schema, and each answer is checked more than once.
// It counts allocations, so it is not parallel.
func TestOutputSchemaIsCompiledOnce(t *testing.T) {
	var properties strings.Builder
	for i := range 700 {
		fmt.Fprintf(&properties, `,"p%d":{"pattern":"^a{%d}$"}`, i, i%40)
	}
	schema := func(i int) []byte {
		return fmt.Appendf(nil, `{"title":"%d","properties":{"x":{}%s}}`, i, properties.String())
	}
	check := func(schema []byte) {
		if _, err := jsonschema.ValidateOutput(schema, `{"p3":"aaa"}`); err != nil {
			t.Error(err)
		}
		if _, err := jsonschema.ValidateOutput(schema, `{"p3":"b"}`); err == nil {
			t.Error("an output that does not match is taken")
		}
	}
	first := schema(0)
	check(first)
	if n := testing.AllocsPerRun(5, func() { check(first) }); n > 500 {
		t.Errorf("checking two outputs against a known schema took %v allocations", n)
	}

	var all sync.WaitGroup
	for i := range 40 { // more schemas than are kept
		all.Go(func() { check(schema(i % 20)) })
	}
	all.Wait()
	for range 2 {
		if _, err := jsonschema.ValidateOutput([]byte(`{"type":"number","pattern":"("}`), `1`); err == nil {
			t.Error("an unusable schema is taken")
		}
	}
}
