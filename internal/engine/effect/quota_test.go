package effect

import (
	"context"
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/engine/random"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// pauses is a store of quotas of which these are paused.
type pauses struct {
	state.Quotas

	keys  []string
	err   error
	reads int
}

func (p *pauses) Paused(context.Context) ([]string, error) {
	p.reads++
	return p.keys, p.err
}

// A worker without others reads pauses once, and again while it knows of one: no other worker can pause any.
func TestWorkerAloneReadsNoPauses(t *testing.T) {
	t.Parallel()
	store := &pauses{keys: []string{"a"}, err: errors.New("unavailable")}
	q := newQuotas(store, nil, nil, random.Source{})
	for i, step := range []struct {
		keys  []string
		err   error
		alone bool
		reads int
	}{
		{nil, store.err, true, 1}, {[]string{"a"}, nil, true, 2}, {nil, nil, true, 3}, {nil, nil, true, 3}, {nil, nil, false, 4}, {[]string{"a"}, nil, true, 4}, {[]string{"a"}, nil, false, 5},
	} {
		store.keys, store.err = step.keys, step.err
		if err := q.refresh(t.Context(), step.alone); !errors.Is(err, step.err) || store.reads != step.reads {
			t.Errorf("step %d: %v after %d reads, want %v after %d", i, err, store.reads, step.err, step.reads)
		}
	}
}

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
		if err := q.refresh(t.Context(), false); (err != nil) != fails {
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

// A call corrects its estimate by all tokens that it used: those of the request and those of the response.
func TestEstimateIsCorrectedByAllTokens(t *testing.T) {
	t.Parallel()
	p := &reservation{tokens: 100, quota: state.Quota{Tokens: 1000}}
	for name, c := range map[string]struct {
		failure *model.Error
		want    int64
	}{
		"made": {nil, 70 + 50 - 100}, "refused": {&model.Error{Class: model.Overloaded}, -100}, "cut short": {&model.Error{Class: model.Timeout}, 0},
	} {
		if got := p.off(state.Usage{InputTokens: 70, OutputTokens: 50}, c.failure); got != c.want {
			t.Errorf("%s: the estimate is off by %d, want %d", name, got, c.want)
		}
	}
}
