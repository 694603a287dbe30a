package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// full is a bus that answers reads and takes no writes.
type full struct{ *membus.Bus }

func (full) Ready(context.Context) error { return errors.New("no space left on device") }

// A bus that takes no writes has empty queues while runs wait in the store. The gateway exports
// no backlog then, because an autoscaler would stop the workers.
func TestNoLagWithoutWrites(t *testing.T) {
	t.Parallel()
	metrics := func(b *gateway.Gateway) string {
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		body, err := io.ReadAll(w.Result().Body)
		if err != nil || w.Code != http.StatusOK {
			t.Fatal(w.Code, err)
		}
		return string(body)
	}
	g, err := gateway.New(memstore.New(memstore.Config{}), full{membus.New()}, gateway.Config{Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	if got := metrics(g); strings.Contains(got, "turnpike_queue_") || !strings.Contains(got, "turnpike_bus_writable 0\n") {
		t.Errorf("a full bus: %s", got)
	}
	if g, err = gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{Logger: zerolog.Nop()}); err != nil {
		t.Fatal(err)
	}
	if got := metrics(g); !strings.Contains(got, "turnpike_queue_lag{") || !strings.Contains(got, "turnpike_bus_writable 1\n") {
		t.Errorf("a bus that takes writes: %s", got)
	}
}
