package openai

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The kinds of items that are uses of OpenAI's own tools.
const (
	itemSearch = "web_search_call"
	itemCode   = "code_interpreter_call"
)

// host adds the tools that OpenAI runs. The API has one bound for the uses of all of them together, so host sets it
// only if each tool has a bound.
func host(p *responses.ResponseNewParams, tools []model.ProviderTool) {
	most, bounded := int64(0), len(tools) > 0
	for _, t := range tools {
		most += t.MaxUses
		bounded = bounded && t.MaxUses > 0
		switch t.Name {
		case model.WebSearch:
			p.Tools = append(p.Tools, responses.ToolUnionParam{OfWebSearch: search(t)})
			p.Include = append(p.Include, responses.ResponseIncludableWebSearchCallActionSources)
		case model.CodeExecution:
			p.Tools = append(p.Tools, responses.ToolUnionParam{OfCodeInterpreter: &responses.ToolCodeInterpreterParam{
				Container: responses.ToolCodeInterpreterContainerUnionParam{OfCodeInterpreterToolAuto: &responses.ToolCodeInterpreterContainerCodeInterpreterContainerAutoParam{}},
			}})
			p.Include = append(p.Include, responses.ResponseIncludableCodeInterpreterCallOutputs)
		}
	}
	if bounded {
		p.MaxToolCalls = param.NewOpt(most)
	}
}

func search(t model.ProviderTool) *responses.WebSearchToolParam {
	var s struct {
		Allowed  []string `json:"allowed_domains"`
		Location *struct {
			City, Region, Country, Timezone string
		} `json:"user_location"`
		Size string `json:"search_context_size"`
		Live *bool  `json:"external_web_access"`
	}
	_ = json.Unmarshal(t.Settings, &s) // the gateway has checked them
	w := &responses.WebSearchToolParam{
		Type: responses.WebSearchToolTypeWebSearch, ExternalWebAccess: optional(s.Live),
		SearchContextSize: responses.WebSearchToolSearchContextSize(s.Size),
		Filters:           responses.WebSearchToolFiltersParam{AllowedDomains: s.Allowed},
	}
	if p := s.Location; p != nil {
		w.UserLocation = responses.WebSearchToolUserLocationParam{
			Type: "approximate", City: word(p.City), Region: word(p.Region), Country: word(p.Country), Timezone: word(p.Timezone),
		}
	}
	return w
}

func word(text string) param.Opt[string] {
	if text == "" {
		return param.Opt[string]{}
	}
	return param.NewOpt(text)
}

// use returns the part of an item of OpenAI's own tools.
func use(item responses.ResponseOutputItemUnion, uses *model.Uses) state.Part {
	p := state.Part{ID: item.ID, Name: model.WebSearch, IsError: item.Status == "failed"}
	raw := json.RawMessage(item.RawJSON())
	if item.Type == itemCode {
		var call struct {
			Code    string
			Outputs []struct{ Type, Logs, URL string }
		}
		_ = json.Unmarshal(raw, &call) // an item without code has nothing to show
		var text []string
		for _, o := range call.Outputs {
			text = append(text, cmp.Or(o.Logs, o.URL))
		}
		p.Name, p.Arguments, p.Content = model.CodeExecution, object("code", call.Code), strings.Join(text, "\n")
		return uses.Part(p, raw)
	}
	var call struct {
		Action struct {
			Type, Query, URL, Pattern string
			Queries                   []string
			Sources                   []struct{ URL string }
		}
	}
	_ = json.Unmarshal(raw, &call) // as above
	a := call.Action
	switch {
	case a.Type == "open_page":
		p.Arguments = object("open_page", a.URL)
	case strings.HasPrefix(a.Type, "find"):
		p.Arguments = object("find_in_page", a.Pattern+" in "+a.URL)
	default:
		p.Arguments = object("query", cmp.Or(a.Query, strings.Join(a.Queries, "; ")))
	}
	var text []string
	for _, s := range a.Sources {
		text = append(text, s.URL)
	}
	p.Content = strings.Join(text, "\n")
	return uses.Part(p, raw)
}

func object(key, value string) string {
	b, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		return "{}" // texts always encode
	}
	return string(b)
}

// billed returns the usage with the uses that OpenAI bills: searches, and containers in which code ran.
func (a *answer) billed(u state.Usage) state.Usage {
	containers := map[string]bool{}
	for _, item := range a.items {
		switch item.Type {
		case itemSearch:
			if kind := item.Action.Type; kind == "search" || kind == "" {
				u.WebSearches++
			}
		case itemCode:
			containers[item.ContainerID] = true
		}
	}
	if a.last.ToolUsage.JSON.WebSearch.Valid() {
		u.WebSearches = max(0, a.last.ToolUsage.WebSearch.NumRequests)
	}
	u.CodeExecutions = int64(len(containers))
	return u
}

// hostedItem returns an item as it was received. A caller may have submitted it, so it refuses other kinds, which could
// refer to data that OpenAI stores.
func hostedItem(raw json.RawMessage) (responses.ResponseInputItemUnionParam, bool) {
	var kind struct{ Type string }
	if json.Unmarshal(raw, &kind) != nil || kind.Type != itemSearch && kind.Type != itemCode {
		return responses.ResponseInputItemUnionParam{}, false
	}
	item := param.Override[responses.ResponseFunctionWebSearchParam](raw)
	return responses.ResponseInputItemUnionParam{OfWebSearchCall: &item}, true
}
