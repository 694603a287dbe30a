package effect

import (
	"context"
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// pauses is a store of quotas of which these are paused.
type pauses struct {
	state.Quotas

	keys []string
	err  error
}

func (p *pauses) Paused(context.Context) ([]string, error) { return p.keys, p.err }

// A worker forgets a pause that no store has any more, and keeps what it knows while the store does not answer.
func TestPausesAreForgotten(t *testing.T) {
	t.Parallel()
	store := &pauses{keys: []string{"a", "b"}}
	q := newQuotas(store, nil, nil, random.Source{})
	want := func(a, b bool) {
		t.Helper()
		if q.isSlow("a") != a || q.isSlow("b") != b {
			t.Errorf("a is paused: %t, b: %t; want %t and %t", q.isSlow("a"), q.isSlow("b"), a, b)
		}
	}
	refresh := func(fails bool) {
		t.Helper()
		if err := q.refresh(t.Context()); (err != nil) != fails {
			t.Fatalf("refresh = %v", err)
		}
	}
	refresh(false)
	want(true, true)
	store.keys, store.err = nil, errors.New("unavailable")
	refresh(true)
	want(true, true)
	store.keys, store.err = []string{"b"}, nil
	refresh(false)
	want(false, true)
}
