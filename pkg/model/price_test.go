package model_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func TestParsePrices(t *testing.T) {
	t.Parallel()
	want := model.Prices{
		"mine":  {Input: 1_250_000, Output: 10_000_000, CacheRead: 125_000, CacheWrite: 1_562_500},
		"gpt-5": {Input: 100_000, Output: 0, CacheRead: 100_000, CacheWrite: 100_000},
	}
	for _, text := range []string{
		"mine: {input: 1.25, output: 10, cache_read: .125, cache_write: 1.5625}\ngpt-5: {input: 0.1, output: 0}\n",
		`{"mine":{"input":1.25,"output":1e1,"cache_read":0.125,"cache_write":1.5625},"gpt-5":{"input":0.1,"output":0}}`,
	} {
		got, err := model.ParsePrices([]byte(text))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ParsePrices(%q): %v\n%s", text, err, diff)
		}
	}
	if got, err := model.ParsePrices(nil); err != nil || len(got) != 0 {
		t.Errorf("ParsePrices of nothing = %v, %v", got, err)
	}
	for text, says := range map[string]string{
		"mine: {input: 1.25}":                           "mine: output is missing",
		"mine:":                                         "mine: input is missing",
		"mine: {input: 1, output: -2}":                  "mine: output: -2 is not between 0 and 2000",
		"mine: {input: 2000.01, output: 2}":             "mine: input: 2000.01 is not between",
		"mine: {input: \"1\", output: 2}":               "mine: input: amount",
		"mine: {input: 1, output: 2, cached: 3}":        `mine: unknown field "cached"`,
		"mine: {input: 1, output: 2}\nmine: {input: 1}": "mine",
		"mine: 3": "write a line a model",
		"[1, 2]":  "write a line a model",
		"a: {output: 1}\nb: {input: 1, output: x}":          "b: output",
		"mine: {input: 1, output: 2, cache_read: 1e999999}": "cache_read",
	} {
		if _, err := model.ParsePrices([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParsePrices(%q) = %v, want %q", text, err, says)
		}
	}
}

// What is read never makes a cost overflow, nor a panic.
func FuzzParsePrices(f *testing.F) {
	f.Add([]byte("mine: {input: 1.25, output: 10}"))
	f.Add([]byte(`{"a":{"input":2000,"output":2000,"cache_read":2000,"cache_write":2000}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		prices, err := model.ParsePrices(data)
		if err != nil {
			return
		}
		for name := range prices {
			huge := state.Usage{InputTokens: 1 << 40, OutputTokens: 1 << 40, CacheReadTokens: 1 << 40, CacheWriteTokens: 1 << 40}
			if cost := prices.Cost(name, huge); cost == nil || *cost < 0 {
				t.Errorf("cost of %s is %v", name, cost)
			}
		}
	})
}
