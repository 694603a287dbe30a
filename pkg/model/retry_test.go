package model_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Short failures are waited out; long ones postpone the turn (A17, I6).
func TestRetry(t *testing.T) {
	t.Parallel()
	fail := func(c model.Class, after time.Duration) error { return &model.Error{Class: c, RetryAfter: after} }
	for name, test := range map[string]struct {
		policy  model.RetryPolicy
		errs    []error // of the calls; then success
		calls   int
		wantErr bool
		atLeast time.Duration
		atMost  time.Duration
	}{
		"success":               {calls: 1},
		"overloaded once":       {errs: []error{fail(model.Overloaded, 0)}, calls: 2, atLeast: 100 * time.Millisecond, atMost: 300 * time.Millisecond},
		"two failures":          {errs: []error{fail(model.Transport, 0), fail(model.Overloaded, 0)}, calls: 3, atMost: time.Second},
		"three failures":        {errs: []error{fail(model.Transport, 0), fail(model.Transport, 0), fail(model.Transport, 0)}, calls: 3, wantErr: true, atMost: time.Second},
		"short retry-after":     {errs: []error{fail(model.RateLimited, 2*time.Second)}, calls: 2, atLeast: 2 * time.Second, atMost: 2 * time.Second},
		"long retry-after":      {errs: []error{fail(model.RateLimited, 2001*time.Millisecond)}, calls: 1, wantErr: true},
		"five seconds are over": {policy: model.RetryPolicy{Retries: 9}, errs: []error{fail(model.RateLimited, 2*time.Second), fail(model.RateLimited, 2*time.Second), fail(model.RateLimited, 2*time.Second)}, calls: 3, wantErr: true, atMost: 5 * time.Second},
		"not retryable":         {errs: []error{fail(model.Auth, 0)}, calls: 1, wantErr: true},
		"time-out":              {errs: []error{fail(model.Timeout, 0)}, calls: 1, wantErr: true},
		"pieces were shown":     {errs: []error{&model.Error{Class: model.Transport, Streamed: true}}, calls: 1, wantErr: true},
		"unclassified":          {errs: []error{errors.New("what")}, calls: 1, wantErr: true},
		"none wanted":           {policy: model.RetryPolicy{Retries: -1}, errs: []error{fail(model.Overloaded, 0)}, calls: 1, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, began := 0, time.Now()
				err := model.Retry(t.Context(), test.policy, func(context.Context) error {
					calls++
					if calls <= len(test.errs) {
						return test.errs[calls-1]
					}
					return nil
				})
				took := time.Since(began) // the bubble's clock
				if calls != test.calls || (err != nil) != test.wantErr || took < test.atLeast || took > test.atMost {
					t.Errorf("%d calls in %s, error %v", calls, took, err)
				}
			})
		})
	}
}

// An abort ends the wait between two calls (A5).
func TestRetryCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		calls := 0
		err := model.Retry(ctx, model.RetryPolicy{}, func(context.Context) error {
			calls++
			return &model.Error{Class: model.Overloaded}
		})
		if calls != 1 || err == nil || ctx.Err() == nil {
			t.Errorf("%d calls, error %v", calls, err)
		}
	})
}

func TestCost(t *testing.T) {
	t.Parallel()
	usd := func(n int64) *state.MicroUSD { m := state.MicroUSD(n); return &m }
	for _, test := range []struct {
		model string
		usage state.Usage
		want  *state.MicroUSD
	}{
		{"claude-haiku-4-5", state.Usage{InputTokens: 1000, OutputTokens: 100}, usd(1500)},
		{"claude-haiku-4-5-20251001", state.Usage{InputTokens: 1000, OutputTokens: 100, CacheReadTokens: 500, CacheWriteTokens: 400}, usd(100 + 500 + 50 + 500)},
		{"gpt-5-mini-2025-08-07", state.Usage{InputTokens: 1}, usd(1)},
		{"gpt-5-nano", state.Usage{}, usd(0)},
		{"gpt-5-mini-latest", state.Usage{OutputTokens: 1_000_000}, usd(2_000_000)},
		{"gemini-2.5-flash", state.Usage{InputTokens: 1000, OutputTokens: 1000, CacheReadTokens: 500}, usd(150 + 2500 + 15)},
		{"gemini-2.5-pro", state.Usage{InputTokens: 1000}, usd(1250)},
		{"gemini-2.5-pro", state.Usage{InputTokens: 300_000, OutputTokens: 1000}, usd(750_000 + 15_000)},
		// A name that only has a known one as its prefix may cost ten times as much.
		{"gpt-5-mini-turbo", state.Usage{InputTokens: 1}, nil},
		{"claude-opus-4-9", state.Usage{InputTokens: 1}, nil},
		{"gpt-5.55", state.Usage{InputTokens: 1}, nil},
		{"scripted", state.Usage{InputTokens: 1}, nil},
		{"", state.Usage{}, nil},
		{"gpt-5", state.Usage{InputTokens: -5, OutputTokens: -1, CacheReadTokens: 3}, usd(1)},
	} {
		if diff := cmp.Diff(test.want, model.DefaultPrices().Cost(test.model, test.usage)); diff != "" {
			t.Errorf("%s %+v (-want +got):\n%s", test.model, test.usage, diff)
		}
	}
	huge := state.Usage{InputTokens: 1 << 62, OutputTokens: 1 << 62, CacheReadTokens: 1 << 62, CacheWriteTokens: 1 << 62}
	if got := model.DefaultPrices().Cost("gpt-5-pro", huge); *got <= 0 {
		t.Errorf("huge usage costs %d", *got)
	}
	own := model.DefaultPrices()
	own["mine"] = model.Price{Input: 1_000_000}
	if got := own.Cost("mine", state.Usage{InputTokens: 7}); got == nil || *got != 7 {
		t.Errorf("own price gives %v", got)
	}
	if model.DefaultPrices().Cost("mine", state.Usage{}) != nil {
		t.Error("a caller's prices changed the shared ones")
	}
}
