package anthropic_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// promptCache models the API's cache, in tokens of four bytes: an entry is a prefix of the prompt that
// ends at a mark; a call finds one that ends at most twenty blocks before one of its own marks, and
// keeps it for its time from then on.
type promptCache map[string]time.Duration // prefix to the time at which it ends

// lookBack is the number of blocks before a mark at which the API looks for an entry.
const lookBack = 20

// bill is what a call costs, in units of an input token.
type bill struct{ prompt, read, short, hour int }

func (b bill) cost() float64 {
	fresh := b.prompt - b.read - b.short - b.hour
	return float64(fresh) + 0.1*float64(b.read) + 1.25*float64(b.short) + 2*float64(b.hour)
}

// call takes the body of a request that is made at a time.
func (c promptCache) call(t *testing.T, at time.Duration, body map[string]any) bill {
	t.Helper()
	type block struct {
		end int // of the prefix, in tokens
		ttl time.Duration
		key string
	}
	var blocks []block
	var prefix strings.Builder
	add := func(b map[string]any) {
		b = maps.Clone(b)
		mark, _ := b["cache_control"].(map[string]any)
		delete(b, "cache_control")
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		prefix.Write(text)
		var ttl time.Duration
		switch {
		case mark["ttl"] == "1h":
			ttl = time.Hour
		case mark != nil:
			ttl = 5 * time.Minute
		}
		blocks = append(blocks, block{prefix.Len() / 4, ttl, prefix.String()})
	}
	list := func(v any) []any { l, _ := v.([]any); return l }
	for _, b := range list(body["tools"]) {
		add(b.(map[string]any))
	}
	for _, b := range list(body["system"]) {
		add(b.(map[string]any))
	}
	for _, m := range list(body["messages"]) {
		for _, b := range list(m.(map[string]any)["content"]) {
			add(b.(map[string]any))
		}
	}
	got := bill{prompt: blocks[len(blocks)-1].end}
	for i, b := range blocks {
		for j := max(0, i-lookBack); b.ttl > 0 && j <= i; j++ {
			if c[blocks[j].key] > at {
				got.read = max(got.read, blocks[j].end)
			}
		}
	}
	written := got.read
	for _, b := range blocks {
		if b.ttl == 0 {
			continue
		}
		if n := b.end - written; n > 0 && b.ttl == time.Hour {
			got.hour, written = got.hour+n, b.end
		} else if n > 0 {
			got.short, written = got.short+n, b.end
		}
		c[b.key] = at + b.ttl
	}
	return got
}

// A conversation of twenty turns pays for the cache as its policy says. The figures are modelled:
// promptCache stands for the API. A prompt's bytes change at no place that an earlier call has sent,
// else the cache would not find them.
func TestPromptCache(t *testing.T) {
	t.Parallel()
	const turns = 20
	base, body, _ := record(t)
	provider := anthropic.New(anthropic.Config{})
	// converse returns the bills of the calls of a conversation with a pause before each.
	converse := func(pause time.Duration, tools bool, settings func(k int, r *model.Request)) (bills []bill, total float64) {
		cache := promptCache{}
		r := model.Request{Run: "run_x", Model: "m", BaseURL: base, APIKey: "key", Messages: []state.Message{
			{Role: state.RoleSystem, Parts: []state.Part{text(strings.Repeat("instruct", 1000))}}, state.UserText("Begin."),
		}}
		if tools {
			r.Tools = []model.ToolSpec{{Name: "look", Schema: json.RawMessage(`{"type":"object"}`)}}
		}
		for k := range turns {
			settings(k, &r)
			if _, err := provider.Generate(t.Context(), r, nil); err != nil {
				t.Fatal(err)
			}
			b := cache.call(t, time.Duration(k)*pause, *body)
			bills, total = append(bills, b), total+b.cost()
			if tools {
				id := fmt.Sprint("c", k)
				r.Messages = append(r.Messages, state.Message{Role: state.RoleAssistant, Parts: []state.Part{text("I look."), call(id, "look", "{}")}},
					state.ToolResult(id, strings.Repeat("result", 400), false))
			} else {
				r.Messages = append(r.Messages, state.Message{Role: state.RoleAssistant, Parts: []state.Part{text(strings.Repeat("answer", 400))}}, state.UserText("And?"))
			}
		}
		return bills, total
	}
	policy := func(c model.Cache) func(int, *model.Request) {
		return func(_ int, r *model.Request) { r.Cache = c }
	}
	readsPrefix := func(t *testing.T, bills []bill) {
		t.Helper()
		for k := 1; k < len(bills); k++ {
			if before := bills[k-1].prompt; bills[k].read*10 < before*9 {
				t.Errorf("call %d read %d tokens of the %d that the call before it sent", k, bills[k].read, before)
			}
		}
	}

	t.Run("back to back", func(t *testing.T) {
		bills, _ := converse(10*time.Second, true, policy(""))
		readsPrefix(t, bills)
	})
	t.Run("without tools, asked for", func(t *testing.T) {
		bills, _ := converse(10*time.Second, false, policy(model.CacheFiveMinutes))
		readsPrefix(t, bills)
	})
	t.Run("off", func(t *testing.T) {
		bills, total := converse(10*time.Second, true, policy(model.CacheOff))
		want := 0
		for _, b := range bills {
			want += b.prompt
		}
		if total != float64(want) {
			t.Errorf("the calls cost %.0f, their prompts %d", total, want)
		}
	})
	t.Run("an hour", func(t *testing.T) {
		bills, _ := converse(10*time.Minute, true, policy(model.CacheHour))
		readsPrefix(t, bills)
	})
	t.Run("ten minutes apart", func(t *testing.T) {
		_, short := converse(10*time.Minute, true, policy(model.CacheFiveMinutes))
		_, auto := converse(10*time.Minute, true, func(k int, r *model.Request) { r.LongWait = k > 0 })
		t.Logf("input costs %.0f with entries of 5 minutes, %.0f with auto: %.0f %% less", short, auto, 100*(1-auto/short))
		if auto > 0.6*short {
			t.Errorf("input costs %.0f with entries of 5 minutes and %.0f with auto; want at least 40 %% less", short, auto)
		}
	})
}
