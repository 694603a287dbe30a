package openai

import (
	"encoding/json"
	"slices"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// leastOutput is the minimum limit of output tokens that the API accepts.
const leastOutput = 16

// responsesParams translates a request. OpenAI stores nothing of it: the run has the history, and the API returns
// reasoning encrypted.
func responsesParams(r model.Request) responses.ResponseNewParams {
	p := responses.ResponseNewParams{
		Model: r.Model, Store: param.NewOpt(false),
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input(r.Messages, r.Model)},
	}
	if modelname.Reasons(r.Model) {
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	if e := effort(r); e != "" {
		p.Reasoning = shared.ReasoningParam{Effort: e}
	}
	if r.MaxOutputTokens > 0 {
		p.MaxOutputTokens = param.NewOpt(max(leastOutput, r.MaxOutputTokens))
	}
	for _, t := range r.Tools {
		// Without strict, the API would make every property of the schema required.
		f := param.Override[responses.FunctionToolParam](struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description,omitempty"`
			Parameters  json.RawMessage `json:"parameters"`
			Strict      bool            `json:"strict"`
		}{"function", t.Name, t.Description, t.Schema, false})
		p.Tools = append(p.Tools, responses.ToolUnionParam{OfFunction: &f})
	}
	host(&p, r.ProviderTools)
	tuneResponses(&p, r)
	if len(r.OutputSchema) > 0 {
		f := param.Override[responses.ResponseFormatTextJSONSchemaConfigParam](struct {
			Type   string          `json:"type"`
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
			Strict bool            `json:"strict"`
		}{"json_schema", "output", r.OutputSchema, strict(r.OutputSchema)})
		p.Text.Format.OfJSONSchema = &f
	}
	return p
}

// input translates a transcript. A message becomes one item for each of its texts, calls, results and sealed thoughts,
// in their order.
func input(in []state.Message, name string) responses.ResponseInputParam {
	var items responses.ResponseInputParam
	for _, m := range in {
		switch m.Role {
		case state.RoleSystem:
			items = append(items, responses.ResponseInputItemParamOfMessage(m.Text(), responses.EasyInputMessageRoleSystem))
		case state.RoleUser:
			items = append(items, userItem(m))
		case state.RoleAssistant:
			items = append(items, assistantItems(m, name)...)
		case state.RoleTool:
			for _, p := range m.Parts {
				if p.Type == state.PartToolResult {
					items = append(items, resultItem(p))
				}
			}
		}
	}
	return items
}

func userItem(m state.Message) responses.ResponseInputItemUnionParam {
	var parts responses.ResponseInputMessageContentListParam
	listed := false
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartText:
			parts = append(parts, responses.ResponseInputContentParamOfInputText(p.Text))
		case state.PartImage:
			listed = true
			parts = append(parts, responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
				Detail: responses.ResponseInputImageDetailAuto, ImageURL: param.NewOpt(model.Picture(p.Image()).Link()),
			}})
		case state.PartFile:
			listed = true
			f := &responses.ResponseInputFileParam{}
			if p.URL != "" {
				f.FileURL = param.NewOpt(p.URL)
			} else {
				f.Filename, f.FileData = param.NewOpt(model.FileName(p)), param.NewOpt("data:"+p.MediaType+";base64,"+p.Data)
			}
			parts = append(parts, responses.ResponseInputContentUnionParam{OfInputFile: f})
		default:
		}
	}
	if listed {
		return responses.ResponseInputItemParamOfMessage(parts, responses.EasyInputMessageRoleUser)
	}
	return responses.ResponseInputItemParamOfMessage(m.Text(), responses.EasyInputMessageRoleUser)
}

// sealedReasoning is a reasoning item in the form that the API accepts: without its plain text, which some servers
// send.
type sealedReasoning struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Summary   json.RawMessage `json:"summary"`
	Encrypted string          `json:"encrypted_content"`
}

// sealedPhase marks a text as commentary or as the answer. Models that set these marks require them back.
type sealedPhase struct {
	Phase string `json:"phase"`
}

func messagePart(text, phase, name string) state.Part {
	p := state.Part{Type: state.PartText, Text: text}
	if phase != "" {
		if raw, err := json.Marshal(sealedPhase{phase}); err == nil {
			p.Opaque, p.OpaqueBy = raw, model.SealedBy(provider, name)
		}
	}
	return p
}

// unsealed returns a request without sealed thinking, and whether it had any.
func unsealed(r model.Request) (bare model.Request, had bool) {
	bare = r
	bare.Messages = slices.Clone(r.Messages)
	for i, m := range r.Messages {
		bare.Messages[i].Parts = slices.DeleteFunc(slices.Clone(m.Parts), func(p state.Part) bool {
			return p.Type == state.PartThinking && len(p.Opaque) > 0
		})
		had = had || len(bare.Messages[i].Parts) < len(m.Parts)
	}
	return bare, had
}

// assistantItems translates an assistant message. Thinking is sent only to the family that sealed it (A12), and only
// before an item that followed it: the API refuses a reasoning item at the end of a response.
func assistantItems(m state.Message, name string) []responses.ResponseInputItemUnionParam {
	var items, thoughts []responses.ResponseInputItemUnionParam
	follow := func(item responses.ResponseInputItemUnionParam) {
		items = append(append(items, thoughts...), item)
		thoughts = nil
	}
	seal := model.SealedBy(provider, name)
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartThinking:
			var s sealedReasoning
			if p.OpaqueBy == seal && json.Unmarshal(p.Opaque, &s) == nil && s.Encrypted != "" {
				item := param.Override[responses.ResponseReasoningItemParam](p.Opaque)
				thoughts = append(thoughts, responses.ResponseInputItemUnionParam{OfReasoning: &item})
			}
		case state.PartText:
			if p.Text == "" {
				continue
			}
			item := responses.ResponseInputItemParamOfMessage(p.Text, responses.EasyInputMessageRoleAssistant)
			var s sealedPhase
			if p.OpaqueBy == seal && json.Unmarshal(p.Opaque, &s) == nil {
				item.OfMessage.Phase = responses.EasyInputMessagePhase(s.Phase)
			}
			follow(item)
		case state.PartToolCall:
			follow(responses.ResponseInputItemParamOfFunctionCall(p.Arguments, callID(p.ID), p.Name))
		case state.PartProviderTool:
			for _, raw := range model.Blocks(p) {
				if item, ok := hostedItem(raw); ok {
					follow(item)
				}
			}
		default:
		}
	}
	return items
}

func resultItem(p state.Part) responses.ResponseInputItemUnionParam {
	out := &responses.ResponseInputItemFunctionCallOutputParam{CallID: param.NewOpt(callID(p.CallID))}
	images, remark := model.FilterImages(p.Images, imageTypes...)
	content := p.Content + remark
	if len(images)+len(p.Files) == 0 {
		out.Output.OfString = param.NewOpt(content)
		return responses.ResponseInputItemUnionParam{OfFunctionCallOutput: out}
	}
	var list responses.ResponseFunctionCallOutputItemListParam
	if content != "" {
		list = append(list, responses.ResponseFunctionCallOutputItemParamOfInputText(content))
	}
	for _, i := range images {
		list = append(list, responses.ResponseFunctionCallOutputItemUnionParam{
			OfInputImage: &responses.ResponseInputImageContentParam{ImageURL: param.NewOpt(i.Link())},
		})
	}
	for _, f := range p.Files {
		item := &responses.ResponseInputFileContentParam{}
		if f.URL != "" {
			item.FileURL = param.NewOpt(f.URL)
		} else {
			item.Filename, item.FileData = param.NewOpt(model.FileName(f)), param.NewOpt("data:"+f.MediaType+";base64,"+f.Data)
		}
		list = append(list, responses.ResponseFunctionCallOutputItemUnionParam{OfInputFile: item})
	}
	out.Output.OfResponseFunctionCallOutputItemArray = list
	return responses.ResponseInputItemUnionParam{OfFunctionCallOutput: out}
}
