package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Price of a model in micro-dollars for a million tokens, which is pico-dollars
// for one. CacheRead and CacheWrite are the whole price of such a token, not a
// discount.
type Price struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

// Prices maps the names of models to prices. A name also covers its dated versions
// ("gpt-5-mini-2025-08-07") and its alias "-latest", and no others: a wrong price is
// worse than none, because a cost budget would trust it.
type Prices map[string]Price

// DefaultPrices returns the list prices of November 2026 for a handful of models,
// as a new map. Anyone with other prices, or other models, changes or replaces it
// and calls [Prices.Cost].
func DefaultPrices() Prices {
	claude := func(input, output int64) Price {
		return Price{Input: input, Output: output, CacheRead: input / 10, CacheWrite: input * 5 / 4}
	}
	gpt := func(input, output, cached int64) Price {
		return Price{Input: input, Output: output, CacheRead: cached, CacheWrite: input}
	}
	gemini := func(input, output int64) Price {
		return Price{Input: input, Output: output, CacheRead: input / 10, CacheWrite: input}
	}
	return Prices{
		"claude-haiku-4-5":  claude(1_000_000, 5_000_000),
		"claude-sonnet-4":   claude(3_000_000, 15_000_000),
		"claude-sonnet-4-5": claude(3_000_000, 15_000_000),
		"claude-sonnet-4-6": claude(3_000_000, 15_000_000),
		"claude-opus-4":     claude(15_000_000, 75_000_000),
		"claude-opus-4-1":   claude(15_000_000, 75_000_000),
		"claude-opus-4-5":   claude(5_000_000, 25_000_000),
		"claude-opus-4-6":   claude(5_000_000, 25_000_000),

		"gpt-4o":       gpt(2_500_000, 10_000_000, 1_250_000),
		"gpt-4o-mini":  gpt(150_000, 600_000, 75_000),
		"gpt-4.1":      gpt(2_000_000, 8_000_000, 500_000),
		"gpt-4.1-mini": gpt(400_000, 1_600_000, 100_000),
		"gpt-4.1-nano": gpt(100_000, 400_000, 25_000),
		"gpt-5":        gpt(1_250_000, 10_000_000, 125_000),
		"gpt-5-mini":   gpt(250_000, 2_000_000, 25_000),
		"gpt-5-nano":   gpt(50_000, 400_000, 5_000),
		"gpt-5-pro":    gpt(15_000_000, 120_000_000, 15_000_000),
		"gpt-5.1":      gpt(1_250_000, 10_000_000, 125_000),

		// Of Gemini, those whose price does not depend on the length of the prompt.
		"gemini-2.5-flash":      gemini(300_000, 2_500_000),
		"gemini-2.5-flash-lite": gemini(100_000, 400_000),
		"gemini-3.1-flash-lite": gemini(250_000, 1_500_000),
		"gemini-3.5-flash":      gemini(1_500_000, 9_000_000),
	}
}

var dated = regexp.MustCompile(`[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$`)

// Cost returns the cost of a call, rounded up to a micro-dollar, or nil if the
// model's price is unknown. InputTokens include the cached ones.
func (p Prices) Cost(model string, u state.Usage) *state.MicroUSD {
	price, ok := p[model]
	if !ok {
		price, ok = p[strings.TrimSuffix(model, dated.FindString(model))]
	}
	if !ok {
		return nil
	}
	read, write := tokens(u.CacheReadTokens), tokens(u.CacheWriteTokens)
	fresh := max(0, tokens(u.InputTokens)-read-write)
	pico := fresh*price.Input + tokens(u.OutputTokens)*price.Output + read*price.CacheRead + write*price.CacheWrite
	cost := state.MicroUSD((pico + 999_999) / 1_000_000)
	return &cost
}

// maxPrice is the highest price of a million tokens: with it, no usage overflows.
const maxPrice state.MicroUSD = 2_000_000_000

// ParsePrices reads prices in YAML or JSON, in dollars for a million tokens:
//
//	my-model: {input: 1.25, output: 10, cache_read: 0.125, cache_write: 1.5625}
//
// Input and output must be given; cached tokens cost what others do unless it says
// otherwise. Its error names the model and the field.
func ParsePrices(data []byte) (Prices, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("parse prices: %w", err)
	}
	var models map[string]map[string]json.RawMessage
	if err := json.Unmarshal(asJSON, &models); err != nil {
		return nil, errors.New(`parse prices: write a line a model, as in "my-model: {input: 1.25, output: 10}"`)
	}
	prices := Prices{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(models)) {
		price, err := parsePrice(models[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("parse prices: %s: %w", name, err))
		}
		prices[name] = price
	}
	return prices, errors.Join(errs...)
}

func parsePrice(fields map[string]json.RawMessage) (Price, error) {
	amounts := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"input", "output", "cache_read", "cache_write"}, name) {
			return Price{}, fmt.Errorf("unknown field %q; the fields are input, output, cache_read, cache_write", name)
		}
		var amount state.MicroUSD
		if err := amount.UnmarshalJSON(fields[name]); err != nil {
			return Price{}, fmt.Errorf("%s: %w", name, err)
		}
		if amount < 0 || amount > maxPrice {
			return Price{}, fmt.Errorf("%s: %s is not between 0 and %d dollars for a million tokens", name, fields[name], maxPrice/1_000_000)
		}
		amounts[name] = int64(amount)
	}
	for _, name := range []string{"input", "output"} {
		if _, ok := amounts[name]; !ok {
			return Price{}, fmt.Errorf("%s is missing", name)
		}
	}
	p := Price{Input: amounts["input"], Output: amounts["output"], CacheRead: amounts["input"], CacheWrite: amounts["input"]}
	if v, ok := amounts["cache_read"]; ok {
		p.CacheRead = v
	}
	if v, ok := amounts["cache_write"]; ok {
		p.CacheWrite = v
	}
	return p, nil
}

// tokens keeps a count that a server reported in a range in which prices do not
// overflow.
func tokens(n int64) int64 { return min(max(n, 0), 1_000_000_000) }
