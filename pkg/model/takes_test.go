package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A setting that a known family of models does not support is refused, with the key and the remedy.
func TestTakes(t *testing.T) {
	t.Parallel()
	all := func(c Choice) Choice {
		c.Temperature, c.TopP, c.TopK, c.Seed, c.Stop = new(0.5), new(0.5), new(int64(5)), new(int64(1)), []string{"END"}
		c.ToolChoice, c.ParallelToolCalls, c.ServiceTier = ToolChoice{Mode: ToolsAny}, new(false), TierFlex
		return c
	}
	effort := func(c Choice, e Effort) Choice {
		c.Reasoning = e
		return c
	}
	claude := func(name string) Choice { return Choice{Provider: "anthropic", Model: name} }
	gpt := func(name string) Choice { return Choice{Provider: "openai", Model: name} }
	gemini := func(name string) Choice { return Choice{Provider: "gemini", Model: name} }
	chat := func(name string) Choice { return Choice{Provider: "openai", Model: name, API: APIChat} }
	one := func(c Choice) Choice {
		c.TopP = new(0.5)
		return c
	}
	warm := func(c Choice) Choice {
		c.Temperature = new(1.5)
		return c
	}
	for _, tt := range []struct {
		c    Choice
		want string // the keys
	}{
		{all(claude("claude-3-5-sonnet-20241022")), "seed service_tier"},
		{all(claude("claude-sonnet-4-5")), "top_p seed service_tier"},
		{all(claude("claude-opus-4-1-20250805")), "top_p seed service_tier"},
		{one(claude("claude-sonnet-4-5")), ""},
		{all(claude("claude-opus-4-7")), "temperature top_p top_k seed service_tier"},
		{all(claude("claude-sonnet-5")), "temperature top_p top_k seed service_tier"},
		{all(effort(claude("claude-haiku-4-5"), EffortLow)), "temperature top_p top_k seed tool_choice service_tier"},
		{effort(one(claude("claude-haiku-4-5")), EffortLow), "top_p"},
		{effort(one(claude("claude-haiku-4-5")), EffortNone), ""},
		{warm(claude("claude-haiku-4-5")), "temperature"},
		{all(claude("some-other-model")), "seed service_tier"},
		{effort(claude("claude-opus-4-6"), EffortXHigh), "reasoning"},
		{effort(claude("claude-opus-4-7"), EffortXHigh), ""},
		{effort(claude("claude-opus-4-6"), EffortMax), ""},
		{effort(claude("claude-haiku-4-5"), EffortMax), "reasoning"},

		{all(gpt("gpt-4.1")), "top_k stop seed"},
		{all(gpt("gpt-5-mini-2025-08-07")), "temperature top_p top_k stop seed"},
		{all(gpt("gpt-5.2")), "temperature top_p top_k stop seed"},
		{all(effort(gpt("gpt-5.2"), EffortNone)), "top_k stop seed"},
		{all(effort(gpt("gpt-5.2-pro"), EffortNone)), "temperature top_p top_k stop seed"},
		{all(chat("o4-mini")), "temperature top_p top_k stop parallel_tool_calls"},
		{all(chat("gpt-5.3-chat-latest")), "top_k"},
		{all(chat("gpt-4o")), "top_k"},
		{all(Choice{Provider: "openai", Model: "qwen3", BaseURL: "http://10.0.0.7/v1"}), "top_k"},
		{all(Choice{Provider: "openai", Model: "gpt-oss-120b", BaseURL: "http://10.0.0.7/v1"}), "top_k"},
		{effort(gpt("gpt-5"), EffortXHigh), "reasoning"},
		{effort(gpt("gpt-5.1-codex-max"), EffortXHigh), ""},
		{effort(gpt("gpt-5.2"), EffortXHigh), ""},
		{effort(gpt("gpt-5.2"), EffortMax), "reasoning"},
		{effort(gpt("gpt-5.6-sol"), EffortMax), ""},
		{effort(gpt("gpt-4.1"), EffortMax), "reasoning"},
		{effort(gpt("gpt-4.1"), EffortHigh), ""},

		{all(gemini("gemini-2.5-flash")), "parallel_tool_calls"},
		{effort(gemini("gemini-3-pro-preview"), EffortXHigh), "reasoning"},
		{Choice{Provider: "gemini", Model: "gemini-3-pro-preview", Settings: Settings{Seed: new(int64(1) << 40)}}, "seed"},
		{Choice{Provider: "gemini", Model: "gemini-3-pro-preview", Settings: Settings{Stop: strings.Split("abcdef", "")}}, "stop"},
		{Choice{Provider: "openai", API: APIChat, Model: "gpt-4o", Settings: Settings{Stop: strings.Split("abcde", "")}}, "stop"},

		{all(Choice{Provider: "scripted"}), ""},
		{Choice{Provider: "scripted", Settings: Settings{
			Temperature: new(2.1), TopP: new(-0.1), TopK: new(int64(0)), Stop: []string{"x", " "}, ServiceTier: "fast",
		}}, "temperature top_p top_k stop[1] service_tier"},
	} {
		var keys []string
		for _, r := range BuiltinSpecs()[tt.c.Provider].Check(tt.c) {
			keys = append(keys, r.Key)
			if !strings.Contains(r.Text, ":") && !strings.Contains(r.Text, "is ") && !strings.Contains(r.Text, "one of") {
				t.Errorf("%s: %q lacks the remedy", r.Key, r.Text)
			}
		}
		if got := strings.Join(keys, " "); got != tt.want {
			t.Errorf("%s %s %q: %q is refused, want %q", tt.c.Provider, tt.c.Model, tt.c.Reasoning, got, tt.want)
		}
	}
	if r := BuiltinSpecs()["openai"].Check(all(gpt("gpt-4.1"))); r[0] != (Refusal{"top_k", "openai does not support it: remove it"}) {
		t.Errorf("top_k: %+v", r[0])
	}
}

// Definitions may set the allowed extra fields, and never those that Turnpike sets.
func TestExtra(t *testing.T) {
	t.Parallel()
	specs := BuiltinSpecs()
	allowed, err := NewExtras(specs, []string{"openai:prompt_cache_retention", "gemini:safetySettings", "mine:deep.field"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ provider, extra, want string }{
		{"openai", `{"prompt_cache_retention":"24h","logit_bias":{"50256":-100},"text":{"verbosity":"low"}}`, ""},
		{"openai", `{"reasoning":{"summary":"auto"}}`, ""},
		{"openai", `{"store":true,"Store":true,"input":[],"mcp_servers":[],"previous_response_id":"x"}`, "extra.Store extra.input extra.mcp_servers extra.previous_response_id extra.store"},
		{"openai", `{"text":{"format":{"type":"text"}},"reasoning":{"effort":"low"},"reasoning_effort":"low"}`, "extra.reasoning.effort extra.reasoning_effort extra.text.format"},
		{"openai", `{"text":{},"reasoning":null}`, "extra.reasoning extra.text"},
		{"openai", `{"a.b":1,"":2,"verbosity.x":1,"top_k":5}`, "extra. extra.a.b extra.top_k"},
		{"anthropic", `{"metadata":{"user_id":"7"},"speed":"fast","mcp_servers":[],"container":"x","output_config":{"task_budget":1}}`, "extra.container extra.mcp_servers extra.output_config.task_budget extra.speed"},
		{"gemini", `{"generationConfig":{"presencePenalty":0.5,"max_output_tokens":1,"responseLogprobs":true},"safetySettings":[]}`, "extra.generationConfig.max_output_tokens extra.generationConfig.responseLogprobs"},
		{"gemini", `{"generation_config":{"topP":1},"cached_content":"x","tool_config":{}}`, "extra.cached_content extra.generation_config.topP extra.tool_config"},
		{"mine", `{"deep":{"field":1,"other":2}}`, "extra.deep.other"},
		{"scripted", `{"anything":1}`, ""},
	} {
		var extra map[string]json.RawMessage
		if err := json.Unmarshal([]byte(tt.extra), &extra); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, r := range allowed.CheckExtra(tt.provider, specs[tt.provider], extra) {
			keys = append(keys, r.Key)
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != tt.want {
			t.Errorf("%s %s: %q is refused, want %q", tt.provider, tt.extra, got, tt.want)
		}
		for _, f := range (Settings{Extra: extra}).ExtraFields(tt.provider) {
			if specs[tt.provider].owns(f.Path) != apart {
				t.Errorf("%s %s sets %s", tt.provider, tt.extra, f.Path)
			}
		}
	}
	for _, entry := range []string{"openai", "openai:", "openai:a b", "openai:store", "openai:text", "anthropic:tools.x", "gemini:generationConfig", "gemini:generation_config.top_k"} {
		if _, err := NewExtras(specs, []string{entry}); err == nil {
			t.Errorf("an operator may allow %q", entry)
		}
	}
}

func TestToolChoice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]ToolChoice{`"auto"`: {Mode: ToolsAuto}, `"none"`: {Mode: ToolsNone}, `"any"`: {Mode: ToolsAny}, `{"name":"auto"}`: {Tool: "auto"}} {
		var got ToolChoice
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
		if b, err := json.Marshal(got); err != nil || string(b) != text {
			t.Errorf("%+v is %s, %v", got, b, err)
		}
	}
	var c ToolChoice
	if err := json.Unmarshal([]byte(`"find"`), &c); err != nil || c.Tool != "find" {
		t.Errorf("a name alone: %+v, %v", c, err)
	}
	for _, text := range []string{`1`, `{}`, `{"name":""}`, `{"name":"a","x":"b"}`, `["any"]`} {
		if json.Unmarshal([]byte(text), &c) == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// The docs list which settings each provider supports.
func TestTakesDoc(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| | anthropic | openai, Responses | openai, chat | gemini |\n|---|---|---|---|---|\n")
	cell := func(provider string, api API, key string) string {
		for _, taken := range BuiltinSpecs()[provider].Takes {
			if taken.Setting == key && cmp.Or(taken.API, api) == api {
				text := "`" + taken.Field + "`"
				for _, e := range taken.Not {
					text += "; not " + e.Models
				}
				return text
			}
		}
		return "no"
	}
	for _, key := range []string{"temperature", "top_p", "top_k", "stop", "seed", "tool_choice", "parallel_tool_calls", "service_tier", "reasoning"} {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", key, cell("anthropic", "", key), cell("openai", APIResponses, key), cell("openai", APIChat, key), cell("gemini", "", key))
	}
	fields := func(provider string) string { return "`" + strings.Join(BuiltinSpecs()[provider].Extra, "` `") + "`" }
	fmt.Fprintf(&table, "| `extra` may set | %s | %s | the same | %s |\n", fields("anthropic"), fields("openai"), fields("gemini"))
	section(t, "takes", table.String())
}
