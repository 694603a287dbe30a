package anthropic

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// defaultMaxTokens is the limit of a request whose agent sets none: the API requires one.
const defaultMaxTokens = 8192

func params(r model.Request) (sdk.MessageNewParams, model.Cache) {
	p := sdk.MessageNewParams{Model: r.Model, MaxTokens: r.MaxOutputTokens}
	p.System, p.Messages = messages(r.Messages, r.Model)
	p.System = apart(p.System, r.Shared)
	reason(&p, r.Reasoning)
	if p.MaxTokens <= 0 {
		p.MaxTokens = defaultMaxTokens
	}
	for _, t := range r.Tools {
		tool := &sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](t.Schema)}
		if t.Description != "" {
			tool.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: tool})
	}
	p.Tools = append(p.Tools, hosted(r.ProviderTools)...)
	tune(&p, r)
	switch {
	case len(r.OutputSchema) == 0:
	case enforced(r):
		p.OutputConfig.Format = param.Override[sdk.JSONOutputFormatParam](struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		}{"json_schema", r.OutputSchema})
	default:
		p.System = append(p.System, sdk.TextBlockParam{
			Text: "Answer with one JSON value and nothing else, no prose and no code fence. It must match this JSON Schema:\n" + string(r.OutputSchema),
		})
	}
	return p, cache(&p, r)
}

// apart splits the first block after the bytes that other runs share, so that the shared part can be cached by itself.
// It does not if one of the parts would be blank, which the API refuses.
func apart(system []sdk.TextBlockParam, shared int) []sdk.TextBlockParam {
	if len(system) == 0 || shared <= 0 || shared >= len(system[0].Text) {
		return system
	}
	first, rest := system[0].Text[:shared], system[0].Text[shared:]
	if strings.TrimSpace(first) == "" || strings.TrimSpace(rest) == "" {
		return system
	}
	return append([]sdk.TextBlockParam{{Text: first}, {Text: rest}}, system[1:]...)
}

// messages translates a transcript. System messages become the system prompt. Adjacent messages of the same role become
// one, with tool results first: the API requires all results of a message's calls at the start of the next message.
func messages(in []state.Message, name string) (system []sdk.TextBlockParam, out []sdk.MessageParam) {
	var results, rest []sdk.ContentBlockParamUnion
	role := sdk.MessageParamRoleUser
	flush := func() {
		if blocks := append(results, rest...); len(blocks) > 0 {
			out = append(out, sdk.MessageParam{Role: role, Content: blocks})
		}
		results, rest = nil, nil
	}
	for _, m := range in {
		if m.Role == state.RoleSystem {
			if text := m.Text(); strings.TrimSpace(text) != "" {
				system = append(system, sdk.TextBlockParam{Text: text})
			}
			continue
		}
		var answers, said []sdk.ContentBlockParamUnion
		for _, p := range m.Parts {
			if p.Type == state.PartProviderTool {
				said = append(said, hostedBlocks(p)...)
				continue
			}
			block, ok := block(p, name)
			switch {
			case !ok:
			case p.Type == state.PartToolResult:
				answers = append(answers, block)
				if p.IsError { // the result of an error may have only text
					shown, _ := model.FilterImages(p.Images, imageTypes...)
					for _, i := range shown {
						said = append(said, image(i))
					}
					for _, f := range p.Files {
						said = append(said, file(f))
					}
				}
			default:
				said = append(said, block)
			}
		}
		if len(answers)+len(said) == 0 {
			continue // the API would refuse it; its neighbours become adjacent
		}
		speaker := sdk.MessageParamRoleUser
		if m.Role == state.RoleAssistant {
			speaker = sdk.MessageParamRoleAssistant
		}
		if speaker != role {
			flush()
			role = speaker
		}
		results, rest = append(results, answers...), append(rest, said...)
	}
	flush()
	return system, out
}

// block translates a part. It reports false for a part that the API would refuse, or that another provider sealed.
func block(p state.Part, name string) (sdk.ContentBlockParamUnion, bool) {
	switch p.Type {
	case state.PartText:
		text := sdk.NewTextBlock(p.Text)
		text.OfText.Citations = citations(p, name)
		return text, strings.TrimSpace(p.Text) != ""
	case state.PartThinking:
		return thinking(p, name)
	case state.PartToolCall:
		return sdk.NewToolUseBlock(callID(p.ID), input(p.Arguments), p.Name), true
	case state.PartToolResult:
		shown, remark := model.FilterImages(p.Images, imageTypes...)
		content := p.Content + remark
		if p.IsError && strings.TrimSpace(content) == "" {
			content = "The tool failed without a message." // an error must say something
		}
		result := &sdk.ToolResultBlockParam{ToolUseID: callID(p.CallID), IsError: param.NewOpt(p.IsError)}
		if content != "" {
			result.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: content}}}
		}
		if p.IsError {
			shown, p.Files = nil, nil
		}
		for _, i := range shown {
			result.Content = append(result.Content, sdk.ToolResultBlockParamContentUnion{OfImage: image(i).OfImage})
		}
		for _, f := range p.Files {
			result.Content = append(result.Content, sdk.ToolResultBlockParamContentUnion{OfDocument: file(f).OfDocument})
		}
		return sdk.ContentBlockParamUnion{OfToolResult: result}, true
	case state.PartImage:
		return image(model.Picture(p.Image())), true
	case state.PartFile:
		return file(p), true
	default:
		return sdk.ContentBlockParamUnion{}, false
	}
}

// imageTypes are the media types of images that the API accepts.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func image(i state.Image) sdk.ContentBlockParamUnion {
	if i.URL != "" {
		return sdk.NewImageBlock(sdk.URLImageSourceParam{URL: i.URL})
	}
	return sdk.NewImageBlockBase64(i.MediaType, i.Data)
}

// file translates a PDF or a text.
func file(p state.Part) sdk.ContentBlockParamUnion {
	doc := &sdk.DocumentBlockParam{}
	if p.Name != "" {
		doc.Title = param.NewOpt(p.Name)
	}
	switch {
	case p.URL != "":
		doc.Source.OfURL = &sdk.URLPDFSourceParam{URL: p.URL}
	case model.FileKindOf(p.MediaType) == model.FilePDF:
		doc.Source.OfBase64 = &sdk.Base64PDFSourceParam{Data: p.Data}
	default:
		doc.Source.OfText = &sdk.PlainTextSourceParam{Data: p.Text}
	}
	return sdk.ContentBlockParamUnion{OfDocument: doc}
}

// opaque is the content that a thinking block must be sent back with.
type opaque struct {
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// thinking translates a thinking part. It reports false for a part that lacks the content which it must be sent back
// with, and for one of another family of models than the requested one (A12). A part of an imported transcript may name
// only the provider: it counts as one of the requested family.
func thinking(p state.Part, name string) (sdk.ContentBlockParamUnion, bool) {
	var o opaque
	if p.OpaqueBy != provider && p.OpaqueBy != model.SealedBy(provider, name) || json.Unmarshal(p.Opaque, &o) != nil {
		return sdk.ContentBlockParamUnion{}, false
	}
	if o.Redacted != "" {
		return sdk.NewRedactedThinkingBlock(o.Redacted), true
	}
	return sdk.NewThinkingBlock(o.Signature, p.Text), o.Signature != ""
}

// input returns arguments as the JSON object that the API requires. It wraps other arguments in an object; the call's
// result names the mistake.
func input(arguments string) any {
	if object, ok := state.CompactObject(arguments); ok {
		return json.RawMessage(object)
	}
	return map[string]string{"invalid_arguments": arguments}
}

var validID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// callID returns id, or a hash of it if the API would refuse an id of another provider.
func callID(id string) string {
	if validID.MatchString(id) {
		return id
	}
	h := fnv.New128a()
	_, _ = h.Write([]byte(id)) // cannot fail
	return fmt.Sprintf("call_%x", h.Sum(nil))
}

// unsupported has the schema keywords that the API refuses in an output format.
var unsupported = map[string]bool{
	"minimum": true, "maximum": true, "exclusiveMinimum": true, "exclusiveMaximum": true, "multipleOf": true,
	"minLength": true, "maxLength": true, "pattern": true, "minItems": true, "maxItems": true, "uniqueItems": true,
	"oneOf": true, "not": true, "if": true, "patternProperties": true, "minProperties": true, "maxProperties": true, "$ref": true,
}

// enforced reports whether the API enforces the output schema, also if the request has tools.
func enforced(r model.Request) bool { return formats(r.Model) && enforceable(r.OutputSchema) }

// enforceable reports whether the API can enforce a schema: whether every object is closed and no keyword is
// unsupported.
func enforceable(schema json.RawMessage) bool {
	var v map[string]any
	return json.Unmarshal(schema, &v) == nil && closed(v)
}

func closed(schema map[string]any) bool {
	if schema["type"] == "object" && schema["additionalProperties"] != false {
		return false
	}
	for key, v := range schema {
		if unsupported[key] {
			return false
		}
		switch key {
		case "properties", "$defs", "definitions":
			named, ok := v.(map[string]any)
			if !ok || !allClosed(values(named)) {
				return false
			}
		case "items":
			if !allClosed([]any{v}) {
				return false
			}
		case "anyOf", "allOf":
			list, ok := v.([]any)
			if !ok || !allClosed(list) {
				return false
			}
		}
	}
	return true
}

func allClosed(schemas []any) bool {
	for _, s := range schemas {
		object, ok := s.(map[string]any)
		if !ok || !closed(object) {
			return false
		}
	}
	return true
}

func values(m map[string]any) []any {
	out := make([]any, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
