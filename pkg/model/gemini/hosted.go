package gemini

import (
	"encoding/json"
	"slices"
	"strings"

	sdk "google.golang.org/genai"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// host adds the tools that Google runs. If the model also has functions, the API must be told to return its own calls.
func host(c *sdk.GenerateContentConfig, r model.Request) {
	for _, t := range r.ProviderTools {
		switch t.Name {
		case model.WebSearch:
			c.Tools = append(c.Tools, &sdk.Tool{GoogleSearch: &sdk.GoogleSearch{}})
		case model.WebFetch:
			c.Tools = append(c.Tools, &sdk.Tool{URLContext: &sdk.URLContext{}})
		case model.CodeExecution:
			c.Tools = append(c.Tools, &sdk.Tool{CodeExecution: &sdk.ToolCodeExecution{}})
		}
	}
	if len(r.ProviderTools) == 0 || len(r.Tools) == 0 {
		return
	}
	if c.ToolConfig == nil {
		c.ToolConfig = &sdk.ToolConfig{}
	}
	shown := true
	c.ToolConfig.IncludeServerSideToolInvocations = &shown
}

var hostedNames = map[sdk.ToolType]string{
	sdk.ToolTypeGoogleSearchWeb: model.WebSearch, sdk.ToolTypeGoogleSearchImage: model.WebSearch, sdk.ToolTypeURLContext: model.WebFetch,
}

// use is a use of one of Google's tools.
type use struct {
	id, name, args, content string
	failed, whole           bool
	parts                   []json.RawMessage
}

// hosted adds a part of one of Google's tools, and reports whether p is one. A result that directly follows its call
// belongs to the same use.
func (a *answer) hosted(p *sdk.Part) bool {
	u := &use{}
	result := false
	switch {
	case p.ExecutableCode != nil:
		a.ran++
		u.id, u.name, u.args = p.ExecutableCode.ID, model.CodeExecution, object(map[string]any{"code": p.ExecutableCode.Code})
	case p.CodeExecutionResult != nil:
		r := p.CodeExecutionResult
		result = true
		u.id, u.name, u.content, u.failed = r.ID, model.CodeExecution, r.Output, r.Outcome != sdk.OutcomeOK && r.Outcome != ""
	case p.ToolCall != nil:
		u.id, u.name, u.args = p.ToolCall.ID, hostedNames[p.ToolCall.ToolType], object(p.ToolCall.Args)
	case p.ToolResponse != nil:
		result = true
		u.id, u.name, u.content = p.ToolResponse.ID, hostedNames[p.ToolResponse.ToolType], object(p.ToolResponse.Response)
	default:
		return false
	}
	asked := slices.ContainsFunc(a.r.ProviderTools, func(t model.ProviderTool) bool { return t.Name == u.name })
	raw, err := json.Marshal(p)
	if err != nil || !asked {
		return true // a tool that the request does not have
	}
	if n := len(a.segments); result && n > 0 {
		if last := a.segments[n-1].use; last != nil && !last.whole && last.id == u.id && last.name == u.name {
			last.content, last.failed, last.whole = u.content, u.failed, true
			last.parts = append(last.parts, raw)
			return true
		}
	}
	u.whole, u.parts = result, []json.RawMessage{raw}
	a.segments = append(a.segments, &segment{kind: state.PartProviderTool, use: u, signature: []byte{}})
	return true
}

func object(v any) string {
	b, err := json.Marshal(v)
	if err != nil || string(b) == "null" {
		return "{}"
	}
	return string(b)
}

// ground stores the searches and pages that the response names.
func (a *answer) ground(c *sdk.Candidate) {
	if g := c.GroundingMetadata; g != nil && (len(g.WebSearchQueries) > 0 || len(g.GroundingChunks) > 0) {
		a.grounding = g
	}
	if m := c.URLContextMetadata; m != nil && len(m.URLMetadata) > 0 {
		a.pages = m.URLMetadata
	}
}

// grounded returns the uses without parts of their own. The API requires nothing of them back.
func (a *answer) grounded(uses *model.Uses) (parts []state.Part) {
	has := func(name string) bool {
		for _, s := range a.segments {
			if s.use != nil && s.use.name == name {
				return true
			}
		}
		return false
	}
	if g := a.grounding; g != nil && !has(model.WebSearch) {
		var found []string
		for _, c := range g.GroundingChunks {
			if c != nil && c.Web != nil {
				found = append(found, strings.TrimSpace(c.Web.Title+"\n"+c.Web.URI))
			}
		}
		parts = append(parts, uses.Part(state.Part{Name: model.WebSearch, Arguments: object(map[string]any{"queries": g.WebSearchQueries}), Content: strings.Join(found, "\n")}))
	}
	if len(a.pages) > 0 && !has(model.WebFetch) {
		var urls, outcome []string
		for _, m := range a.pages {
			if m != nil {
				urls = append(urls, m.RetrievedURL)
				outcome = append(outcome, m.RetrievedURL+" "+string(m.URLRetrievalStatus))
			}
		}
		parts = append(parts, uses.Part(state.Part{Name: model.WebFetch, Arguments: object(map[string]any{"urls": urls}), Content: strings.Join(outcome, "\n")}))
	}
	return parts
}

// billed returns the usage with the uses that Google bills: each search from Gemini 3 on, before that one per response.
func (a *answer) billed(u state.Usage) state.Usage {
	if a.grounding != nil {
		if u.WebSearches = int64(len(a.grounding.WebSearchQueries)); !three(a.r.Model) {
			u.WebSearches = 1
		}
	}
	u.WebFetches, u.CodeExecutions = int64(len(a.pages)), a.ran
	return u
}

// hostedParts returns the parts of a use as they were received. A caller may have submitted them, so it omits parts
// that are not a use of a tool.
func hostedParts(p state.Part) []*sdk.Part {
	var out []*sdk.Part
	for _, raw := range model.Blocks(p) {
		part := &sdk.Part{}
		if json.Unmarshal(raw, part) != nil || part.ExecutableCode == nil && part.CodeExecutionResult == nil && part.ToolCall == nil && part.ToolResponse == nil {
			continue
		}
		out = append(out, &sdk.Part{
			ExecutableCode: part.ExecutableCode, CodeExecutionResult: part.CodeExecutionResult,
			ToolCall: part.ToolCall, ToolResponse: part.ToolResponse, ThoughtSignature: part.ThoughtSignature,
		})
	}
	return out
}
