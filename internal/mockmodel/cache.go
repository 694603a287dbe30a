package mockmodel

import (
	"encoding/json"
	"hash/maphash"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/modelname"
)

const (
	bytesPerToken  = 4
	minCached      = 1024      // minimum tokens of a prefix that a provider caches
	cacheStep      = 128       // tokens; without breakpoints, the length of a cached prefix is a multiple of it
	cacheLookBack  = 20        // number of blocks before a breakpoint that Anthropic compares
	maxCached      = 1_000_000 // maximum number of prefixes in memory
	shortLifetime  = 5         // minutes
	mediumLifetime = 30
	longLifetime   = 60
)

// prompt is the part of a request that a provider caches.
type prompt struct {
	scope  string // requests with different scopes share no entries
	blocks []block

	// marked reports that the breakpoints of the blocks determine what is cached, as at Anthropic. Otherwise the
	// provider caches every prefix, for the given minutes.
	marked  bool
	minutes int
	bills   bool // the provider charges for tokens that it writes to the cache
}

// block is a part of a prompt, in the order in which the model reads it. minutes is the lifetime of the breakpoint at
// its end; 0 means no breakpoint.
type block struct {
	data    json.RawMessage
	minutes int
}

// cacheUse has the numbers of tokens of a prompt that were read from the cache, that were written to it, and of the
// latter those with a lifetime of an hour.
type cacheUse struct{ read, write, hour int64 }

// promptCache imitates the prompt caches of the providers: a request finds each prefix that an earlier request has
// sent, unless the prefix was not used for its lifetime. It is safe for concurrent use.
type promptCache struct {
	minute time.Duration
	seed   maphash.Seed

	mu      sync.Mutex
	entries map[uint64]entry
}

type entry struct {
	lifetime time.Duration
	end      time.Time
}

func newPromptCache(minute time.Duration) *promptCache {
	if minute == 0 {
		minute = time.Minute
	}
	return &promptCache{minute: minute, seed: maphash.MakeSeed(), entries: map[uint64]entry{}}
}

// prefix is the beginning of a prompt.
type prefix struct {
	key     uint64
	tokens  int64
	minutes int // lifetime of the breakpoint at its end
}

// use returns what a request with this prompt reads and writes now, and updates the cache.
func (c *promptCache) use(p prompt) cacheUse {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.marked {
		return c.marked(c.prefixes(p), now)
	}
	return c.automatic(p, c.steps(p), now)
}

// marked reads the longest entry that a breakpoint finds, and writes up to each breakpoint.
func (c *promptCache) marked(all []prefix, now time.Time) (got cacheUse) {
	for i, at := range all {
		for j := max(0, i-cacheLookBack); at.minutes > 0 && j <= i; j++ {
			if c.refresh(all[j].key, now) {
				got.read = max(got.read, all[j].tokens)
			}
		}
	}
	end := got.read
	for _, at := range all {
		if at.minutes == 0 || at.tokens < minCached {
			continue
		}
		if n := at.tokens - end; n > 0 {
			got.write, end = got.write+n, at.tokens
			if at.minutes == longLifetime {
				got.hour += n
			}
		}
		c.put(at.key, at.minutes, now)
	}
	return got
}

// automatic reads the longest prefix that an earlier request has sent, and writes the rest.
func (c *promptCache) automatic(p prompt, steps []prefix, now time.Time) (got cacheUse) {
	for _, at := range steps {
		if c.refresh(at.key, now) {
			got.read = at.tokens
		}
		c.put(at.key, p.minutes, now)
	}
	if n := len(steps); n > 0 && p.bills {
		got.write = steps[n-1].tokens - got.read
	}
	return got
}

// refresh reports whether an entry is alive, and restarts its lifetime.
func (c *promptCache) refresh(key uint64, now time.Time) bool {
	e, ok := c.entries[key]
	if !ok || !e.end.After(now) {
		return false
	}
	e.end = now.Add(e.lifetime)
	c.entries[key] = e
	return true
}

// put stores an entry unless it is alive.
func (c *promptCache) put(key uint64, minutes int, now time.Time) {
	if c.entries[key].end.After(now) {
		return
	}
	if len(c.entries) >= maxCached {
		clear(c.entries)
	}
	lifetime := time.Duration(minutes) * c.minute
	c.entries[key] = entry{lifetime, now.Add(lifetime)}
}

// prefixes returns the prefixes that end with each block.
func (c *promptCache) prefixes(p prompt) []prefix {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(p.scope + "\x00")
	out, n := make([]prefix, len(p.blocks)), 0
	for i, b := range p.blocks {
		_, _ = h.Write(b.data)
		n += len(b.data)
		out[i] = prefix{h.Sum64(), int64(n / bytesPerToken), b.minutes}
	}
	return out
}

// steps returns the prefixes that end after minCached tokens and after every cacheStep further tokens.
func (c *promptCache) steps(p prompt) (out []prefix) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(p.scope + "\x00")
	n := 0
	for _, b := range p.blocks {
		for data := b.data; len(data) > 0; {
			piece := data[:min(len(data), cacheStep*bytesPerToken-n%(cacheStep*bytesPerToken))]
			_, _ = h.Write(piece)
			n, data = n+len(piece), data[len(piece):]
			if tokens := n / bytesPerToken; n%(cacheStep*bytesPerToken) == 0 && tokens >= minCached {
				out = append(out, prefix{key: h.Sum64(), tokens: int64(tokens)})
			}
		}
	}
	return out
}

// raw returns the blocks of parts of a request's body, in the order in which the model reads them.
func raw(lists ...json.RawMessage) (blocks []block) {
	for _, l := range lists {
		var items []json.RawMessage
		if json.Unmarshal(l, &items) != nil {
			items = []json.RawMessage{l} // a string or an object
		}
		for _, item := range items {
			blocks = append(blocks, block{data: item})
		}
	}
	return blocks
}

// prompt implements format. It includes the blocks of messages, without their breakpoints.
func (anthropic) prompt(body []byte, q query) prompt {
	var r struct {
		Tools    json.RawMessage `json:"tools"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(body, &r) // the body was decoded before
	blocks := raw(r.Tools, r.System)
	for _, m := range r.Messages {
		blocks = append(blocks, raw(m.Content)...)
	}
	for i := range blocks {
		var fields map[string]json.RawMessage
		if json.Unmarshal(blocks[i].data, &fields) != nil || fields["cache_control"] == nil {
			continue
		}
		var mark struct {
			TTL string `json:"ttl"`
		}
		_ = json.Unmarshal(fields["cache_control"], &mark)
		if blocks[i].minutes = shortLifetime; mark.TTL == "1h" {
			blocks[i].minutes = longLifetime
		}
	}
	for i := range blocks {
		blocks[i].data = unmarked(blocks[i].data)
	}
	return prompt{scope: q.model, blocks: blocks, marked: true}
}

// unmarked returns a block without its breakpoint, and with its fields in a fixed order.
func unmarked(data json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return data
	}
	delete(fields, "cache_control")
	return json.RawMessage(encode(fields))
}

// automatic returns the prompt of a request to OpenAI. Models from gpt-5.6 on cache it longer, and charge for writes.
func automatic(body []byte, q query, blocks []block) prompt {
	var r struct {
		Key string `json:"prompt_cache_key"`
	}
	_ = json.Unmarshal(body, &r)
	p := prompt{scope: q.model + "\x00" + r.Key, blocks: blocks, minutes: shortLifetime}
	if modelname.GPT(q.model).Since(5, 6) {
		p.minutes, p.bills = mediumLifetime, true
	}
	return p
}

// prompt implements format.
func (openAI) prompt(body []byte, q query) prompt {
	var r struct{ Tools, Messages json.RawMessage }
	_ = json.Unmarshal(body, &r)
	return automatic(body, q, raw(r.Tools, r.Messages))
}

// prompt implements format.
func (responsesAPI) prompt(body []byte, q query) prompt {
	var r struct{ Tools, Instructions, Input json.RawMessage }
	_ = json.Unmarshal(body, &r)
	return automatic(body, q, raw(r.Tools, r.Instructions, r.Input))
}

// prompt implements format.
func (f gemini) prompt(body []byte, _ query) prompt {
	var r struct{ Tools, SystemInstruction, Contents json.RawMessage }
	_ = json.Unmarshal(body, &r)
	return prompt{scope: f.model, blocks: raw(r.Tools, r.SystemInstruction, r.Contents), minutes: shortLifetime}
}
