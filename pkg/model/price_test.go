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
		"mine":  {Input: 1_250_000, Output: 10_000_000, CacheRead: 125_000, CacheWrite: 1_562_500, CacheWriteHour: 2_500_000},
		"gpt-5": {Input: 100_000, Output: 0, CacheRead: 100_000, CacheWrite: 100_000, CacheWriteHour: 100_000},
	}
	for _, text := range []string{
		"mine: {input: 1.25, output: 10, cache_read: .125, cache_write: 1.5625, cache_write_1h: 2.5}\ngpt-5: {input: 0.1, output: 0}\n",
		`{"mine":{"input":1.25,"output":1e1,"cache_read":0.125,"cache_write":1.5625,"cache_write_1h":2.5},"gpt-5":{"input":0.1,"output":0}}`,
	} {
		got, err := model.ParsePrices([]byte(text))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ParsePrices(%q): %v\n%s", text, err, diff)
		}
	}
	if got, err := model.ParsePrices(nil); err != nil || len(got) != 0 {
		t.Errorf("ParsePrices of an empty file = %v, %v", got, err)
	}
	for text, says := range map[string]string{
		"mine: {input: 1.25}":                                                  "mine: output is missing",
		"mine:":                                                                "mine: input is missing",
		"mine: {input: 1, output: -2}":                                         "mine: output: -2 is not between 0 and 2000",
		"mine: {input: 2000.01, output: 2}":                                    "mine: input: 2000.01 is not between",
		"mine: {input: \"1\", output: 2}":                                      "mine: input: amount",
		"mine: {input: 1, output: 2, cached: 3}":                               `mine: unknown field "cached"`,
		"mine: {input: 1, output: 2}\nmine: {input: 1}":                        "mine",
		"mine: {input: 1, output: 2, above: 3}":                                "mine: above: 3 is not an object of prices: write one such as",
		"mine: {input: 1, output: 2, above: {input: 1, output: 2}}":            "mine: above: tokens is missing",
		"mine: {input: 1, output: 2, above: {tokens: 0, input: 1, output: 2}}": "mine: above: tokens: 0 is not a whole number from 1 to",
		"mine: {input: 1, output: 2, tokens: 3}":                               `mine: unknown field "tokens"`,
		"mine: 3":                                                              "the file is not a mapping",
		"[1, 2]":                                                               "the file is not a mapping",
		"a: {output: 1}\nb: {input: 1, output: x}":                             "b: output",
		"mine: {input: 1, output: 2, cache_read: 1e999999}":                    "cache_read",
	} {
		if _, err := model.ParsePrices([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParsePrices(%q) = %v, want %q", text, err, says)
		}
	}
}

// A prompt beyond the limit has the higher rates for all of its tokens.
func TestPriceOfLongPrompts(t *testing.T) {
	t.Parallel()
	p, err := model.ParsePrices([]byte("m: {input: 1, output: 10, cache_read: 0.1, web_search: 0.5, above: {tokens: 1000, input: 2, output: 20, cache_read: 0.2}}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		usage state.Usage
		want  state.MicroUSD
	}{
		{state.Usage{InputTokens: 1000, OutputTokens: 100}, 1000 + 1000},
		{state.Usage{InputTokens: 1001, OutputTokens: 100}, 2002 + 2000},
		{state.Usage{InputTokens: 2000, CacheReadTokens: 1500, OutputTokens: 0}, 1000 + 300},
		{state.Usage{InputTokens: 1, CacheReadTokens: 1}, 1},                                   // rounded up
		{state.Usage{InputTokens: 2000, WebSearches: 3}, 4000 + 1_500_000},                     // the price of a search does not depend on it
		{state.Usage{InputTokens: 1, CacheReadTokens: 600, CacheWriteTokens: 600}, 120 + 1200}, // a server that omits cached tokens
	} {
		if got := p.Cost("m", c.usage); got == nil || *got != c.want {
			t.Errorf("cost of %+v = %v, want %d", c.usage, got, c.want)
		}
	}
}

// Tokens that the provider caches for an hour have their own price.
func TestPriceOfAnHour(t *testing.T) {
	t.Parallel()
	usage := state.Usage{InputTokens: 1000, CacheReadTokens: 300, CacheWriteTokens: 600, CacheHourTokens: 400}
	for text, want := range map[string]state.MicroUSD{
		"m: {input: 1, output: 10, cache_read: 0.1, cache_write: 1.25, cache_write_1h: 2}": 100 + 30 + 250 + 800,
		"m: {input: 1, output: 10, cache_read: 0.1, cache_write: 1.25}":                    100 + 30 + 750,
	} {
		p, err := model.ParsePrices([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Cost("m", usage); got == nil || *got != want {
			t.Errorf("%s: %v, want %d", text, got, want)
		}
	}
}

// Tokens that the cache has dropped cost the difference between sending and reading them.
func TestPriceOfExpired(t *testing.T) {
	t.Parallel()
	p, err := model.ParsePrices([]byte("m: {input: 1, output: 10, cache_read: 0.1, cache_write: 1.25, cache_write_1h: 2}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		usage state.Usage
		want  state.MicroUSD
	}{
		"written again":              {state.Usage{InputTokens: 1200, CacheWriteTokens: 1200, CacheExpiredTokens: 1000}, 1150},
		"written again for an hour":  {state.Usage{InputTokens: 1200, CacheWriteTokens: 1200, CacheHourTokens: 1200, CacheExpiredTokens: 1000}, 1900},
		"sent again, and not cached": {state.Usage{InputTokens: 1200, CacheExpiredTokens: 1000}, 900},
		"a part of it":               {state.Usage{InputTokens: 1200, CacheReadTokens: 600, CacheWriteTokens: 600, CacheExpiredTokens: 400}, 460},
	} {
		if got := p.CacheExpired("m", test.usage); got == nil || *got != test.want {
			t.Errorf("%s: %v, want %d", name, got, test.want)
		}
	}
	if p.CacheExpired("m", state.Usage{InputTokens: 1}) != nil || p.CacheExpired("n", state.Usage{CacheExpiredTokens: 1}) != nil {
		t.Error("a cost was computed although nothing has expired, or without a price")
	}
}

// Where reading from the cache costs more than sending again, what the cache has dropped costs nothing more.
func TestDearCache(t *testing.T) {
	t.Parallel()
	p, err := model.ParsePrices([]byte("m: {input: 1, output: 10, cache_read: 2}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.CacheExpired("m", state.Usage{InputTokens: 1200, CacheExpiredTokens: 1000}); got == nil || *got != 0 {
		t.Errorf("CacheExpired = %v, want 0", got)
	}
}

// A model that a cloud serves has the price of the data set for that cloud, or the operator's, or none.
func TestPricesOfClouds(t *testing.T) {
	t.Parallel()
	const (
		azure   = "https://mine.openai.azure.com/openai/v1"
		bedrock = "https://bedrock-runtime.eu-central-1.amazonaws.com"
		vertex  = "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1"
	)
	p := model.DefaultPrices()
	p["prod"], p["gpt-5-mini"] = model.Price{Input: 7_000_000}, model.Price{Input: 9_000_000}
	for _, test := range []struct {
		provider, base, asked, answered string
		want                            state.MicroUSD // of a million input tokens; 0: no price
	}{
		{"openai", "", "gpt-5", "gpt-5-2025-08-07", 1_250_000},
		{"openai", azure, "chat", "gpt-5-2025-08-07", 1_250_000},
		{"openai", azure, "gpt-4.1", "gpt-5-2025-08-07", 1_250_000}, // a deployment may have any name
		{"openai", azure, "prod", "gpt-5-2025-08-07", 7_000_000},
		{"openai", azure, "gpt-5-mini", "gpt-5-2025-08-07", 9_000_000},
		{"openai", azure, "chat", "", 0},
		{"anthropic", bedrock, "global.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5-20251001", 1_000_000},
		{"anthropic", bedrock, "eu.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5-20251001", 1_100_000},
		{"anthropic", bedrock, "us-gov.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5-20251001", 1_100_000},
		{"anthropic", bedrock, "anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5-20251101", 5_500_000},
		{"anthropic", "https://bedrock-mantle.eu-west-1.api.aws/anthropic", "anthropic.claude-opus-5", "claude-opus-5", 5_500_000},
		{"anthropic", bedrock, "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-6", "claude-sonnet-4-6", 3_300_000},
		{"anthropic", bedrock, "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc", "claude-sonnet-4-6", 0},
		{"anthropic", bedrock, "prod", "claude-sonnet-4-6", 7_000_000},
		{"anthropic", vertex, "claude-sonnet-4-5@20250929", "claude-sonnet-4-5-20250929", 3_000_000},
		{"gemini", vertex, "gemini-2.5-flash", "gemini-2.5-flash", 300_000},
		{"gemini", vertex, "tuned", "gemini-2.5-flash", 0},
	} {
		got := p.Cost(p.NameOf(test.provider, test.base, test.asked, test.answered), state.Usage{InputTokens: 100_000})
		if test.want == 0 && got != nil || test.want != 0 && (got == nil || *got*10 != test.want) {
			t.Errorf("%s at %s, answered by %s: %v, want a tenth of %d", test.asked, test.base, test.answered, got, test.want)
		}
	}
	// A Bedrock entry for an hour costs twice the input, as at Anthropic.
	hour := state.Usage{InputTokens: 100_000, CacheWriteTokens: 100_000, CacheHourTokens: 100_000}
	if got := p.Cost("anthropic.claude-opus-5", hour); got == nil || *got != 1_100_000 {
		t.Errorf("an hour costs %v", got)
	}
}

// The built-in prices can be read, have a known date, and match the providers' published ones.
func TestDefaultPrices(t *testing.T) {
	t.Parallel()
	p := model.DefaultPrices()
	if model.PricesDate.Year() < 2026 || !strings.HasPrefix(model.PricesSource, "genai-prices ") {
		t.Errorf("source %s of %s", model.PricesSource, model.PricesDate)
	}
	for name, want := range map[string]model.Price{
		"claude-sonnet-4-5-20250929": {Input: 3_000_000, Output: 15_000_000, CacheRead: 300_000, CacheWrite: 3_750_000},
		"gpt-5":                      {Input: 1_250_000, Output: 10_000_000, CacheRead: 125_000, CacheWrite: 1_250_000},
		"gemini-2.5-flash":           {Input: 300_000, Output: 2_500_000, CacheRead: 30_000, CacheWrite: 300_000},
	} {
		want := model.Prices{"m": want}.Cost("m", state.Usage{InputTokens: 900, CacheReadTokens: 300, CacheWriteTokens: 300, OutputTokens: 50})
		got := p.Cost(name, state.Usage{InputTokens: 900, CacheReadTokens: 300, CacheWriteTokens: 300, OutputTokens: 50})
		if got == nil || *got != *want {
			t.Errorf("cost of %s = %v, want %v", name, got, *want)
		}
	}
	if got := p.Cost("gpt-4o-audio-preview", state.Usage{InputTokens: 1}); got != nil {
		t.Errorf("an audio model has the price of a text model: %v", *got)
	}
	delete(p, "gpt-5")
	if _, ok := model.DefaultPrices()["gpt-5"]; !ok {
		t.Error("a caller changed the shared prices")
	}
}

// Parsed prices never make a cost overflow or panic.
func FuzzParsePrices(f *testing.F) {
	f.Add([]byte("mine: {input: 1.25, output: 10}"))
	f.Add([]byte("mine: {input: 1, output: 10, above: {tokens: 5, input: 2000, output: 2000}}"))
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
