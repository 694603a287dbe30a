package worker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// hungStore and hungBus do not answer a probe.
type hungStore struct{ state.Store }

func (hungStore) Ready(ctx context.Context) error { return hang(ctx) }

type hungBus struct{ bus.Bus }

func (hungBus) Ready(ctx context.Context) error { return hang(ctx) }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// askedStore and askedBus answer a probe that still has time.
type askedStore struct{ state.Store }

func (askedStore) Ready(ctx context.Context) error { return ctx.Err() }

type askedBus struct{ bus.Bus }

func (askedBus) Ready(ctx context.Context) error { return ctx.Err() }

// A dependency that does not answer is the only one that a worker reports.
func TestReadyNamesTheDependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		for _, c := range []struct {
			store state.Store
			bus   bus.Bus
			want  string
		}{
			{askedStore{s.store}, askedBus{s.bus}, ""},
			{hungStore{s.store}, askedBus{s.bus}, "store: context deadline exceeded"},
			{askedStore{s.store}, hungBus{s.bus}, "bus: context deadline exceeded"},
			{hungStore{s.store}, hungBus{s.bus}, "store: context deadline exceeded bus: context deadline exceeded"},
		} {
			w, err := worker.New(c.store, c.bus, s.config())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			got := ""
			if err := w.Ready(ctx); err != nil {
				got = strings.Join(strings.Split(err.Error(), "\n"), " ")
			}
			cancel()
			if got != c.want {
				t.Errorf("Ready returns %q, want %q", got, c.want)
			}
		}
	})
}
