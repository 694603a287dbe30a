package gateway

import (
	"maps"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// Routes returns the patterns that a gateway serves.
func Routes(t *testing.T) []string {
	t.Helper()
	g, err := New(memstore.New(memstore.Config{}), membus.New(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(g.routes))
}

var OpenAPIDocument = openAPIDocument
