package gemini

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"mime"
	"net/url"
	"path"
	"strings"

	sdk "google.golang.org/genai"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// question is a request in the form of the SDK.
type question struct {
	contents []*sdk.Content
	config   *sdk.GenerateContentConfig
	extra    []model.Field
}

func newQuestion(r model.Request) question {
	noContinuation := false // the SDK would answer a broken stream with another request
	q := question{config: &sdk.GenerateContentConfig{
		MaxOutputTokens:       int32(min(max(0, r.MaxOutputTokens), math.MaxInt32)),
		ThinkingConfig:        reason(r),
		AutomaticContinuation: &noContinuation,
	}}
	q.config.SystemInstruction, q.contents = messages(r.Messages, r.Model)
	if len(r.Tools) > 0 {
		var list []*sdk.FunctionDeclaration
		for _, t := range r.Tools {
			list = append(list, &sdk.FunctionDeclaration{Name: t.Name, Description: t.Description, ParametersJsonSchema: t.Schema})
		}
		q.config.Tools = []*sdk.Tool{{FunctionDeclarations: list}}
	}
	tune(q.config, r)
	host(q.config, r)
	q.extra = r.ExtraFields(provider)
	switch {
	case len(r.OutputSchema) == 0:
	case len(r.ProviderTools) > 0 && !three(r.Model): // the API refuses a schema together with its own tools
		if q.config.SystemInstruction == nil {
			q.config.SystemInstruction = &sdk.Content{}
		}
		q.config.SystemInstruction.Parts = append(q.config.SystemInstruction.Parts, &sdk.Part{
			Text: "Answer with one JSON value and nothing else, no prose and no code fence. It must match this JSON Schema:\n" + string(r.OutputSchema),
		})
	default:
		q.config.ResponseMIMEType, q.config.ResponseJsonSchema = "application/json", r.OutputSchema
	}
	return q
}

// exact restores arguments and schemas in the body that the SDK made: the SDK sorts properties, whose order matters to
// models, and converts numbers to floating point.
func (q question) exact(body map[string]any) map[string]any {
	body["contents"] = q.contents
	if q.config.Tools != nil {
		body["tools"] = q.config.Tools
	}
	if c, ok := body["generationConfig"].(map[string]any); ok && q.config.ResponseJsonSchema != nil {
		c["responseJsonSchema"] = q.config.ResponseJsonSchema
	}
	for _, f := range q.extra {
		set(body, strings.Split(f.Path, "."), f.Value)
	}
	return body
}

// set stores a value in nested objects, and creates missing ones.
func set(body map[string]any, path []string, value json.RawMessage) {
	if len(path) == 1 {
		body[path[0]] = value
		return
	}
	inner, ok := body[path[0]].(map[string]any)
	if !ok {
		inner = map[string]any{}
		body[path[0]] = inner
	}
	set(inner, path[1:], value)
}

// messages translates a transcript for a model with this name. System messages become the system instruction, which
// is nil if they have no text. Adjacent messages with the same role in the API (user and tool messages are both user)
// become one content, with tool results first: the API requires the results of a content's calls in the next content.
func messages(in []state.Message, name string) (system *sdk.Content, out []*sdk.Content) {
	var results, rest []*sdk.Part
	role := sdk.RoleUser
	flush := func() {
		if parts := append(results, rest...); len(parts) > 0 {
			out = append(out, &sdk.Content{Role: role, Parts: parts})
		}
		results, rest = nil, nil
	}
	names := map[string]string{} // of tools, by call
	for _, m := range in {
		if m.Role == state.RoleSystem {
			if text := m.Text(); strings.TrimSpace(text) != "" {
				if system == nil {
					system = &sdk.Content{}
				}
				system.Parts = append(system.Parts, &sdk.Part{Text: text})
			}
			continue
		}
		speaker := sdk.RoleUser
		if m.Role == state.RoleAssistant {
			speaker = sdk.RoleModel
		}
		answers, said := parts(m.Parts, name, names)
		if len(answers)+len(said) == 0 {
			continue // the API would refuse it; its neighbours become adjacent
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

// parts translates the parts of one message into tool results and other parts.
func parts(in []state.Part, name string, names map[string]string) (answers, said []*sdk.Part) {
	called := false
	for _, p := range in {
		signature := signature(p, name)
		switch p.Type {
		case state.PartText:
			if p.Text != "" {
				said = append(said, &sdk.Part{Text: p.Text, ThoughtSignature: signature})
			}
		case state.PartThinking:
			if p.Text != "" && signature != nil {
				said = append(said, &sdk.Part{Text: p.Text, Thought: true, ThoughtSignature: signature})
			}
		case state.PartToolCall:
			if signature == nil && !called && three(name) {
				signature = []byte(foreignSignature)
			}
			called = true
			names[p.ID] = p.Name
			said = append(said, &sdk.Part{FunctionCall: &sdk.FunctionCall{ID: p.ID, Name: p.Name, Args: input(p.Arguments)}, ThoughtSignature: signature})
		case state.PartToolResult:
			answer, beside := result(p, names[p.CallID], name)
			answers, said = append(answers, answer), append(said, beside...)
		case state.PartProviderTool:
			said = append(said, hostedParts(p)...)
		case state.PartImage:
			said = append(said, image(model.Picture(p.Image()))...)
		case state.PartFile:
			if model.FileKindOf(p.MediaType) == model.FileText && p.URL == "" {
				p.MediaType = "text/plain" // the API accepts few media types of texts
			}
			said = append(said, image(state.Image{MediaType: p.MediaType, Data: p.Data, URL: p.URL})...)
		}
	}
	return answers, said
}

// signature returns the signature that a part must be sent back with, or nil unless a model of the requested family
// produced the part (A12).
func signature(p state.Part, name string) []byte {
	var o opaque
	if p.OpaqueBy != model.SealedBy(provider, name) || json.Unmarshal(p.Opaque, &o) != nil || len(o.Signature) == 0 {
		return nil
	}
	return o.Signature
}

// input returns arguments as the object that the API requires. It wraps other arguments in an object; the call's result
// names the mistake.
func input(arguments string) map[string]any {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &fields) != nil || fields == nil {
		return map[string]any{"invalid_arguments": arguments}
	}
	object := make(map[string]any, len(fields))
	for key, v := range fields {
		object[key] = v
	}
	return object
}

// result translates a tool's result. Models before Gemini 3 accept no images and files inside a result, and none accept
// audio or URLs there, so they become separate parts. For models before Gemini 3 the text of a text file becomes part
// of the content instead. A remark in the content replaces images of other types than imageTypes.
func result(p state.Part, tool, name string) (answer *sdk.Part, beside []*sdk.Part) {
	if tool == "" {
		tool = "unknown"
	}
	images, remark := model.FilterImages(p.Images, imageTypes...)
	content := p.Content + remark
	media := make([]*sdk.Part, 0, len(images)+len(p.Files))
	for _, i := range images {
		media = append(media, image(i)...)
	}
	for _, f := range p.Files {
		// The API accepts few media types of texts.
		if model.FileKindOf(f.MediaType) == model.FileText && f.URL == "" {
			if f.MediaType = "text/plain"; !three(name) {
				content += "\n" + model.TextOfFile(f)
				continue
			}
		}
		media = append(media, image(state.Image{MediaType: f.MediaType, Data: f.Data, URL: f.URL})...)
	}
	r := &sdk.FunctionResponse{ID: p.CallID, Name: tool, Response: map[string]any{"output": content}}
	if p.IsError {
		if strings.TrimSpace(content) == "" {
			content = "The tool failed without a message."
		}
		r.Response = map[string]any{"error": content}
	}
	for _, part := range media {
		if part.InlineData != nil && three(name) && model.FileKindOf(part.InlineData.MIMEType) != model.FileAudio {
			r.Parts = append(r.Parts, &sdk.FunctionResponsePart{InlineData: &sdk.FunctionResponseBlob{
				Data: part.InlineData.Data, MIMEType: part.InlineData.MIMEType,
			}})
		} else {
			beside = append(beside, part)
		}
	}
	return &sdk.Part{FunctionResponse: r}, beside
}

// imageTypes are the media types of images that the API accepts.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

// image translates an image or a file: one part, or none if its data cannot be decoded.
func image(i state.Image) []*sdk.Part {
	if i.URL != "" {
		kind := i.MediaType
		if u, err := url.Parse(i.URL); kind == "" && err == nil {
			kind, _, _ = strings.Cut(mime.TypeByExtension(path.Ext(u.Path)), ";")
		}
		return []*sdk.Part{{FileData: &sdk.FileData{FileURI: i.URL, MIMEType: kind}}}
	}
	data, err := base64.StdEncoding.DecodeString(i.Data)
	if err != nil || len(data) == 0 {
		return nil
	}
	return []*sdk.Part{{InlineData: &sdk.Blob{Data: data, MIMEType: i.MediaType}}}
}
