package state

import (
	"cmp"
	"slices"
)

// Usage is the tokens, calls and cost of a run. CostUSD is nil while no price is known. Usage
// includes model calls that failed midway or were lost in a crash.
type Usage struct {
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CacheReadTokens  int64 `json:"cache_read_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`

	// CacheHourTokens are those of CacheWriteTokens that the provider keeps for an hour, which costs
	// more.
	CacheHourTokens int64 `json:"cache_write_1h_tokens,omitempty"`

	// CacheExpiredTokens are input tokens that an earlier call of the run had in the provider's cache
	// and that a later one had to send again, because the cache had dropped them.
	CacheExpiredTokens int64 `json:"cache_expired_tokens"`

	// CacheExpiredCostUSD is the part of CostUSD that reading them from the cache would have saved; nil
	// if there were none, or while no price is known.
	CacheExpiredCostUSD *MicroUSD `json:"cache_expired_cost_usd,omitempty"`

	// Uses of tools that a model's provider ran, as far as it reported them, and as it bills them.
	WebSearches    int64 `json:"web_searches,omitempty"`
	WebFetches     int64 `json:"web_fetches,omitempty"`
	CodeExecutions int64 `json:"code_executions,omitempty"`

	ModelCalls int64     `json:"model_calls"`
	ToolCalls  int64     `json:"tool_calls"` // calls made: not denied, reused or cut short
	CostUSD    *MicroUSD `json:"cost_usd"`

	// Estimated reports whether a part of the usage is an estimate, because the provider did not report it.
	Estimated bool `json:"estimated,omitempty"`
}

// Add returns the sum of u and v. An unknown cost adds nothing: the sum is unknown only if both are.
func (u Usage) Add(v Usage) Usage {
	u.add(&v)
	return u
}

func (u *Usage) add(v *Usage) {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.CacheHourTokens += v.CacheHourTokens
	u.CacheExpiredTokens += v.CacheExpiredTokens
	u.WebSearches += v.WebSearches
	u.WebFetches += v.WebFetches
	u.CodeExecutions += v.CodeExecutions
	u.ModelCalls += v.ModelCalls
	u.ToolCalls += v.ToolCalls
	u.Estimated = u.Estimated || v.Estimated
	u.CostUSD = addCost(u.CostUSD, v.CostUSD)
	u.CacheExpiredCostUSD = addCost(u.CacheExpiredCostUSD, v.CacheExpiredCostUSD)
}

func addCost(a, b *MicroUSD) *MicroUSD {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	sum := *a + *b
	return &sum
}

// CacheExpired returns the number of tokens that the last response in a log left in the provider's cache, and
// that a call of model with usage u did not read from there. It skips responses with estimated usage. It returns 0 if
// the log has no response, if another model gave it, or if a compaction follows it: that replaced the prompt, so
// nothing was lost.
func CacheExpired(log []Entry, model string, u Usage) int64 {
	had := cached(log)
	if had == nil || had.Model != model {
		return 0
	}
	return max(0, had.Tokens-u.CacheReadTokens)
}

// cached returns what the provider's cache had after the last response; nil if that is not known, or if the prompt was
// compacted since.
func cached(log []Entry) *CachedPrompt {
	for i := range slices.Backward(log) {
		switch e := &log[i]; {
		case e.Type == EntryCompacted:
			return nil
		case e.Type == EntryModel && e.Usage != nil && !e.Usage.Estimated:
			if e.Message == nil {
				return nil
			}
			return &CachedPrompt{e.Message.Model, e.Usage.CacheReadTokens + e.Usage.CacheWriteTokens}
		}
	}
	if c := CheckpointOf(log); c != nil {
		return c.Cached
	}
	return nil
}
