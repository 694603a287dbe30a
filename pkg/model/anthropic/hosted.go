package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// kindHostedUse is the kind of the first block of a use of one of Anthropic's tools.
const kindHostedUse = "server_tool_use"

// resultKinds maps the kinds of block with the result of such a use to the tool.
var resultKinds = map[string]string{
	"web_search_tool_result":                 model.WebSearch,
	"web_fetch_tool_result":                  model.WebFetch,
	"code_execution_tool_result":             model.CodeExecution,
	"bash_code_execution_tool_result":        model.CodeExecution,
	"text_editor_code_execution_tool_result": model.CodeExecution,
}

// hostedNames maps Anthropic's names to those in definitions.
var hostedNames = map[string]string{
	"web_search": model.WebSearch, "web_fetch": model.WebFetch,
	"code_execution": model.CodeExecution, "bash_code_execution": model.CodeExecution, "text_editor_code_execution": model.CodeExecution,
}

// hosted returns the tools that Anthropic runs in the form of the API.
func hosted(tools []model.ProviderTool) []sdk.ToolUnionParam {
	var out []sdk.ToolUnionParam
	for _, t := range tools {
		var s struct {
			Allowed   []string `json:"allowed_domains"`
			Blocked   []string `json:"blocked_domains"`
			Citations *bool
			Tokens    int64 `json:"max_content_tokens"`
			Location  *struct {
				City, Region, Country, Timezone string
			} `json:"user_location"`
		}
		_ = json.Unmarshal(t.Settings, &s) // the gateway has checked them
		uses := count(t.MaxUses)
		switch t.Name {
		case model.WebSearch:
			w := &sdk.WebSearchTool20250305Param{MaxUses: uses, AllowedDomains: s.Allowed, BlockedDomains: s.Blocked}
			if p := s.Location; p != nil {
				w.UserLocation = sdk.UserLocationParam{City: word(p.City), Region: word(p.Region), Country: word(p.Country), Timezone: word(p.Timezone)}
			}
			out = append(out, sdk.ToolUnionParam{OfWebSearchTool20250305: w})
		case model.WebFetch:
			w := &sdk.WebFetchTool20250910Param{MaxUses: uses, AllowedDomains: s.Allowed, BlockedDomains: s.Blocked, MaxContentTokens: count(s.Tokens)}
			if s.Citations != nil {
				w.Citations = sdk.CitationsConfigParam{Enabled: param.NewOpt(*s.Citations)}
			}
			out = append(out, sdk.ToolUnionParam{OfWebFetchTool20250910: w})
		case model.CodeExecution:
			out = append(out, sdk.ToolUnionParam{OfCodeExecutionTool20250825: &sdk.CodeExecutionTool20250825Param{}})
		}
	}
	return out
}

func word(text string) param.Opt[string] {
	if text == "" {
		return param.Opt[string]{}
	}
	return param.NewOpt(text)
}

func count(n int64) param.Opt[int64] {
	if n <= 0 {
		return param.Opt[int64]{}
	}
	return param.NewOpt(n)
}

// use returns the part of a use, with its result if that is the next block; merged reports that. ok is false for a use
// that the response must omit: one of an unknown tool or with incomplete arguments, and one without a result, unless
// the response is paused. The API continues a use of a paused response, and refuses any other use without a result.
func (s *blocks) use(b, next *contentBlock, paused bool, uses *model.Uses) (p state.Part, merged, ok bool) {
	name := hostedNames[b.name]
	args, whole := state.CompactObject(b.arguments())
	if name == "" || !whole {
		return state.Part{}, false, false
	}
	p = state.Part{ID: b.id, Name: name, Arguments: args}
	raw := b.rawWith(args)
	if next != nil && resultKinds[next.kind] != "" && next.useID == b.id {
		p.Content, p.IsError = resultText(next.raw)
		return uses.Part(p, raw, next.raw), true, true
	}
	later := slices.ContainsFunc(s.list, func(r *contentBlock) bool { return resultKinds[r.kind] != "" && r.useID == b.id })
	return uses.Part(p, raw), false, later || paused
}

// rawWith returns the block as it was received, with the complete input.
func (b *contentBlock) rawWith(input string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(b.raw, &fields) != nil {
		return nil
	}
	fields["input"] = json.RawMessage(input)
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return raw
}

// resultText returns the readable content of a result block.
func resultText(raw json.RawMessage) (text string, failed bool) {
	var block struct{ Content json.RawMessage }
	if json.Unmarshal(raw, &block) != nil {
		return "", false
	}
	var found []struct{ Title, URL string }
	if json.Unmarshal(block.Content, &found) == nil {
		var b strings.Builder
		for _, f := range found {
			fmt.Fprintf(&b, "%s\n%s\n", f.Title, f.URL)
		}
		return strings.TrimSpace(b.String()), false
	}
	var one struct {
		Type       string
		ErrorCode  string `json:"error_code"`
		URL        string
		Stdout     string
		Stderr     string
		ReturnCode int64 `json:"return_code"`
		Content    json.RawMessage
	}
	if json.Unmarshal(block.Content, &one) != nil {
		return "", false
	}
	switch {
	case one.ErrorCode != "":
		return one.ErrorCode, true
	case one.Type == "web_fetch_result":
		var doc struct {
			Title  string
			Source struct {
				Type, Data string
				MediaType  string `json:"media_type"`
			}
		}
		_ = json.Unmarshal(one.Content, &doc) // the address says enough
		content := doc.Source.Data
		if doc.Source.Type == "base64" {
			content = fmt.Sprintf("[%s, %d bytes in base64]", doc.Source.MediaType, len(content))
		}
		return strings.TrimSpace(fmt.Sprintf("%s\n%s\n%s", doc.Title, one.URL, content)), false
	case one.Stdout != "" || one.Stderr != "" || strings.HasSuffix(one.Type, "execution_result"):
		text = strings.TrimSpace(one.Stdout + "\n" + one.Stderr)
		if one.ReturnCode != 0 {
			text = strings.TrimSpace(fmt.Sprintf("%s\nexit code %d", text, one.ReturnCode))
		}
		return text, one.ReturnCode != 0
	default:
		var shown string
		_ = json.Unmarshal(one.Content, &shown) // of a text editor's view
		return shown, false
	}
}

// result returns the part of a result that does not directly follow its use.
func (s *blocks) result(b *contentBlock, uses *model.Uses) state.Part {
	p := state.Part{ID: b.useID, Name: resultKinds[b.kind]}
	p.Content, p.IsError = resultText(b.raw)
	return uses.Part(p, b.raw)
}

// executions returns the number of results of code execution, which the API's usage lacks.
func (s *blocks) executions() (n int64) {
	for _, b := range s.list {
		if resultKinds[b.kind] == model.CodeExecution {
			n++
		}
	}
	return n
}

// cited is the opaque content of a text with citations.
type cited struct {
	Citations []json.RawMessage `json:"citations,omitempty"`
}

// maxCitations bounds the citations of a text, in bytes.
const maxCitations = 64 << 10

// textPart returns the part of a text block.
func (s *blocks) textPart(b *contentBlock) state.Part {
	p := state.Part{Type: state.PartText, Text: b.text.String()}
	if len(b.citations) == 0 {
		return p
	}
	if raw, err := json.Marshal(cited{b.citations}); err == nil && len(raw) <= maxCitations {
		p.Opaque, p.OpaqueBy = raw, s.seal
	}
	return p
}

// citations returns the citations that a text must be sent back with.
func citations(p state.Part, name string) []sdk.TextCitationParamUnion {
	var c cited
	if p.OpaqueBy != model.SealedBy(provider, name) || json.Unmarshal(p.Opaque, &c) != nil {
		return nil
	}
	var out []sdk.TextCitationParamUnion
	for _, raw := range c.Citations {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return nil
		}
		delete(fields, "file_id") // of responses only
		one := param.Override[sdk.CitationWebSearchResultLocationParam](fields)
		out = append(out, sdk.TextCitationParamUnion{OfWebSearchResultLocation: &one})
	}
	return out
}

// hostedBlocks returns the blocks of a use as they were received. A caller may have submitted them, so it omits blocks
// of other kinds.
func hostedBlocks(p state.Part) []sdk.ContentBlockParamUnion {
	var out []sdk.ContentBlockParamUnion
	for _, raw := range model.Blocks(p) {
		var kind struct{ Type string }
		if json.Unmarshal(raw, &kind) != nil || kind.Type != kindHostedUse && resultKinds[kind.Type] == "" {
			continue
		}
		b := param.Override[sdk.ServerToolUseBlockParam](raw)
		out = append(out, sdk.ContentBlockParamUnion{OfServerToolUse: &b})
	}
	return out
}

// settled returns messages in which the uses of providers' tools that the API would refuse are text: a use without a
// result, unless the model continues it, and a result without its use. whole reports that there are none.
func settled(in []state.Message) (out []state.Message, whole bool) {
	open, gone := map[string]bool{}, map[string]bool{}
	for _, m := range in {
		if m.Role != state.RoleAssistant {
			for id := range open {
				gone[id] = true
			}
			continue
		}
		for _, p := range m.Parts {
			if p.Type != state.PartProviderTool {
				continue
			}
			for _, raw := range model.Blocks(p) {
				var b struct{ Type string }
				_ = json.Unmarshal(raw, &b) // no type is no use
				switch {
				case b.Type == kindHostedUse:
					open[p.ID] = true
				case open[p.ID]:
					delete(open, p.ID)
				default:
					gone[p.ID] = true
				}
			}
		}
	}
	if len(gone) == 0 {
		return in, true
	}
	out = slices.Clone(in)
	for i, m := range out {
		parts := slices.Clone(m.Parts)
		for j, p := range parts {
			if p.Type == state.PartProviderTool && gone[p.ID] {
				parts[j] = p.AsText()
			}
		}
		out[i].Parts = parts
	}
	return out, false
}

// uncited returns messages without citations: these refer to blocks that are not sent.
func uncited(in []state.Message) []state.Message {
	out := slices.Clone(in)
	for i, m := range out {
		parts := slices.Clone(m.Parts)
		for j, p := range parts {
			if p.Type == state.PartText && len(p.Opaque) > 0 {
				parts[j].Opaque, parts[j].OpaqueBy = nil, ""
			}
		}
		out[i].Parts = parts
	}
	return out
}
