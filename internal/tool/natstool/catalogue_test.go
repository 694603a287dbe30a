package natstool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// A service's description of its tool is available at the first request, and stays available when the service
// stops.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	schema := json.RawMessage(`{"type":"object","properties":{"x":{"type":"integer"}}}`)
	stop := serve(t, nc, toolkit.Tool{Name: "a", Description: "the tool a", Schema: schema, Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) {
		return toolkit.Result{}, nil
	}})
	var c *natstool.Catalogue
	want := map[string]tool.Description{"a": {Text: "the tool a", Schema: schema}}
	// On a busy machine an answer may arrive later than a query waits.
	testbed.Eventually(t, "the description of a", func() (wrong error) {
		c = natstool.NewCatalogue(nc, prefix)
		said := make(chan map[string]tool.Description)
		for range 3 {
			go func() { said <- c.Describe(t.Context(), "", []string{"a", "gone"}) }()
		}
		for range 3 {
			if diff := cmp.Diff(want, <-said); diff != "" {
				wrong = fmt.Errorf("Describe:\n%s", diff)
			}
		}
		return wrong
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, c.Describe(t.Context(), "", []string{"a"})); diff != "" {
		t.Errorf("Describe without the service:\n%s", diff)
	}

	// A caller without time is not blocked.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := natstool.NewCatalogue(nc, prefix).Describe(ctx, "", []string{"a"}); len(got) != 0 {
		t.Errorf("Describe = %+v, want nothing", got)
	}
}
