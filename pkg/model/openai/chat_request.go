package openai

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// chatParams translates a request. official reports that OpenAI or Azure receives it: their newer models accept only
// max_completion_tokens, and some other servers only max_tokens.
func chatParams(r model.Request, official bool) sdk.ChatCompletionNewParams {
	p := sdk.ChatCompletionNewParams{
		Model:         r.Model,
		Messages:      messages(r.Messages, model.SealedBy(provider, r.Model)),
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	switch {
	case r.MaxOutputTokens > 0 && official:
		p.MaxCompletionTokens = param.NewOpt(r.MaxOutputTokens)
	case r.MaxOutputTokens > 0:
		p.MaxTokens = param.NewOpt(r.MaxOutputTokens)
	}
	if e := effort(r); e != "" {
		p.ReasoningEffort = e
	}
	for _, t := range r.Tools {
		p.Tools = append(p.Tools, tool(t))
	}
	tuneChat(&p, r)
	if len(r.OutputSchema) > 0 {
		p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
				Name: "output", Schema: r.OutputSchema, Strict: param.NewOpt(strict(r.OutputSchema)),
			},
		}
	}
	return p
}

// tool translates a tool. It keeps the order of properties in the schema, which matters to models.
func tool(t model.ToolSpec) sdk.ChatCompletionToolUnionParam {
	return sdk.ChatCompletionFunctionTool(param.Override[shared.FunctionDefinitionParam](struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}{t.Name, t.Description, t.Schema}))
}

func messages(in []state.Message, seal string) []sdk.ChatCompletionMessageParamUnion {
	out := make([]sdk.ChatCompletionMessageParamUnion, 0, len(in))
	// Reasoning belongs to the tool calls after the last user message: servers require it there, and refuse or ignore
	// it elsewhere.
	current := 1 + lastUser(in)
	var shown []sdk.ChatCompletionContentPartUnionParam // images and files of results
	for i, m := range in {
		switch m.Role {
		case state.RoleSystem:
			out = append(out, sdk.SystemMessage(m.Text()))
		case state.RoleUser:
			out = append(out, user(m))
		case state.RoleAssistant:
			out = append(out, assistant(m, i >= current, seal))
		case state.RoleTool:
			for _, p := range m.Parts {
				if p.Type == state.PartToolResult {
					images, content := model.FilterImages(p.Images, imageTypes...)
					content = p.Content + content
					var files []sdk.ChatCompletionContentPartUnionParam
					for _, f := range p.Files {
						if model.FileKindOf(f.MediaType) == model.FileText {
							content += "\n" + model.TextOfFile(f)
						} else {
							files = append(files, file(f))
						}
					}
					out = append(out, sdk.ToolMessage(content, callID(p.CallID)))
					shown = append(shown, pictures(p.CallID, images)...)
					shown = append(shown, filesOf(p.CallID, files)...)
				}
			}
		}
		if last := i+1 == len(in) || in[i+1].Role != state.RoleTool; last && len(shown) > 0 {
			out = append(out, sdk.UserMessage(shown))
			shown = nil
		}
	}
	return out
}

// pictures returns the images in a tool's result, below a text that names the call. A tool message accepts only text,
// so the images follow all results in a user message.
func pictures(call string, images []state.Image) []sdk.ChatCompletionContentPartUnionParam {
	if len(images) == 0 {
		return nil
	}
	parts := []sdk.ChatCompletionContentPartUnionParam{sdk.TextContentPart("Images in the result of tool call " + callID(call) + ":")}
	for _, i := range images {
		parts = append(parts, picture(i))
	}
	return parts
}

// filesOf returns the files in a tool's result, below a text that names the call, like pictures.
func filesOf(call string, files []sdk.ChatCompletionContentPartUnionParam) []sdk.ChatCompletionContentPartUnionParam {
	if len(files) == 0 {
		return nil
	}
	return append([]sdk.ChatCompletionContentPartUnionParam{sdk.TextContentPart("Files in the result of tool call " + callID(call) + ":")}, files...)
}

// imageTypes are the media types of images that OpenAI accepts.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func picture(i state.Image) sdk.ChatCompletionContentPartUnionParam {
	return sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: i.Link()})
}

func lastUser(in []state.Message) int {
	for i, m := range slices.Backward(in) {
		if m.Role == state.RoleUser {
			return i
		}
	}
	return -1
}

func user(m state.Message) sdk.ChatCompletionMessageParamUnion {
	if !slices.ContainsFunc(m.Parts, func(p state.Part) bool { return p.Type == state.PartImage || p.Type == state.PartFile }) {
		return sdk.UserMessage(m.Text())
	}
	var parts []sdk.ChatCompletionContentPartUnionParam
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartText:
			parts = append(parts, sdk.TextContentPart(p.Text))
		case state.PartImage:
			parts = append(parts, picture(model.Picture(p.Image())))
		case state.PartFile:
			parts = append(parts, file(p))
		default:
		}
	}
	return sdk.UserMessage(parts)
}

// file translates a PDF, an audio file or a text with data. The API has no files of texts, so they become text.
func file(p state.Part) sdk.ChatCompletionContentPartUnionParam {
	switch model.FileKindOf(p.MediaType) {
	case model.FileAudio:
		format := "wav"
		if p.MediaType == "audio/mpeg" {
			format = "mp3"
		}
		return sdk.InputAudioContentPart(sdk.ChatCompletionContentPartInputAudioInputAudioParam{Data: p.Data, Format: format})
	case model.FileText:
		return sdk.TextContentPart(model.TextOfFile(p))
	default:
		return sdk.FileContentPart(sdk.ChatCompletionContentPartFileFileParam{
			Filename: param.NewOpt(model.FileName(p)), FileData: param.NewOpt("data:" + p.MediaType + ";base64," + p.Data),
		})
	}
}

func assistant(m state.Message, current bool, seal string) sdk.ChatCompletionMessageParamUnion {
	a := &sdk.ChatCompletionAssistantMessageParam{}
	var reasoning strings.Builder
	listed := false
	for _, p := range m.Parts {
		switch {
		case p.Type == state.PartToolCall:
			f := &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID:       callID(p.ID),
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: p.Name, Arguments: p.Arguments},
			}
			if p.OpaqueBy == seal && len(p.Opaque) > 0 {
				f.SetExtraFields(map[string]any{extraField: p.Opaque})
			}
			a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: f})
		case p.Type == state.PartThinking && p.OpaqueBy == seal && (string(p.Opaque) == reasoningSeal || string(p.Opaque) == listSeal):
			listed = string(p.Opaque) == listSeal
			reasoning.WriteString(p.Text)
		}
	}
	if text := m.Text(); text != "" || len(a.ToolCalls) == 0 {
		a.Content.OfString = param.NewOpt(text)
	}
	switch {
	case !current || len(a.ToolCalls) == 0 || reasoning.Len() == 0:
	case listed:
		a.Content.OfString = param.Opt[string]{}
		a.SetExtraFields(map[string]any{"content": chunked(reasoning.String(), m.Text())})
	default:
		a.SetExtraFields(map[string]any{reasoningField: reasoning.String()})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: a}
}

// chunked returns thinking and text as the list in which they arrived.
func chunked(thinking, text string) []map[string]any {
	list := []map[string]any{{"type": "thinking", "thinking": []map[string]any{{"type": "text", "text": thinking}}}}
	if text != "" {
		list = append(list, map[string]any{"type": "text", "text": text})
	}
	return list
}

// reasoningSeal and listSeal mark reasoning text that arrived in a field of its own or in the list of the content. The
// adapter sends it back, in reasoningField or in such a list, to models of the same family. Content that the Responses
// API encrypted has another seal.
const (
	reasoningSeal = `"` + reasoningField + `"`
	listSeal      = `"content"`
)

// longestCallID is the maximum length of a call id at OpenAI.
const longestCallID = 40

// callID returns id, or a hash of it if it is too long, as ids of other providers may be.
func callID(id string) string {
	if len(id) <= longestCallID {
		return id
	}
	h := fnv.New128a()
	_, _ = h.Write([]byte(id)) // cannot fail
	return fmt.Sprintf("call_%x", h.Sum(nil))
}

// official reports whether a base URL is OpenAI's or Azure's own.
func official(u *url.URL) bool {
	h := u.Hostname()
	return strings.HasSuffix(h, ".openai.com") || strings.HasSuffix(h, ".azure.com")
}

// notStrict are the keywords of JSON Schema with which the API refuses to enforce a schema.
var notStrict = regexp.MustCompile(`"(oneOf|allOf|not|if|then|else|dependentRequired|dependentSchemas|patternProperties)"\s*:`)

// strict reports whether a request asks OpenAI to enforce a schema: its root is an object, each object in it is closed
// and requires all of its properties, and no key in it is a keyword of notStrict, not even the name of a property. The
// API refuses a request to enforce a schema that it cannot enforce. The worker validates the output in any case.
func strict(schema json.RawMessage) bool {
	var v any
	if json.Unmarshal(schema, &v) != nil {
		return false
	}
	root, ok := v.(map[string]any)
	return ok && root["type"] == "object" && strictNode(v) && !notStrict.Match(schema)
}

// strictNode reports whether every object is closed and requires every property.
func strictNode(v any) bool {
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !strictNode(e) })
	case map[string]any:
		properties, isObject := v["properties"].(map[string]any)
		if isObject || v["type"] == "object" {
			required, _ := v["required"].([]any)
			if v["additionalProperties"] != false || len(required) != len(properties) {
				return false
			}
		}
		for _, e := range v {
			if !strictNode(e) {
				return false
			}
		}
	}
	return true
}
