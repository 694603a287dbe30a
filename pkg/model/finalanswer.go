package model

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// FinalAnswer is the name of the tool through which a model answers if its provider cannot enforce
// an output schema together with tools. The name is reserved: tools of an agent must not have it.
const FinalAnswer = "turnpike_final_answer"

const finalAnswerIs = "Gives the final answer. Call it once and alone, when no other tool is needed any more; do not answer in another way."

// BesideTools reports whether the model may call tools and must also answer by a schema.
func (r Request) BesideTools() bool {
	return len(r.OutputSchema) > 0 && len(r.Tools)+len(r.ProviderTools) > 0 && !r.ToolChoice.Forced()
}

// AnswerByTool makes the call r with generate, which enforces no schema; r.BesideTools must be true. The model answers
// by a call of FinalAnswer, which AnswerByTool returns and streams as text. If r.ToolChoice allows no tools, the model
// must call FinalAnswer. Otherwise, with force, it must call FinalAnswer or another tool; without force, it may also
// answer with text, which AnswerByTool returns unchanged. If a response calls FinalAnswer and other tools, AnswerByTool
// streams the answer, but returns the response without it.
func AnswerByTool(
	ctx context.Context, r Request, onDelta func(Delta), force bool, generate func(context.Context, Request, func(Delta)) (Response, error),
) (Response, error) {
	schema, wrapped := argumentsOf(r.OutputSchema)
	r.Tools = append(slices.Clip(r.Tools), ToolSpec{Name: FinalAnswer, Description: finalAnswerIs, Schema: schema})
	r.OutputSchema = nil
	switch {
	case r.ToolChoice.Mode == ToolsNone:
		r.ToolChoice = ToolChoice{Tool: FinalAnswer}
	case force:
		r.ToolChoice = ToolChoice{Mode: ToolsAny}
	}
	resp, err := generate(ctx, r, answerDeltas(onDelta))
	resp.Parts = answered(resp.Parts, wrapped)
	if err == nil && resp.Stop == StopToolCalls && len((state.Message{Parts: resp.Parts}).Calls()) == 0 {
		resp.Stop = StopEnd
	}
	return resp, err
}

// answerKey is the argument that contains an answer which is not an object.
const answerKey = "answer"

// argumentsOf derives the schema of a tool's arguments from the schema of an output. It wraps a schema that is not of
// an object in one with the key answerKey. Definitions stay at the root, because references point there.
func argumentsOf(output json.RawMessage) (schema json.RawMessage, wrapped bool) {
	var root map[string]json.RawMessage
	if json.Unmarshal(output, &root) == nil && string(root["type"]) == `"object"` {
		return output, false
	}
	outer := map[string]any{"type": "object", "required": []string{answerKey}, "additionalProperties": false}
	for _, key := range []string{"$defs", "definitions"} {
		if defs, ok := root[key]; ok {
			outer[key] = defs
			delete(root, key)
		}
	}
	outer["properties"] = map[string]any{answerKey: root}
	if root == nil {
		outer["properties"] = map[string]any{answerKey: output} // true or false
	}
	b, err := json.Marshal(outer)
	if err != nil {
		return output, false
	}
	return b, true
}

// answered replaces a call of FinalAnswer, and all texts, with the answer as text. If the response has other calls, it
// drops the answer, because the model has not seen their results.
func answered(parts []state.Part, wrapped bool) []state.Part {
	final := slices.IndexFunc(parts, isFinal)
	if final < 0 {
		return parts
	}
	answer := state.Part{Type: state.PartText, Text: parts[final].Arguments, Opaque: parts[final].Opaque, OpaqueBy: parts[final].OpaqueBy}
	var inner map[string]json.RawMessage
	if wrapped && json.Unmarshal([]byte(answer.Text), &inner) == nil && inner[answerKey] != nil {
		answer.Text = string(inner[answerKey])
	}
	others := slices.DeleteFunc(slices.Clone(parts), isFinal)
	if slices.ContainsFunc(others, func(p state.Part) bool { return p.Type == state.PartToolCall }) {
		return others
	}
	others = slices.DeleteFunc(others, func(p state.Part) bool { return p.Type == state.PartText })
	return append(others, answer)
}

func isFinal(p state.Part) bool { return p.Type == state.PartToolCall && p.Name == FinalAnswer }

// answerDeltas streams the pieces of a call of FinalAnswer as text.
func answerDeltas(onDelta func(Delta)) func(Delta) {
	if onDelta == nil {
		return nil
	}
	final := -1
	return func(d Delta) {
		switch {
		case d.Name == FinalAnswer:
			final = d.Index
		case d.Name != "" && d.Index == final:
			final = -1
		}
		if d.Index == final && (d.Name != "" || d.CallID != "" || d.Arguments != "") {
			d = Delta{Text: d.Arguments}
			if d.Text == "" {
				return
			}
		}
		onDelta(d)
	}
}
