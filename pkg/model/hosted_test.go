package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A tool that a provider, or a family of its models, does not have is refused, with the key and the remedy.
func TestCheckTool(t *testing.T) {
	t.Parallel()
	functions, output := Beside{Functions: true}, Beside{OutputSchema: true}
	for _, tt := range []struct {
		provider, model, tool, settings string
		api                             API
		uses                            int64
		with                            Beside
		limited                         bool
		want                            string // the keys
	}{
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebSearch},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebSearch, with: functions, uses: 5, limited: true},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebSearch, limited: true, want: "max_uses"},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: CodeExecution, uses: 1, want: "max_uses"},
		{provider: "anthropic", model: "claude-3-opus-20240229", tool: WebSearch, want: "name"},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebFetch, settings: `{"citations":true,"max_content_tokens":5000,"blocked_domains":["a.example"]}`},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebFetch, settings: `{"citations":1,"max_content_tokens":0.5,"allowed_callers":["x"],"cache_control":{}}`, want: "settings.allowed_callers settings.cache_control settings.citations settings.max_content_tokens"},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebSearch, settings: `{"allowed_domains":["a.example"],"blocked_domains":["b.example"]}`, want: "settings.blocked_domains"},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebSearch, settings: `{"allowed_domains":["https://a.example"],"user_location":{"town":"x"}}`, want: "settings.allowed_domains settings.user_location"},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebSearch, settings: `[]`, want: "settings"},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: CodeExecution, settings: `{"container":"x"}`, want: "settings.container"},
		{provider: "openai", model: "gpt-5-mini", tool: WebSearch, settings: `{"search_context_size":"low","external_web_access":false}`},
		{provider: "anthropic", model: "claude-haiku-4-5", tool: WebSearch, settings: `{"allowed_domains":["a.example",7],"user_location":{"city":7}}`, want: "settings.allowed_domains settings.user_location"},
		{provider: "openai", model: "gpt-5-mini", tool: WebSearch, settings: `{"blocked_domains":["a.example"],"search_context_size":"huge"}`, want: "settings.blocked_domains settings.search_context_size"},
		{provider: "openai", model: "gpt-5-mini", tool: CodeExecution, settings: `{"file_ids":["x"]}`, want: "settings.file_ids"},
		{provider: "openai", model: "gpt-5-mini", tool: WebFetch, want: "name"},
		{provider: "openai", model: "gpt-5-mini", api: APIChat, tool: WebSearch, want: "name"},
		{provider: "openai", model: "gpt-4", tool: CodeExecution, want: "name"},
		{provider: "gemini", model: "gemini-2.5-flash", tool: WebSearch},
		{provider: "gemini", model: "gemini-2.5-flash", tool: WebSearch, with: functions, want: "name"},
		{provider: "gemini", model: "gemini-2.5-flash", tool: WebFetch, with: output, want: "name"},
		{provider: "gemini", model: "gemini-3-flash", tool: WebSearch, with: Beside{true, true}},
		{provider: "gemini", model: "gemini-3-flash", tool: WebSearch, uses: 1, want: "max_uses"},
		{provider: "gemini", model: "gemini-3-flash", tool: WebSearch, limited: true, want: "max_uses"},
		{provider: "gemini", model: "gemini-2.0-flash", tool: WebFetch, want: "name"},
		{provider: "mine", model: "x", tool: WebSearch, want: "name"},
		{provider: "scripted", tool: WebFetch, uses: 1, limited: true, settings: `{"citations":true}`},
	} {
		var keys []string
		c := Choice{Provider: tt.provider, Model: tt.model, API: tt.api}
		for _, r := range BuiltinSpecs()[tt.provider].CheckTool(c, ProviderTool{tt.tool, tt.uses, json.RawMessage(tt.settings)}, tt.with, tt.limited) {
			keys = append(keys, r.Key)
			if !strings.Contains(r.Text, ": ") && !strings.Contains(r.Text, "write") && !strings.Contains(r.Text, "must be") {
				t.Errorf("%s: %q lacks the remedy", r.Key, r.Text)
			}
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != tt.want {
			t.Errorf("%s %s %s %s: %q is refused, want %q", tt.provider, tt.model, tt.tool, tt.settings, got, tt.want)
		}
	}
}

// A result is shortened for display. The data that the provider needs back is kept completely or not at all.
func TestUsesAreBounded(t *testing.T) {
	t.Parallel()
	block := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }
	u := &Uses{Seal: "mine m"}
	first := u.Part(state.Part{ID: "1", Name: WebFetch, Arguments: `{"url": "u"}`, Content: strings.Repeat("ä", 20_000)}, block(100_000), block(50_000))
	if len(first.Content) > maxShown || !strings.HasSuffix(first.Content, clippedText) || len(Blocks(first)) != 2 || first.OpaqueBy != "mine m" || first.Arguments != `{"url":"u"}` {
		t.Errorf("%d bytes of content, %d blocks of %q, %s", len(first.Content), len(Blocks(first)), first.OpaqueBy, first.Arguments)
	}
	for name, p := range map[string]state.Part{
		"large":   (&Uses{}).Part(state.Part{ID: "2", Name: WebFetch}, block(maxBlock)),
		"no JSON": (&Uses{}).Part(state.Part{ID: "2", Name: WebFetch}, json.RawMessage(`{`)),
	} {
		if p.Opaque != nil {
			t.Errorf("%s: %d bytes are kept", name, len(p.Opaque))
		}
	}
	kept := len(first.Opaque)
	for i := range 10 {
		kept += len(u.Part(state.Part{ID: fmt.Sprint(i), Name: WebSearch}, block(100_000)).Opaque)
	}
	if kept > maxBlocks+100 || kept < maxBlocks/2 {
		t.Errorf("%d bytes of a response are kept", kept)
	}
}

// A use goes back only to the family that made it, if the request has the tool and the use is complete.
func TestHosting(t *testing.T) {
	t.Parallel()
	u := &Uses{Seal: SealedBy("anthropic", "claude-haiku-4-5")}
	own := u.Part(state.Part{ID: "1", Name: WebSearch, Arguments: `{"query":"tea"}`, Content: "T"}, json.RawMessage(`{"a":1}`))
	large := u.Part(state.Part{ID: "2", Name: WebSearch, Content: "L"}, json.RawMessage(`"`+strings.Repeat("x", maxBlock)+`"`))
	nothing := u.Part(state.Part{ID: "3", Name: WebSearch})
	for _, tt := range []struct {
		name, provider, model string
		part                  state.Part
		tools                 []string
		text                  string
	}{
		{"own", "anthropic", "claude-haiku-4-5-20251001", own, []string{WebSearch}, ""},
		{"nothing to send", "anthropic", "claude-haiku-4-5", nothing, []string{WebSearch}, ""},
		{"another family", "anthropic", "claude-opus-4-5", own, []string{WebSearch}, "[web_search, run by the model's provider, with {\"query\":\"tea\"}. It returned:\nT\n]\n"},
		{"another provider", "openai", "claude-haiku-4-5", own, []string{WebSearch}, "[web_search, run by the model's provider, with {\"query\":\"tea\"}. It returned:\nT\n]\n"},
		{"too large", "anthropic", "claude-haiku-4-5", large, []string{WebSearch}, "[web_search, run by the model's provider. It returned:\nL\n]\n"},
		{"no such tool", "anthropic", "claude-haiku-4-5", own, []string{WebFetch}, "[web_search, run by the model's provider, with {\"query\":\"tea\"}. It returned:\nT\n]\n"},
	} {
		r := Request{Model: tt.model, Messages: []state.Message{{Role: state.RoleAssistant, Parts: []state.Part{tt.part}}}}
		for _, name := range tt.tools {
			r.ProviderTools = append(r.ProviderTools, ProviderTool{Name: name})
		}
		out, intact := r.Hosting(tt.provider)
		p := out.Messages[0].Parts[0]
		if p.Text != tt.text || intact != (tt.text == "") || tt.text != "" && (p.Type != state.PartText || p.Origin != state.OriginWeb) {
			t.Errorf("%s: %+v, intact %v", tt.name, p, intact)
		}
		if r.Messages[0].Parts[0].Type != state.PartProviderTool {
			t.Errorf("%s: the caller's messages have changed", tt.name)
		}
	}
}

// Only uses become text, not other parts whose id is the same, or missing as that of the use.
func TestHostingKeepsOtherParts(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "1"} {
		r := Request{Model: "gpt-5-mini", Messages: []state.Message{{Role: state.RoleAssistant, Parts: []state.Part{
			{Type: state.PartText, ID: id, Text: "before"}, {Type: state.PartProviderTool, ID: id, Name: WebSearch, Content: "T"}, {Type: state.PartToolCall, ID: id, Name: "t", Arguments: "{}"},
		}}}}
		out, intact := r.Hosting("openai")
		got := out.Messages[0].Parts
		if intact || len(got) != 3 || got[0].Text != "before" || !strings.HasSuffix(got[1].Text, "T\n]\n") || got[2].Type != state.PartToolCall {
			t.Errorf("id %q: the parts became %+v, intact %v", id, got, intact)
		}
	}
}

// Uses cost the price in the operator's file, or else the list price of the model's maker.
func TestPricesOfUses(t *testing.T) {
	t.Parallel()
	own, err := ParsePrices([]byte("m: {input: 1, output: 1, web_search: 0.5, web_fetch: 0.25, code_execution: 0}\nclaude-x: {input: 1, output: 1}\nmaker/Gemini-3-pro: {input: 1, output: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	u := state.Usage{WebSearches: 3, WebFetches: 2, CodeExecutions: 1}
	for _, tt := range []struct {
		prices Prices
		model  string
		want   state.MicroUSD
	}{{own, "m", 2_000_000}, {own, "claude-x", 30_000}, {own, "maker/Gemini-3-pro", 42_000}, {DefaultPrices(), "gpt-5-mini", 60_000}, {DefaultPrices(), "gemini-2.5-flash", 105_000}} {
		if got := tt.prices.Cost(tt.model, u); got == nil || *got != tt.want {
			t.Errorf("%s: %v, want %d", tt.model, got, tt.want)
		}
	}
	if got := own.Cost("m", state.Usage{WebSearches: 1 << 62}); *got < 0 {
		t.Errorf("an absurd count costs %d", *got)
	}
	for _, price := range []string{"-1", "100.01"} {
		if _, err := ParsePrices([]byte("m: {input: 1, output: 1, web_search: " + price + "}")); err == nil || !strings.Contains(err.Error(), "m: web_search: "+price+" is not between 0 and 100: ") {
			t.Errorf("a price of %s: %v", price, err)
		}
	}
}

// The docs list which provider has which tool, with which settings.
func TestHostedDoc(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| | anthropic | openai, Responses | openai, chat | gemini |\n|---|---|---|---|---|\n")
	cell := func(provider string, api API, tool string) string {
		for _, h := range BuiltinSpecs()[provider].Hosted {
			if h.Tool != tool || cmp.Or(h.API, api) != api {
				continue
			}
			text := "`" + h.Field + "`"
			if !h.Bounded {
				text += "; no `max_uses`"
			}
			if len(h.Keys) > 0 {
				var names []string
				for _, k := range h.Keys {
					names = append(names, "`"+k.Name+"`")
				}
				text += "; settings " + strings.Join(names, ", ")
			}
			for _, n := range h.Not {
				text += "; not " + n.Models
			}
			return text
		}
		return "no"
	}
	for _, tool := range ProviderTools() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", tool, cell("anthropic", "", tool), cell("openai", APIResponses, tool), cell("openai", APIChat, tool), cell("gemini", "", tool))
	}
	section(t, "hosted", table.String())
}
