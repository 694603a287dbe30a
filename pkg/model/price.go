package model

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Price is the price of a model in micro-dollars per million tokens, which is pico-dollars per token. CacheRead,
// CacheWrite and CacheWriteHour are the whole price of such a token, not a discount.
type Price struct {
	Input      int64
	Output     int64
	CacheRead  int64
	CacheWrite int64

	// CacheWriteHour is the price of tokens that the provider's cache keeps for an hour.
	CacheWriteHour int64

	// WebSearch, WebFetch and CodeExecution are the prices of one use of a provider's tool, in micro-dollars. nil means
	// the list price of the model's maker, or 0 if that is unknown.
	WebSearch, WebFetch, CodeExecution *state.MicroUSD

	// Above is the price of every token of a call whose prompt has more than AboveTokens tokens, cached tokens
	// included; nil if the length does not matter. Above itself has no Above.
	Above       *Price
	AboveTokens int64
}

// Prices maps the names of models to prices. A name also covers its dated versions ("gpt-5-mini-2025-08-07") and its
// alias "-latest", and no other names: a cost limit would trust a wrong price.
type Prices map[string]Price

//go:embed prices.json
var builtInPrices []byte

var readBuiltIn = sync.OnceValue(func() Prices {
	p, err := ParsePrices(builtInPrices)
	if err != nil {
		panic(err) // TestDefaultPrices reads them
	}
	return p
})

// DefaultPrices returns the list prices of [PricesSource], as a new map that the caller may change.
func DefaultPrices() Prices { return maps.Clone(readBuiltIn()) }

var dated = regexp.MustCompile(`[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$`)

// Cost returns the cost of a call, rounded up to a micro-dollar, or nil if the model's price is unknown. u.InputTokens
// includes the cached tokens.
func (p Prices) Cost(model string, u state.Usage) *state.MicroUSD {
	price, ok := p.of(model)
	if !ok {
		return nil
	}
	uses := price.uses(model, u)
	input, read, write := tokens(u.InputTokens), tokens(u.CacheReadTokens), tokens(u.CacheWriteTokens)
	if price.Above != nil && max(input, read+write) > price.AboveTokens {
		price = *price.Above
	}
	fresh, hour := max(0, input-read-write), min(tokens(u.CacheHourTokens), write)
	pico := fresh*price.Input + tokens(u.OutputTokens)*price.Output + read*price.CacheRead + (write-hour)*price.CacheWrite + hour*price.CacheWriteHour
	cost := state.MicroUSD((pico+999_999)/1_000_000) + uses
	return &cost
}

// CacheExpired returns the part of a call's cost that would not have arisen if the provider's cache had
// still had u.CacheExpiredTokens: the difference of two results of Cost, and at least 0. It is nil without such tokens,
// or if the model's price is unknown.
func (p Prices) CacheExpired(model string, u state.Usage) *state.MicroUSD {
	if u.CacheExpiredTokens <= 0 {
		return nil // most calls, which look up no price here
	}
	paid := p.Cost(model, u)
	if paid == nil {
		return nil
	}
	u.CacheReadTokens += u.CacheExpiredTokens
	u.CacheWriteTokens -= u.CacheExpiredTokens // Cost takes a negative number for 0
	more := max(0, *paid-*p.Cost(model, u))
	return &more
}

// NameOf returns the name whose price applies to a call. asked is the model in the definition, answered the model in
// the response, or empty. Except at clouds, the price of answered applies, or that of asked if answered is empty. On
// Azure OpenAI, asked is the name of a deployment: it applies if the operator has given it a price that is not the
// built-in one, else the rule is the same. On Amazon Bedrock, asked applies if it has a price, else the part of asked
// after the last slash, without a suffix such as -v1:0, and without its region unless the region is global. On Google
// Vertex AI, asked applies.
func (p Prices) NameOf(provider, baseURL, asked, answered string) string {
	at, _ := CloudAt(provider, baseURL) // the call reports the error
	given, known := p[asked]
	switch at.Cloud {
	case Azure:
		if builtIn, ok := readBuiltIn()[asked]; known && (!ok || given != builtIn) {
			return asked
		}
		return cmp.Or(answered, asked)
	case Bedrock:
		if known {
			return asked
		}
		name := bedrockVersion.ReplaceAllString(asked[strings.LastIndexByte(asked, '/')+1:], "")
		if strings.HasPrefix(name, "global.") {
			return name
		}
		return bedrockRegion.ReplaceAllString(name, "anthropic.")
	case Vertex:
		return asked
	default:
		return cmp.Or(answered, asked)
	}
}

// Parts of the names of models on Amazon Bedrock: us.anthropic.claude-haiku-4-5-20251001-v1:0.
var (
	bedrockRegion  = regexp.MustCompile(`^[a-z-]+\.anthropic\.`)
	bedrockVersion = regexp.MustCompile(`-v\d+(:\d+)?$`)
)

func (p Prices) of(model string) (Price, bool) {
	price, ok := p[model]
	if !ok {
		price, ok = p[strings.TrimSuffix(model, dated.FindString(model))]
	}
	return price, ok
}

// UsePrice returns the price of one use of a provider's tool by a model, or 0 if it is unknown.
func (p Prices) UsePrice(model, tool string) state.MicroUSD {
	price, _ := p.of(model)
	return price.use(model, tool)
}

// maxUses bounds the uses that a server may report, so that costs do not overflow.
const maxUses = 100_000

func (p Price) uses(model string, u state.Usage) state.MicroUSD {
	var cost state.MicroUSD
	for tool, n := range map[string]int64{WebSearch: u.WebSearches, WebFetch: u.WebFetches, CodeExecution: u.CodeExecutions} {
		cost += state.MicroUSD(min(max(n, 0), maxUses)) * p.use(model, tool)
	}
	return cost
}

func (p Price) use(model, tool string) state.MicroUSD {
	given := map[string]*state.MicroUSD{WebSearch: p.WebSearch, WebFetch: p.WebFetch, CodeExecution: p.CodeExecution}[tool]
	if given != nil {
		return *given
	}
	for _, l := range usePrices {
		if l.tool == tool && l.model.MatchString(modelname.Family(model)) {
			return l.price
		}
	}
	return 0
}

// usePrices are the list prices of a use, as of November 2026. Providers do not charge fetches by the use. Anthropic
// and Google do not charge executions of code either.
var usePrices = []struct {
	tool  string
	model *regexp.Regexp
	price state.MicroUSD
}{
	{WebSearch, regexp.MustCompile(`^claude`), 10_000},
	{WebSearch, regexp.MustCompile(`^(gpt-|o\d)`), 10_000},
	{WebSearch, regexp.MustCompile(`^gemini-[12]`), 35_000},
	{WebSearch, regexp.MustCompile(`^gemini`), 14_000},
	{CodeExecution, regexp.MustCompile(`^(gpt-|o\d)`), 30_000},
}

// Bounds that keep costs from overflowing: the price of a million tokens, the tokens of a call, and the price of a use.
const (
	maxPrice  state.MicroUSD = 2_000_000_000
	maxTokens int64          = 1_000_000_000

	maxUsePrice state.MicroUSD = 100_000_000
)

// ParsePrices parses prices in YAML or JSON, in dollars per million tokens:
//
//	my-model: {input: 1.25, output: 10, cache_read: 0.125, cache_write: 1.5625, cache_write_1h: 2.5, above: {tokens: 200000, input: 2.5, output: 15}}
//
// Input and output are required. cache_read and cache_write default to input, and cache_write_1h, also if it is 0, to
// cache_write. web_search, web_fetch and code_execution are dollars per use. Above has the prices of a call with a
// longer prompt. The error joins the first mistake of each model, with the model and the field. If data is not a
// mapping in YAML, or the value of a model is not one, the error is only that.
func ParsePrices(data []byte) (Prices, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("parse prices: %w", err)
	}
	var models map[string]map[string]json.RawMessage
	if err := json.Unmarshal(asJSON, &models); err != nil {
		return nil, errors.New(`parse prices: the file is not a mapping: write one line per model, as in "my-model: {input: 1.25, output: 10}"`)
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
	above, longer := fields["above"]
	delete(fields, "above")
	uses := map[string]*state.MicroUSD{}
	for _, tool := range ProviderTools() {
		raw, ok := fields[tool]
		if !ok {
			continue
		}
		delete(fields, tool)
		amount := new(state.MicroUSD)
		if err := amount.UnmarshalJSON(raw); err != nil || *amount < 0 || *amount > maxUsePrice {
			return Price{}, fmt.Errorf("%s: %.40s is not between 0 and %d: write US dollars for one use", tool, raw, maxUsePrice/1_000_000)
		}
		uses[tool] = amount
	}
	p, _, err := parseAmounts(fields, "input, output, cache_read, cache_write, cache_write_1h, web_search, web_fetch, code_execution, above")
	p.WebSearch, p.WebFetch, p.CodeExecution = uses[WebSearch], uses[WebFetch], uses[CodeExecution]
	if err != nil || !longer {
		return p, err
	}
	var inner map[string]json.RawMessage
	if err := json.Unmarshal(above, &inner); err != nil {
		return Price{}, fmt.Errorf("above: %.60s is not an object of prices: write one such as {tokens: 200000, input: 2.5, output: 15}", above)
	}
	more, tokens, err := parseAmounts(inner, "tokens, input, output, cache_read, cache_write, cache_write_1h")
	if err == nil && tokens == 0 {
		err = errors.New("tokens is missing: give the number of tokens above which these prices apply")
	}
	if err != nil {
		return Price{}, fmt.Errorf("above: %w", err)
	}
	p.Above, p.AboveTokens = &more, tokens
	return p, nil
}

// parseAmounts parses the fields of a price, and the number of tokens above which it applies. It refuses fields that
// are not in known.
func parseAmounts(fields map[string]json.RawMessage, known string) (Price, int64, error) {
	amounts := map[string]int64{}
	var tokens int64
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(strings.Split(known, ", "), name) {
			return Price{}, 0, fmt.Errorf("unknown field %q: use %s", name, known)
		}
		if name == "tokens" {
			if err := json.Unmarshal(fields[name], &tokens); err != nil || tokens < 1 || tokens > maxTokens {
				return Price{}, 0, fmt.Errorf("tokens: %.40s is not a whole number from 1 to %d: write one without quotes, such as 200000", fields[name], maxTokens)
			}
			continue
		}
		var amount state.MicroUSD
		if err := amount.UnmarshalJSON(fields[name]); err != nil {
			return Price{}, 0, fmt.Errorf("%s: %w", name, err)
		}
		if amount < 0 || amount > maxPrice {
			return Price{}, 0, fmt.Errorf("%s: %s is not between 0 and %d: write US dollars for a million tokens", name, fields[name], maxPrice/1_000_000)
		}
		amounts[name] = int64(amount)
	}
	for _, name := range []string{"input", "output"} {
		if _, ok := amounts[name]; !ok {
			return Price{}, 0, fmt.Errorf("%s is missing: give the price", name)
		}
	}
	p := Price{Input: amounts["input"], Output: amounts["output"], CacheRead: amounts["input"], CacheWrite: amounts["input"]}
	if v, ok := amounts["cache_read"]; ok {
		p.CacheRead = v
	}
	if v, ok := amounts["cache_write"]; ok {
		p.CacheWrite = v
	}
	if p.CacheWriteHour = p.CacheWrite; amounts["cache_write_1h"] > 0 {
		p.CacheWriteHour = amounts["cache_write_1h"]
	}
	return p, tokens, nil
}

// tokens limits a number of tokens that a server reported to a range in which costs do not overflow.
func tokens(n int64) int64 { return min(max(n, 0), maxTokens) }
