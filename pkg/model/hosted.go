package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The tools that providers run. Definitions use these names; each provider has its own name for each tool.
const (
	WebSearch     = "web_search"
	WebFetch      = "web_fetch"
	CodeExecution = "code_execution"
)

// ProviderTools returns the names of the tools that providers run.
func ProviderTools() []string { return []string{WebSearch, WebFetch, CodeExecution} }

// IsProviderTool reports whether name is one of ProviderTools.
func IsProviderTool(name string) bool { return slices.Contains(ProviderTools(), name) }

// MostUses is the maximum value of MaxUses.
const MostUses = 1000

// ProviderTool is a tool that the provider runs during a model call.
type ProviderTool struct {
	Name string

	// MaxUses bounds the uses in the call; 0 means no bound.
	MaxUses int64

	// Settings is a JSON object with keys that Spec.CheckTool accepts, or nil.
	Settings json.RawMessage
}

// Hosted is a tool that a provider runs for its models. docs/reference/models.md has a table of those of the built-in
// providers, generated from the lists in this file.
type Hosted struct {
	Tool    string
	API     API    // the API that has it; empty means all of the provider
	Field   string // name of the tool in a request
	Bounded bool   // whether the provider accepts MaxUses
	Keys    []Key  // settings
	Not     []NoTool
}

// NoTool is a family of models, or a combination, that lacks a tool.
type NoTool struct {
	Models  string // for the docs
	Refuses func(c Choice, with Beside) bool
	Text    string
}

// Beside says whether an agent has functions or an output schema in addition to a provider's tool.
type Beside struct{ Functions, OutputSchema bool }

// Key is a setting of a provider's tool.
type Key struct {
	Name  string
	Check func(v any) string // returns the mistake, or ""
}

var domainPattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?(/[^\s*]{0,200}(\*[^\s*]{0,200})?)?$`)

const maxDomains = 100

// quoted returns the start of a setting as JSON, for an error.
func quoted(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "it" // a decoded value cannot fail
	}
	return fmt.Sprintf("%.80s", b)
}

func domains(v any) string {
	list, ok := v.([]any)
	switch {
	case !ok || len(list) == 0:
		return fmt.Sprintf("%s is not a list of domains: write one of 1 to %d domains, such as [example.com]", quoted(v), maxDomains)
	case len(list) > maxDomains:
		return fmt.Sprintf("it has %d domains, at most %d are allowed: remove some", len(list), maxDomains)
	}
	for _, d := range list {
		if text, _ := d.(string); !domainPattern.MatchString(text) {
			return fmt.Sprintf("%.80q is not a domain: write it without https://, such as example.com", fmt.Sprint(d))
		}
	}
	return ""
}

func location(v any) string {
	want := quoted(v) + " is not a location: write an object with one or more of the texts city, region, country and timezone, each of 1 to 255 bytes"
	fields, ok := v.(map[string]any)
	if !ok || len(fields) == 0 {
		return want
	}
	for name, v := range fields {
		if text, ok := v.(string); !ok || text == "" || len(text) > 255 || !slices.Contains([]string{"city", "region", "country", "timezone"}, name) {
			return want
		}
	}
	return ""
}

func positive(v any) string {
	if n, ok := v.(float64); !ok || n < 1 || n > 10_000_000 || n != float64(int64(n)) {
		return quoted(v) + " is not a whole number from 1 to 10000000: write a number in that range"
	}
	return ""
}

func yesNo(v any) string {
	if _, ok := v.(bool); !ok {
		return quoted(v) + " is neither true nor false: write one of them"
	}
	return ""
}

func sizes(v any) string {
	if !slices.Contains([]any{"low", "medium", "high"}, v) {
		return "it is " + quoted(v) + ": write low, medium or high"
	}
	return ""
}

var (
	allowed = Key{"allowed_domains", domains}
	blocked = Key{"blocked_domains", domains}
	place   = Key{"user_location", location}

	olderClaude = func(name string, major, minor int) bool {
		v := modelname.Claude(name)
		return v.Known() && !v.Since(major, minor)
	}
	notBefore = func(major, minor int) NoTool {
		return NoTool{
			Models:  fmt.Sprintf("Claude before %d.%d", major, minor),
			Refuses: func(c Choice, _ Beside) bool { return olderClaude(c.Model, major, minor) },
			Text:    fmt.Sprintf("Claude before %d.%d does not have it: choose a newer model", major, minor),
		}
	}

	notIn = func(cloud Cloud) NoTool {
		return NoTool{
			Models:  "Claude on " + string(cloud),
			Refuses: func(c Choice, _ Beside) bool { return inCloud(c, cloud) },
			Text:    string(cloud) + " does not have it: remove it, or choose another address",
		}
	}

	anthropicHosted = []Hosted{
		{Tool: WebSearch, Field: "web_search_20250305", Bounded: true, Keys: []Key{allowed, blocked, place}, Not: []NoTool{notBefore(3, 5), notIn(Bedrock)}},
		{
			Tool: WebFetch, Field: "web_fetch_20250910", Bounded: true, Not: []NoTool{notBefore(3, 5), notIn(Bedrock), notIn(Vertex)},
			Keys: []Key{allowed, blocked, {"citations", yesNo}, {"max_content_tokens", positive}},
		},
		{Tool: CodeExecution, Field: "code_execution_20250825", Not: []NoTool{notBefore(3, 5), notIn(Bedrock), notIn(Vertex)}},
	}

	olderOpenAI = NoTool{
		Models:  "gpt-3.5, gpt-4, gpt-4-turbo, o1, o3-mini",
		Refuses: func(c Choice, _ Beside) bool { return oldOpenAI.MatchString(modelname.Family(c.Model)) },
		Text:    "this model does not have it: choose a newer one",
	}
	oldOpenAI = regexp.MustCompile(`^(gpt-3|gpt-4$|gpt-4-|o1\b|o3-mini)`)

	openAIHosted = []Hosted{
		{Tool: WebSearch, API: APIResponses, Field: "web_search", Bounded: true, Keys: []Key{allowed, place, {"search_context_size", sizes}, {"external_web_access", yesNo}}, Not: []NoTool{olderOpenAI, {
			Models:  "gpt-4.1-nano",
			Refuses: func(c Choice, _ Beside) bool { return modelname.Family(c.Model) == "gpt-4.1-nano" },
			Text:    "gpt-4.1-nano does not have it: choose another model",
		}, {
			Models: "gpt-5 with `reasoning: none` (minimal)",
			Refuses: func(c Choice, _ Beside) bool {
				return modelname.Family(c.Model) == "gpt-5" && c.Reasoning == EffortNone
			},
			Text: "gpt-5 has it only while it reasons: write reasoning: low or more",
		}}},
		{Tool: CodeExecution, API: APIResponses, Field: "code_interpreter", Bounded: true, Not: []NoTool{olderOpenAI}},
	}

	olderGemini = func(c Choice) bool {
		v := modelname.Gemini(c.Model)
		return v.Known() && !v.Since(3, 0)
	}
	alone = NoTool{
		Models:  "Gemini before 3, with tools of other kinds",
		Refuses: func(c Choice, with Beside) bool { return with.Functions && olderGemini(c) },
		Text:    "Gemini before 3 takes either its own tools or those of an agent: remove one, or choose a newer model",
	}
	unstructured = NoTool{
		Models:  "Gemini before 3, with `output_schema`",
		Refuses: func(c Choice, with Beside) bool { return with.OutputSchema && olderGemini(c) },
		Text:    "Gemini before 3 takes no output_schema together with its own tools: remove one, or choose a newer model",
	}
	first = NoTool{
		Models:  "Gemini before 2",
		Refuses: func(c Choice, _ Beside) bool { v := modelname.Gemini(c.Model); return v.Known() && !v.Since(2, 0) },
		Text:    "Gemini before 2 does not have it: choose a newer model",
	}
	geminiHosted = []Hosted{
		{Tool: WebSearch, Field: "googleSearch", Not: []NoTool{first, alone, unstructured}},
		{Tool: WebFetch, Field: "urlContext", Not: []NoTool{{
			Models:  "Gemini before 2.5",
			Refuses: func(c Choice, _ Beside) bool { v := modelname.Gemini(c.Model); return v.Known() && !v.Since(2, 5) },
			Text:    "Gemini before 2.5 does not have it: choose a newer model",
		}, alone, unstructured}},
		{Tool: CodeExecution, Field: "codeExecution", Not: []NoTool{first, alone, unstructured}},
	}

	// scriptedHosted takes what any provider takes, so that agents can be tested without one.
	scriptedHosted = []Hosted{
		{Tool: WebSearch, Bounded: true, Keys: []Key{allowed, blocked, place, {"search_context_size", sizes}, {"external_web_access", yesNo}}},
		{Tool: WebFetch, Bounded: true, Keys: []Key{allowed, blocked, {"citations", yesNo}, {"max_content_tokens", positive}}},
		{Tool: CodeExecution, Bounded: true},
	}
)

// CheckTool returns the mistakes of a provider's tool in a definition whose model is c: a tool that the model lacks or
// cannot have together with what is in with, a bound of uses that is missing or that the provider cannot keep, and
// settings that it does not accept. limited means that the agent has a cost limit, which needs a bound of uses. The key
// of a Refusal is name, max_uses, settings or settings.KEY.
func (s Spec) CheckTool(c Choice, t ProviderTool, with Beside, limited bool) []Refusal {
	refuse := func(key, format string, args ...any) Refusal { return Refusal{key, fmt.Sprintf(format, args...)} }
	h, text := s.hosted(c, t.Name, with)
	if h == nil {
		return []Refusal{refuse("name", "%s", text)}
	}
	var wrong []Refusal
	switch {
	case t.MaxUses > 0 && !h.Bounded:
		wrong = append(wrong, refuse("max_uses", "%s cannot bound the uses of %s: remove it", c.Provider, t.Name))
	case limited && !h.Bounded:
		wrong = append(wrong, refuse("max_uses", "%s cannot bound the uses of %s, which a limit of cost needs: remove the tool or limits.cost_usd", c.Provider, t.Name))
	case limited && t.MaxUses == 0:
		wrong = append(wrong, refuse("max_uses", "it is missing, and limits.cost_usd needs a bound of the uses of %s in one model call: write a number such as 5", t.Name))
	}
	return append(wrong, h.settings(c, t.Settings)...)
}

// Hosts reports whether the model of c has a provider's tool.
func (s Spec) Hosts(c Choice, name string) bool {
	h, _ := s.hosted(c, name, Beside{})
	return h != nil
}

// Bounds reports whether the provider accepts a bound of the uses of a tool. It reports true for a tool that is not in
// Hosted, such as those of providers that are not built in.
func (s Spec) Bounds(c Choice, name string) bool {
	h, _ := s.hosted(c, name, Beside{})
	return h == nil || h.Bounded
}

func (s Spec) hosted(c Choice, name string, with Beside) (*Hosted, string) {
	if c.API == "" && len(s.APIs) > 0 {
		if c.API = APIResponses; c.BaseURL != "" {
			c.API = APIChat
		}
	}
	var elsewhere API
	var names []string
	for i := range s.Hosted {
		h := &s.Hosted[i]
		if h.API == "" || h.API == c.API {
			names = append(names, h.Tool)
		}
		if h.Tool != name {
			continue
		}
		if h.API != "" && h.API != c.API {
			elsewhere = h.API
			continue
		}
		for _, n := range h.Not {
			if n.Refuses(c, with) {
				return nil, n.Text
			}
		}
		return h, ""
	}
	switch {
	case elsewhere != "":
		return nil, fmt.Sprintf("the API %s of %s does not have it: remove it, or write api: %s", c.API, c.Provider, elsewhere)
	case len(names) == 0:
		return nil, c.Provider + " runs no tools: remove it"
	default:
		return nil, fmt.Sprintf("%s does not run it, it runs %s: remove it", c.Provider, strings.Join(names, ", "))
	}
}

// settings returns the mistakes in the settings of a tool.
func (h *Hosted) settings(c Choice, raw json.RawMessage) []Refusal {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var given map[string]any
	if json.Unmarshal(raw, &given) != nil {
		return []Refusal{{"settings", "they are not an object: write one such as {allowed_domains: [example.com]}"}}
	}
	var names []string
	for _, k := range h.Keys {
		names = append(names, k.Name)
	}
	var wrong []Refusal
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.Index(names, name)
		switch {
		case i < 0 && len(names) == 0:
			wrong = append(wrong, Refusal{"settings." + clipped(name), fmt.Sprintf("%s of %s has no settings: remove it", h.Tool, c.Provider)})
		case i < 0:
			wrong = append(wrong, Refusal{"settings." + clipped(name), fmt.Sprintf("%s of %s takes %s only: remove it", h.Tool, c.Provider, strings.Join(names, ", "))})
		default:
			if text := h.Keys[i].Check(given[name]); text != "" {
				wrong = append(wrong, Refusal{"settings." + name, text})
			}
		}
	}
	if given["allowed_domains"] != nil && given["blocked_domains"] != nil {
		wrong = append(wrong, Refusal{"settings.blocked_domains", "providers take allowed_domains or blocked_domains, not both: remove one"})
	}
	return wrong
}

func clipped(name string) string { return fmt.Sprintf("%.80s", name) }

// Options returns the settings of t by name. The settings must have passed Spec.CheckTool.
func (t ProviderTool) Options() map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(t.Settings, &fields) // checked
	return fields
}

// Bounds of the parts of a response that describe uses of providers' tools, in bytes.
const (
	maxShown    = 16 << 10  // of a result, for people and for other models
	maxBlock    = 192 << 10 // of the blocks of one use
	maxBlocks   = 384 << 10 // of the blocks of all uses of a response
	maxInput    = 16 << 10
	clippedText = "\n[the rest is not shown]"
)

// Uses collects the uses of providers' tools in one response. It must not be used concurrently.
type Uses struct {
	Seal string // OpaqueBy of the parts: see SealedBy

	kept int
}

// Part returns the part of one use. blocks are the JSON that the provider requires back unchanged, if any. If one of
// them is invalid, or they have more than 192 KiB, or those of all parts of the response more than 384 KiB, Part drops
// all blocks of the use: models then get the content as text. Content is cut at 16 KiB, and arguments above 16 KiB are
// replaced by an object with their beginning.
func (u *Uses) Part(p state.Part, blocks ...json.RawMessage) state.Part {
	p.Type = state.PartProviderTool
	if p.Name != CodeExecution {
		p.Origin = state.OriginWeb
	}
	p.Content = shown(p.Content)
	if len(p.Arguments) > maxInput {
		text, err := json.Marshal(map[string]string{"clipped": strings.ToValidUTF8(p.Arguments[:maxInput/2], "")})
		if err != nil {
			text = []byte("{}") // texts always encode
		}
		p.Arguments = string(text)
	}
	if object, ok := state.CompactObject(p.Arguments); ok {
		p.Arguments = object
	}
	var all bytes.Buffer
	for _, b := range blocks {
		if len(b) == 0 || all.Len()+len(b) > maxBlock || !json.Valid(b) {
			return p
		}
		sep := byte(',')
		if all.Len() == 0 {
			sep = '['
		}
		all.WriteByte(sep)
		all.Write(b)
	}
	if u.kept+all.Len() > maxBlocks {
		return p
	}
	if len(blocks) == 0 {
		all.WriteByte('[')
	}
	all.WriteByte(']')
	u.kept += all.Len()
	p.Opaque, p.OpaqueBy = all.Bytes(), u.Seal
	return p
}

func shown(text string) string {
	if text = strings.ToValidUTF8(text, "�"); len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown-len(clippedText)], "") + clippedText
}

// Blocks returns the JSON that the provider requires back for a part, or nil.
func Blocks(p state.Part) []json.RawMessage {
	var blocks []json.RawMessage
	_ = json.Unmarshal(p.Opaque, &blocks) // nil then
	return blocks
}

// Hosting returns a copy of r that can be sent to provider. It turns a use of a provider's tool into text if another
// provider or model family made it, if its blocks were dropped, or if r does not offer that tool. intact reports that
// nothing became text; otherwise citations may refer to uses that are gone.
func (r Request) Hosting(provider string) (out Request, intact bool) {
	intact = true
	seal := SealedBy(provider, r.Model)
	for i, m := range r.Messages {
		if !slices.ContainsFunc(m.Parts, func(p state.Part) bool { return p.Type == state.PartProviderTool }) {
			continue
		}
		// A use and its result, if they are two parts, stay or become text together.
		gone := map[string]bool{}
		for _, p := range m.Parts {
			if p.Type == state.PartProviderTool && (p.OpaqueBy != seal || len(p.Opaque) == 0 || !r.hosts(p.Name)) {
				gone[p.ID] = true
			}
		}
		if len(gone) == 0 {
			continue
		}
		if intact {
			intact, r.Messages = false, slices.Clone(r.Messages)
		}
		parts := slices.Clone(m.Parts)
		for j, p := range parts {
			if p.Type == state.PartProviderTool && gone[p.ID] {
				parts[j] = p.AsText()
			}
		}
		r.Messages[i].Parts = parts
	}
	return r, intact
}

func (r Request) hosts(name string) bool {
	return slices.ContainsFunc(r.ProviderTools, func(t ProviderTool) bool { return t.Name == name })
}
