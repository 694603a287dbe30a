package modeltest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Gemini is the format of Google's streamGenerateContent.
func Gemini() Wire {
	return Wire{
		Read: readGemini,
		Unknown: []string{
			`{}`, `{"weatherReport":{"sky":1},"responseId":"x"}`, `{"candidates":[]}`, `{"usageMetadata":{"scentTokenCount":3}}`,
			`{"candidates":[{"index":0,"content":{"role":"model","parts":[{"hologram":{"x":[]}}]},"mood":3}]}`,
			`{"candidates":[{"index":1,"content":{"parts":[{"text":"another candidate"}]},"finishReason":"STOP"}]}`,
		},
		Errors: map[string]model.Class{
			`{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`:                                             model.Overloaded,
			`{"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}`:                                                                 model.Overloaded,
			`{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}`:                                       model.RateLimited,
			`{"error":{"code":400,"message":"The input token count (1200034) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`: model.PromptTooLong,
		},
	}
}

// geminiStops are the finish reasons of a response, and geminiFaults those of an error. Any other is an end.
var (
	geminiStops = map[string]model.Stop{
		"MAX_TOKENS": model.StopMaxOutputTokens, "SAFETY": model.StopRefusal, "PROHIBITED_CONTENT": model.StopRefusal,
		"RECITATION": model.StopContentFilter, "BLOCKLIST": model.StopContentFilter, "SPII": model.StopContentFilter,
	}
	geminiFaults = map[string]model.Class{
		"MALFORMED_FUNCTION_CALL": model.Overloaded, "UNEXPECTED_TOOL_CALL": model.Overloaded, "TOO_MANY_TOOL_CALLS": model.Overloaded,
		"OTHER": model.Overloaded, "LANGUAGE": model.InvalidRequest,
	}
)

// geminiCall is a call in flight: its values by their places, in order.
type geminiCall struct {
	Call
	over   bool
	leaves []leaf
}

type leaf struct {
	path  []string // names, and indexes in brackets
	value string   // JSON
	open  bool
}

var pathStep = regexp.MustCompile(`\.([^.\[]+)|\['((?:[^'\\]|\\.)*)'\]|(\[\d+\])`)

func readGemini(events []string) Outcome {
	type content struct {
		Parts []struct {
			Text         string
			Thought      bool
			FunctionCall *struct {
				ID, Name     string
				Args         json.RawMessage
				PartialArgs  []map[string]json.RawMessage
				WillContinue bool
			}
		}
	}
	var (
		o       Outcome
		calls   []*geminiCall
		finish  string
		blocked bool
		broken  bool
		totals  [5]int64
	)
	for _, data := range events {
		var e struct {
			Candidates []struct {
				Index        int
				Content      content
				FinishReason string
			}
			PromptFeedback struct{ BlockReason string }
			UsageMetadata  struct{ PromptTokenCount, ToolUsePromptTokenCount, CandidatesTokenCount, ThoughtsTokenCount, CachedContentTokenCount int64 }
			Error          *struct{ Status string }
		}
		if json.Unmarshal([]byte(data), &e) != nil {
			return unreadable
		}
		blocked = blocked || e.PromptFeedback.BlockReason != ""
		u := e.UsageMetadata
		for i, n := range []int64{u.PromptTokenCount, u.ToolUsePromptTokenCount, u.CandidatesTokenCount, u.ThoughtsTokenCount, u.CachedContentTokenCount} {
			if n > 0 {
				totals[i] = n
			}
		}
		o.Usage.InputTokens, o.Usage.OutputTokens, o.Usage.CacheReadTokens = totals[0]+totals[1], totals[2]+totals[3], totals[4]
		for _, c := range e.Candidates {
			if c.Index != 0 || finish != "" {
				continue
			}
			for _, p := range c.Content.Parts {
				switch {
				case p.FunctionCall == nil && p.Thought:
					o.Thinking += p.Text
				case p.FunctionCall == nil:
					o.Text += p.Text
				case p.FunctionCall.Name != "":
					again := slices.ContainsFunc(calls, func(c *geminiCall) bool { return p.FunctionCall.ID != "" && c.ID == p.FunctionCall.ID })
					if again {
						continue
					}
					broken = broken || len(calls) > 0 && !calls[len(calls)-1].over
					calls = append(calls, &geminiCall{Call: Call{p.FunctionCall.ID, p.FunctionCall.Name, string(p.FunctionCall.Args)}})
					fallthrough
				default:
					if len(calls) == 0 || calls[len(calls)-1].over {
						broken = broken || len(p.FunctionCall.PartialArgs) > 0
						continue
					}
					last := calls[len(calls)-1]
					for _, a := range p.FunctionCall.PartialArgs {
						broken = !last.set(a) || broken
					}
					if !p.FunctionCall.WillContinue {
						last.over = true
						broken = broken || slices.ContainsFunc(last.leaves, func(l leaf) bool { return l.open })
					}
				}
			}
			finish = c.FinishReason
		}
	}
	if n := len(calls); n > 0 && !calls[n-1].over {
		broken = broken || finish != "" && geminiStops[finish] == ""
		calls = calls[:n-1]
	}
	class, failed := geminiFaults[finish]
	switch {
	case finish == "" && blocked:
		return Outcome{Class: model.ContentFilter}
	case broken:
		return unreadable
	case finish == "":
		return Outcome{}
	case failed:
		return Outcome{Class: class}
	}
	o.Whole, o.Stop = true, geminiStops[finish]
	for _, c := range calls {
		if c.Arguments == "" {
			c.Arguments = render(c.leaves)
		}
		o.Calls = append(o.Calls, c.Call)
	}
	if o.Stop == "" {
		o.Stop = model.StopEnd
		if len(calls) > 0 {
			o.Stop = model.StopToolCalls
		}
	}
	return o
}

// set adds a value, or a piece of a text, and reports false if the place is taken.
func (c *geminiCall) set(a map[string]json.RawMessage) bool {
	l := leaf{open: string(a["willContinue"]) == "true", value: "null"}
	var path string
	_ = json.Unmarshal(a["jsonPath"], &path)
	for _, m := range pathStep.FindAllStringSubmatch(path, -1) {
		step := m[1] + m[3]
		if m[2] != "" {
			step = strings.ReplaceAll(m[2], `\'`, `'`)
		}
		l.path = append(l.path, step)
	}
	for _, kind := range []string{"stringValue", "numberValue", "boolValue"} {
		if v, ok := a[kind]; ok {
			l.value = string(v)
		}
	}
	for i, old := range c.leaves {
		if slices.Equal(old.path, l.path) {
			if !old.open {
				return false
			}
			var before, after string
			_ = json.Unmarshal([]byte(old.value), &before)
			_ = json.Unmarshal([]byte(l.value), &after)
			c.leaves[i].value, c.leaves[i].open = text2json(before+after), l.open
			return true
		}
	}
	c.leaves = append(c.leaves, l)
	return true
}

func text2json(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text
	return strings.TrimSpace(b.String())
}

// render writes values as one JSON value.
func render(leaves []leaf) string {
	if len(leaves) == 1 && len(leaves[0].path) == 0 {
		return leaves[0].value
	}
	var steps []string
	below := map[string][]leaf{}
	for _, l := range leaves {
		step := l.path[0]
		if below[step] == nil {
			steps = append(steps, step)
		}
		l.path = l.path[1:]
		below[step] = append(below[step], l)
	}
	ends, parts := "{}", []string{}
	for _, s := range steps {
		part := render(below[s])
		if strings.HasPrefix(s, "[") {
			ends = "[]"
		} else {
			part = text2json(s) + ":" + part
		}
		parts = append(parts, part)
	}
	return ends[:1] + strings.Join(parts, ",") + ends[1:]
}
