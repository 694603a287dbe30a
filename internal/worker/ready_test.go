package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/restore"
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

// marks is a store with a mark, and a bus whose mark is 100.
type marks struct{ store int64 }

func (m *marks) Marks(context.Context) (least, greatest int64, err error) {
	return m.store, m.store, nil
}

func (m *marks) RaiseMarks(context.Context, int64, int64) (least, greatest int64, err error) {
	return m.store, m.store, nil
}

func (m *marks) SetFloor(int64) {}

func (m *marks) Mark(context.Context) (data []byte, revision uint64, at time.Time, err error) {
	return []byte(`{"count": 100}`), 1, time.Now(), nil
}

func (m *marks) ReplaceMark(context.Context, []byte, uint64) (moved bool, err error) {
	return false, nil
}

// While the deployment waits for the decision about an older copy of its store, its workers are not ready.
func TestReadyDuringRestore(t *testing.T) {
	t.Parallel()
	s, m := newDeployment(t), &marks{}
	cfg := s.config()
	cfg.Restore = restore.NewWatch(m, m, slog.New(slog.DiscardHandler))
	w, err := worker.New(s.store, s.bus, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		mark int64
		want error
	}{{1, restore.ErrWaiting}, {100, nil}} {
		m.store = test.mark
		if err := cfg.Restore.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Ready(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("with the mark %d: Ready returns %v, want %v", test.mark, err, test.want)
		}
	}
}
