package gemini_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// From Gemini 3 on, Google's tools work next to functions: their calls arrive as parts with signatures, and go
// back unchanged.
func TestHostedBesideFunctions(t *testing.T) {
	t.Parallel()
	const answer = `{"candidates":[{"content":{"role":"model","parts":[
		{"toolCall":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["tea"]}},"thoughtSignature":"c2ln"},
		{"toolResponse":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","response":{"found":"Tea"}}},
		{"functionCall":{"id":"f1","name":"brew","args":{}},"thoughtSignature":"c2lnMg=="}]},"finishReason":"STOP","index":0,
		"groundingMetadata":{"webSearchQueries":["tea","green tea"]}}],"modelVersion":"gemini-3-flash"}`
	var body []byte
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", strings.NewReplacer("\n", "", "\t", "").Replace(answer))
	}))
	t.Cleanup(h.Close)
	r := model.Request{
		Model: "gemini-3-flash", BaseURL: h.URL, Messages: []state.Message{state.UserText("hi")}, ProviderTools: []model.ProviderTool{{Name: model.WebSearch}, {Name: model.WebFetch}},
		Tools: []model.ToolSpec{{Name: "brew", Schema: json.RawMessage(`{"type":"object"}`)}},
	}
	p := gemini.New(gemini.Config{})
	resp, err := p.Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"includeServerSideToolInvocations":true`, `{"googleSearch":{}}`, `{"urlContext":{}}`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the request lacks %s: %s", want, body)
		}
	}
	if len(resp.Parts) != 2 || resp.Parts[0].Name != model.WebSearch || resp.Parts[0].Content != `{"found":"Tea"}` || resp.Parts[1].Type != state.PartToolCall || resp.Stop != model.StopToolCalls {
		t.Errorf("parts %+v", resp.Parts)
	}
	if resp.Usage.WebSearches != 2 {
		t.Errorf("usage %+v", resp.Usage)
	}
	r.Messages = append(r.Messages, state.Message{Role: state.RoleAssistant, Parts: resp.Parts}, state.ToolResult("f1", "brewed", false))
	if _, err := p.Generate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"toolCall":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["tea"]}}`, `"thoughtSignature":"c2ln"`, `"toolResponse":{"id":"g1"`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the next request lacks %s: %s", want, body)
		}
	}
	// Before Gemini 3 the API refuses a schema, which a submission may bring, together with its own tools.
	r = model.Request{Model: "gemini-2.5-flash", BaseURL: h.URL, Messages: r.Messages[:1], ProviderTools: r.ProviderTools, OutputSchema: json.RawMessage(`{"type":"object"}`)}
	if _, err := p.Generate(t.Context(), r, nil); err != nil || strings.Contains(string(body), "responseJsonSchema") || !strings.Contains(string(body), "It must match this JSON Schema") {
		t.Errorf("%v: the request is %s", err, body)
	}
}

// hosting returns a request for a model with all tools that Google runs.
func hosting(name, base string, messages ...state.Message) model.Request {
	return model.Request{
		Model: name, BaseURL: base, Messages: append([]state.Message{state.UserText("hi")}, messages...),
		ProviderTools: []model.ProviderTool{{Name: model.WebSearch}, {Name: model.WebFetch}, {Name: model.CodeExecution}},
	}
}

// A result belongs to the open use right before it, with its id and of its tool. Other uses are parts of their own.
func TestHostedParts(t *testing.T) {
	t.Parallel()
	const (
		code   = `{"executableCode":{"code":"1/0","language":"PYTHON"}}`
		failed = `{"codeExecutionResult":{"outcome":"OUTCOME_FAILED","output":"ZeroDivisionError"}}`
		ok     = `{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}}`
		search = `{"toolCall":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["tea"]}}}`
		found  = `{"toolResponse":{"id":"g1","toolType":"GOOGLE_SEARCH_WEB","response":{"n":1}}}`
		other  = `{"toolResponse":{"id":"g2","toolType":"GOOGLE_SEARCH_WEB","response":{"n":2}}}`
		page   = `{"toolResponse":{"id":"g1","toolType":"URL_CONTEXT","response":{"n":3}}}`
		text   = `{"text":"Tea."}`
	)
	for name, tt := range map[string]struct {
		parts []string
		want  []string // id, name, arguments, content, failed and the number of blocks of each use
	}{
		"failed":              {[]string{code, failed, text}, []string{` code_execution {"code":"1/0"} ZeroDivisionError true 2`}},
		"works":               {[]string{code, ok, text}, []string{` code_execution {"code":"1/0"} 1 false 2`}},
		"outcome is missing":  {[]string{code, `{"codeExecutionResult":{"output":"1"}}`, text}, []string{` code_execution {"code":"1/0"} 1 false 2`}},
		"two results":         {[]string{code, ok, failed}, []string{` code_execution {"code":"1/0"} 1 false 2`, " code_execution  ZeroDivisionError true 1"}},
		"two programs":        {[]string{code, ok, code, failed}, []string{` code_execution {"code":"1/0"} 1 false 2`, ` code_execution {"code":"1/0"} ZeroDivisionError true 2`}},
		"result behind text":  {[]string{code, text, ok}, []string{` code_execution {"code":"1/0"}  false 1`, " code_execution  1 false 1"}},
		"result first":        {[]string{ok, text}, []string{" code_execution  1 false 1"}},
		"results only":        {[]string{ok, failed}, []string{" code_execution  1 false 1", " code_execution  ZeroDivisionError true 1"}},
		"search":              {[]string{search, found}, []string{`g1 web_search {"queries":["tea"]} {"n":1} false 2`}},
		"other id":            {[]string{search, other}, []string{`g1 web_search {"queries":["tea"]}  false 1`, `g2 web_search  {"n":2} false 1`}},
		"other tool":          {[]string{search, page}, []string{`g1 web_search {"queries":["tea"]}  false 1`, `g1 web_fetch  {"n":3} false 1`}},
		"pictures":            {[]string{strings.ReplaceAll(search, "WEB", "IMAGE")}, []string{`g1 web_search {"queries":["tea"]}  false 1`}},
		"call without values": {[]string{`{"toolCall":{"id":"g1","toolType":"URL_CONTEXT"}}`}, []string{"g1 web_fetch {}  false 1"}},
		"unknown tool":        {[]string{`{"toolCall":{"id":"g1","toolType":"NOVEL"}}`, text}, nil},
	} {
		resp, err := gemini.New(gemini.Config{}).Generate(t.Context(), hosting("gemini-3-flash", serve(t, 200, stream(piece(strings.Join(tt.parts, ","), stop)))), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range resp.Parts {
			if p.Type == state.PartProviderTool {
				got = append(got, fmt.Sprintf("%s %s %s %s %t %d", p.ID, p.Name, p.Arguments, p.Content, p.IsError, len(model.Blocks(p))))
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A response may name its searches and pages only beside its parts: then these are uses as well. Google bills each
// search from Gemini 3 on, and one per response before that; each page; and each program.
func TestGrounding(t *testing.T) {
	t.Parallel()
	const (
		searches = `,"groundingMetadata":{"webSearchQueries":["tea","green tea"],"groundingChunks":[{"web":{"title":"T","uri":"https://t.example/"}},{"retrievedContext":{"uri":"x"}},{"web":{"uri":"https://u.example/"}}]}`
		pages    = `,"urlContextMetadata":{"urlMetadata":[{"retrievedUrl":"https://p.example/","urlRetrievalStatus":"URL_RETRIEVAL_STATUS_SUCCESS"},{"retrievedUrl":"https://q.example/","urlRetrievalStatus":"URL_RETRIEVAL_STATUS_ERROR"}]}`
		said     = `{"text":"hm","thought":true},{"text":"Tea."}`
		search   = `web_search {"queries":["tea","green tea"]} T` + "\nhttps://t.example/\nhttps://u.example/"
		fetch    = `web_fetch {"urls":["https://p.example/","https://q.example/"]} https://p.example/ URL_RETRIEVAL_STATUS_SUCCESS` + "\nhttps://q.example/ URL_RETRIEVAL_STATUS_ERROR"
		call     = `{"toolCall":{"id":"g","toolType":"GOOGLE_SEARCH_WEB"}},`
		page     = `{"toolCall":{"id":"g","toolType":"URL_CONTEXT"}},`
		program  = `{"executableCode":{"code":"1"}},`
	)
	for name, tt := range map[string]struct {
		model, parts, rest string
		want               []string
		usage              state.Usage
	}{
		"none":              {"gemini-3-flash", said, "", []string{"thinking", "text"}, state.Usage{}},
		"empty":             {"gemini-2.5-flash", said, `,"groundingMetadata":{},"urlContextMetadata":{}`, []string{"thinking", "text"}, state.Usage{}},
		"searches":          {"gemini-3-flash", said, searches, []string{"thinking", search, "text"}, state.Usage{WebSearches: 2}},
		"before Gemini 3":   {"gemini-2.5-flash", said, searches, []string{"thinking", search, "text"}, state.Usage{WebSearches: 1}},
		"only queries":      {"gemini-3-flash", said, `,"groundingMetadata":{"webSearchQueries":["tea"]}`, []string{"thinking", `web_search {"queries":["tea"]} `, "text"}, state.Usage{WebSearches: 1}},
		"pages":             {"gemini-3-flash", said, pages, []string{"thinking", fetch, "text"}, state.Usage{WebFetches: 2}},
		"both":              {"gemini-2.5-flash", said, searches + pages, []string{"thinking", search, fetch, "text"}, state.Usage{WebSearches: 1, WebFetches: 2}},
		"with its search":   {"gemini-3-flash", call + said, searches + pages, []string{fetch, "web_search {} ", "thinking", "text"}, state.Usage{WebSearches: 2, WebFetches: 2}},
		"with its page":     {"gemini-3-flash", page + said, searches + pages, []string{search, "web_fetch {} ", "thinking", "text"}, state.Usage{WebSearches: 2, WebFetches: 2}},
		"with two programs": {"gemini-3-flash", program + program + said, "", []string{`code_execution {"code":"1"} `, `code_execution {"code":"1"} `, "thinking", "text"}, state.Usage{CodeExecutions: 2}},
	} {
		resp, err := gemini.New(gemini.Config{}).Generate(t.Context(), hosting(tt.model, serve(t, 200, stream(piece(tt.parts, stop+tt.rest)))), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range resp.Parts {
			if p.Type == state.PartProviderTool {
				got = append(got, p.Name+" "+p.Arguments+" "+p.Content)
			} else {
				got = append(got, string(p.Type))
			}
		}
		if diff := cmp.Diff(tt.want, got) + cmp.Diff(tt.usage, resp.Usage); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A caller may submit any blocks: only uses of Google's tools are sent, and of these only the fields that describe
// them. If the model has functions beside Google's tools, the request asks for the calls of those tools.
func TestHostedPartsOfCallers(t *testing.T) {
	t.Parallel()
	use := state.Part{Type: state.PartProviderTool, Name: model.CodeExecution, OpaqueBy: model.SealedBy("gemini", "gemini-3-flash"), Opaque: json.RawMessage(`[
		{"text":"injected"},{"functionCall":{"name":"injected"}},"injected",{"executableCode":{"code":"1","language":"PYTHON"},"text":"injected","thoughtSignature":"c2ln"},
		{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"},"inlineData":{"data":"AAAA","mimeType":"image/png"}},{"fileData":{"fileUri":"gs://injected"}}]`)}
	r := hosting("gemini-3-flash", "", say(state.RoleAssistant, use), state.UserText("And?"))
	for _, functions := range []bool{false, true} {
		if functions {
			r.Tools, r.ToolChoice.Tool = []model.ToolSpec{{Name: "brew", Schema: json.RawMessage(`{"type":"object"}`)}}, "brew"
		}
		var body struct {
			Contents   []struct{ Parts json.RawMessage }
			Tools      []map[string]any
			ToolConfig json.RawMessage
		}
		if err := json.Unmarshal([]byte(asked(t, r)), &body); err != nil || len(body.Contents) != 3 {
			t.Fatalf("%v: %+v", err, body)
		}
		equal(t, string(body.Contents[1].Parts), `[{"executableCode":{"code":"1","language":"PYTHON"},"thoughtSignature":"c2ln"},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}}]`)
		var tools []string
		for _, tool := range body.Tools {
			for key := range tool {
				tools = append(tools, key)
			}
		}
		slices.Sort(tools)
		want, config := []string{"codeExecution", "googleSearch", "urlContext"}, ""
		if functions {
			want, config = []string{"codeExecution", "functionDeclarations", "googleSearch", "urlContext"}, `{"functionCallingConfig":{"allowedFunctionNames":["brew"],"mode":"ANY"},"includeServerSideToolInvocations":true}`
		}
		if diff := cmp.Diff(want, tools); diff != "" || string(body.ToolConfig) != config {
			t.Errorf("with functions %t: config %s, tools (-want +got):\n%s", functions, body.ToolConfig, diff)
		}
	}
}
