package mockmodel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// gemini is the format of generateContent and streamGenerateContent. The URL has the model and the method.
type gemini struct {
	model  string
	stream bool
}

// serveGemini serves the path models/NAME:METHOD. It does not serve streams other than event streams.
func (s *Server) serveGemini(w http.ResponseWriter, r *http.Request) {
	name, method, _ := cutLast(r.PathValue("call"), ":")
	f := gemini{model: name, stream: method == "streamGenerateContent"}
	switch {
	case method != "generateContent" && !f.stream:
		f.refuse(w, problem{http.StatusNotFound, "not_found", "Method " + method + " is not served here: ask for generateContent or streamGenerateContent"})
	case f.stream && r.URL.Query().Get("alt") != "sse":
		f.refuse(w, problem{http.StatusBadRequest, "", "Streams are served with alt=sse only"})
	default:
		s.serve(w, r, f)
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (gemini) key(h http.Header) string { return h.Get("X-Goog-Api-Key") }

// geminiContent has the fields of a content in a request that the server reads.
type geminiContent struct {
	Role  string `json:"role"`
	Parts []struct {
		Text         string `json:"text"`
		FunctionCall *struct {
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		}
		FunctionResponse *struct {
			Name     string          `json:"name"`
			Response json.RawMessage `json:"response"`
		}
	} `json:"parts"`
}

func (c geminiContent) text() string {
	var texts []string
	for _, p := range c.Parts {
		switch {
		case p.FunctionCall != nil:
			texts = append(texts, p.FunctionCall.Name+string(p.FunctionCall.Args))
		case p.FunctionResponse != nil:
			texts = append(texts, string(p.FunctionResponse.Response))
		case p.Text != "":
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func (f gemini) parse(body []byte) (query, error) {
	var r struct {
		SystemInstruction geminiContent
		Contents          []geminiContent `json:"contents"`
		Labels            struct {
			Conversation ID `json:"conversation"`
		} `json:"labels"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return query{}, err
	}
	q := query{model: f.model, conversation: string(r.Labels.Conversation), tokens: int64(len(body)/4) + 1, stream: f.stream}
	var text strings.Builder
	first := r.SystemInstruction.text()
	if first != "" {
		fmt.Fprintf(&text, "system: %s\n", first)
	}
	for _, c := range r.Contents {
		role := c.Role
		if role == "model" {
			role = "assistant"
			q.assistants++
		}
		fmt.Fprintf(&text, "%s: %s\n", role, c.text())
		if q.assistants == 0 {
			first += "\x00" + c.text()
		}
	}
	q.text, q.key = text.String(), hashKey(f.model, first)
	return q, nil
}

func (gemini) finish(r reply) string {
	switch r.Stop {
	case model.StopMaxOutputTokens:
		return "MAX_TOKENS"
	case model.StopRefusal:
		return "SAFETY"
	case model.StopContentFilter:
		return "RECITATION"
	default:
		return "STOP" // for tool calls too
	}
}

// count returns the usage, with the output split into thoughts and the rest.
func (gemini) count(r reply) object {
	u := r.usage
	thoughts := min(u.OutputTokens, int64(len(r.Thinking)/4))
	c := object{
		"promptTokenCount": u.InputTokens, "candidatesTokenCount": u.OutputTokens - thoughts,
		"totalTokenCount":     u.InputTokens + u.OutputTokens,
		"promptTokensDetails": []object{{"modality": "TEXT", "tokenCount": u.InputTokens}},
	}
	if thoughts > 0 {
		c["thoughtsTokenCount"] = thoughts
	}
	if u.CacheReadTokens > 0 {
		c["cachedContentTokenCount"] = u.CacheReadTokens
	}
	return c
}

// part is a part of a response. The arguments of a call are JSON in this format, and an encoder would remove the spaces
// of the model: they are inserted after encoding.
type part struct {
	fields object
	args   string
}

const argsHere = `"\u0001arguments\u0001"`

// parts returns the parts of a response, with texts in pieces if it is streamed. The first call has the signature, or
// else the last text.
func (f gemini) parts(r reply) []part {
	pieces := func(text string) []string {
		if f.stream {
			return r.pieces(text)
		}
		return []string{text}
	}
	var out []part
	for _, piece := range pieces(r.Thinking) {
		if piece != "" {
			out = append(out, part{fields: object{"text": piece, "thought": true}})
		}
	}
	out = append(out, f.hosted(r)...)
	var last object
	for _, piece := range pieces(r.text) {
		if piece != "" {
			last = object{"text": piece}
			out = append(out, part{fields: last})
		}
	}
	for i, c := range r.calls {
		call := object{"id": c.id, "name": c.name, "args": "\x01arguments\x01"}
		p := part{fields: object{"functionCall": call}, args: c.args}
		if _, ok := state.CompactObject(c.args); !ok {
			p.args = "{}"
			if r.Stop == model.StopMaxOutputTokens {
				delete(call, "args") // the call begins and never ends
				call["willContinue"] = true
			}
		}
		if i == 0 {
			last = p.fields
		}
		out = append(out, p)
	}
	if r.Thinking != "" && last != nil {
		last["thoughtSignature"] = signature(r.Thinking)
	}
	return out
}

// response returns the JSON of a response, or of a piece of one.
func (f gemini) response(r reply, parts []part, finish string) string {
	fields, args := []object{}, []string{}
	for _, p := range parts {
		fields = append(fields, p.fields)
		if p.args != "" {
			args = append(args, p.args)
		}
	}
	candidate := object{"content": object{"role": "model", "parts": fields}, "index": 0}
	count := object{"promptTokenCount": r.usage.InputTokens}
	if finish != "" {
		candidate["finishReason"], count = finish, f.count(r)
		f.ground(candidate, r)
	}
	text := encode(object{"candidates": []object{candidate}, "usageMetadata": count, "modelVersion": f.model, "responseId": r.id})
	for _, a := range args {
		text = strings.Replace(text, argsHere, strings.NewReplacer("\n", " ", "\r", " ").Replace(a), 1)
	}
	return text
}

func (f gemini) whole(r reply, _ query) any {
	return json.RawMessage(f.response(r, f.parts(r), f.finish(r)))
}

func (f gemini) events(r reply, _ query) (body, end []event) {
	for _, p := range f.parts(r) {
		body = append(body, event{data: f.response(r, []part{p}, "")})
	}
	return body, []event{{data: f.response(r, []part{{fields: object{"text": ""}}}, f.finish(r))}}
}

func (f gemini) refuse(w http.ResponseWriter, p problem) {
	status := "INVALID_ARGUMENT"
	switch p.kind {
	case "not_found":
		status = "NOT_FOUND"
	case "script_exhausted":
		status = p.kind
	}
	geminiError(w, p.status, status, p.message)
}

func geminiError(w http.ResponseWriter, code int, status, message string, details ...object) {
	e := object{"code": code, "message": message, "status": status}
	if len(details) > 0 {
		e["details"] = details
	}
	writeJSON(w, code, object{"error": e})
}

const rpc = "type.googleapis.com/google.rpc."

func (f gemini) fail(w http.ResponseWriter, class model.Class, retryAfter time.Duration) {
	var details []object
	if retryAfter > 0 {
		details = append(details, object{"@type": rpc + "RetryInfo", "retryDelay": fmt.Sprintf("%gs", retryAfter.Seconds())})
	}
	switch class {
	case model.RateLimited:
		text := "Resource has been exhausted (e.g. check quota)."
		if retryAfter > 0 {
			text = fmt.Sprintf("You exceeded your current quota, please check your plan and billing details. \n* Quota exceeded for metric: "+
				"generativelanguage.googleapis.com/generate_content_paid_tier_input_token_count, limit: 4000000\nPlease retry in %gs.", retryAfter.Seconds())
			details = append(details, object{"@type": rpc + "QuotaFailure", "violations": []object{{"quotaId": "GenerateContentPaidTierInputTokensPerModelPerMinute"}}})
		}
		geminiError(w, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", text, details...)
	case model.Overloaded:
		geminiError(w, http.StatusServiceUnavailable, "UNAVAILABLE", "The model is overloaded. Please try again later.", details...)
	case model.Quota:
		geminiError(w, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details.",
			object{"@type": rpc + "QuotaFailure", "violations": []object{{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}}})
	case model.PromptTooLong:
		geminiError(w, http.StatusBadRequest, "INVALID_ARGUMENT", "The input token count (1200034) exceeds the maximum number of tokens allowed (1048576).")
	case model.Auth:
		geminiError(w, http.StatusBadRequest, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.",
			object{"@type": rpc + "ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"})
	case model.ContentFilter:
		blocked := object{"promptFeedback": object{"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": f.model}
		if !f.stream {
			writeJSON(w, http.StatusOK, blocked)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, event{data: blocked}.encode())
	case model.Timeout:
		geminiError(w, http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", "The request timed out. Please try again.")
	default:
		geminiError(w, http.StatusBadRequest, "INVALID_ARGUMENT", "Invalid value at 'contents[0].role': expected user or model.")
	}
}
