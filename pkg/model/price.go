package model

import (
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// price of a model in micro-dollars for a million tokens, which is pico-dollars
// for one.
type price struct {
	prefix                               string
	input, output, cacheRead, cacheWrite int64
}

// prices are list prices of November 2026. The longest prefix of a model's name
// counts, so dated versions need no row of their own.
var prices = []price{
	{"claude-haiku-4-5", 1_000_000, 5_000_000, 100_000, 1_250_000},
	{"claude-sonnet-4", 3_000_000, 15_000_000, 300_000, 3_750_000},
	{"claude-opus-4", 15_000_000, 75_000_000, 1_500_000, 18_750_000},
	{"gpt-4o", 2_500_000, 10_000_000, 1_250_000, 2_500_000},
	{"gpt-4o-mini", 150_000, 600_000, 75_000, 150_000},
	{"gpt-4.1", 2_000_000, 8_000_000, 500_000, 2_000_000},
	{"gpt-4.1-mini", 400_000, 1_600_000, 100_000, 400_000},
	{"gpt-5", 1_250_000, 10_000_000, 125_000, 1_250_000},
	{"gpt-5-mini", 250_000, 2_000_000, 25_000, 250_000},
	{"gpt-5-nano", 50_000, 400_000, 5_000, 50_000},
}

// Cost returns what a call to a model costs, rounded up to a micro-dollar, or nil
// if the model's price is not known. InputTokens include the cached ones.
func Cost(model string, u state.Usage) *state.MicroUSD {
	var found *price
	for i, p := range prices {
		if strings.HasPrefix(model, p.prefix) && (found == nil || len(p.prefix) > len(found.prefix)) {
			found = &prices[i]
		}
	}
	if found == nil {
		return nil
	}
	fresh := max(0, u.InputTokens-u.CacheReadTokens-u.CacheWriteTokens)
	pico := fresh*found.input + u.OutputTokens*found.output + u.CacheReadTokens*found.cacheRead + u.CacheWriteTokens*found.cacheWrite
	cost := state.MicroUSD((pico + 999_999) / 1_000_000)
	return &cost
}
