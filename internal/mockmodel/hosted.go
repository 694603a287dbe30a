package mockmodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// found is a search result. In the text of a use, a line with the title precedes a line with the URL.
type found struct{ title, url string }

func findings(result string) []found {
	out := []found{}
	for line := range strings.Lines(result) {
		line = strings.TrimSpace(line)
		switch n := len(out); {
		case line == "":
		case strings.HasPrefix(line, "http") && n > 0 && out[n-1].url == "":
			out[n-1].url = line
		default:
			out = append(out, found{title: line})
		}
	}
	return out
}

// argument returns the first of the named arguments that is a string, or "".
func argument(u model.ScriptedUse, names ...string) string {
	var args map[string]any
	_ = json.Unmarshal([]byte(u.Text()), &args) // without arguments, the result is empty
	for _, n := range names {
		if text, ok := args[n].(string); ok {
			return text
		}
	}
	return ""
}

func (r reply) uses(tool string) (n int) {
	for _, u := range r.ProviderTools {
		if u.Name == tool {
			n++
		}
	}
	return n
}

// hosted returns the blocks of the uses of Anthropic's tools: each use followed by its result.
func (anthropic) hosted(r reply) []object {
	var blocks []object
	for i, u := range r.ProviderTools {
		id := fmt.Sprintf("srvtoolu_%s_%d", r.id, i)
		blocks = append(blocks, object{"type": "server_tool_use", "id": id, "name": u.Name, "input": input(u.Text())})
		var content any
		switch {
		case u.IsError:
			content = object{"type": u.Name + "_tool_result_error", "error_code": u.Result}
		case u.Name == model.WebSearch:
			list := []object{}
			for _, f := range findings(u.Result) {
				list = append(list, object{
					"type": "web_search_result", "title": f.title, "url": f.url, "page_age": nil,
					"encrypted_content": base64.StdEncoding.EncodeToString([]byte(f.title)),
				})
			}
			content = list
		case u.Name == model.WebFetch:
			content = object{
				"type": "web_fetch_result", "url": argument(u, "url"), "retrieved_at": "2026-11-27T00:00:00Z",
				"content": object{"type": "document", "title": "", "citations": nil, "source": object{"type": "text", "media_type": "text/plain", "data": u.Result}},
			}
		default:
			content = object{"type": "code_execution_result", "stdout": u.Result, "stderr": "", "return_code": 0, "content": []object{}}
		}
		blocks = append(blocks, object{"type": u.Name + "_tool_result", "tool_use_id": id, "content": content})
	}
	return blocks
}

// hosted returns the items for the uses of OpenAI's tools.
func (responsesAPI) hosted(r reply) []object {
	var items []object
	for i, u := range r.ProviderTools {
		status := "completed"
		if u.IsError {
			status = "failed"
		}
		if u.Name == model.CodeExecution {
			items = append(items, object{
				"type": "code_interpreter_call", "id": fmt.Sprintf("ci_%s_%d", r.id, i), "container_id": "cntr_" + r.id, "status": status,
				"code": argument(u, "code", "command"), "outputs": []object{{"type": "logs", "logs": u.Result}},
			})
			continue
		}
		action := object{"type": "open_page", "url": argument(u, "url")}
		if u.Name == model.WebSearch {
			query, sources := argument(u, "query"), []object{}
			for _, f := range findings(u.Result) {
				sources = append(sources, object{"type": "url", "url": f.url})
			}
			action = object{"type": "search", "query": query, "queries": []string{query}, "sources": sources}
		}
		items = append(items, object{"type": "web_search_call", "id": fmt.Sprintf("ws_%s_%d", r.id, i), "status": status, "action": action})
	}
	return items
}

// hosted returns the parts for the programs that Google has run.
func (gemini) hosted(r reply) []part {
	var out []part
	for _, u := range r.ProviderTools {
		if u.Name != model.CodeExecution {
			continue
		}
		outcome := "OUTCOME_OK"
		if u.IsError {
			outcome = "OUTCOME_FAILED"
		}
		out = append(out,
			part{fields: object{"executableCode": object{"language": "PYTHON", "code": argument(u, "code", "command")}}},
			part{fields: object{"codeExecutionResult": object{"outcome": outcome, "output": u.Result}}})
	}
	return out
}

// ground adds to a candidate what Google reports about searches and pages.
func (gemini) ground(candidate object, r reply) {
	queries, chunks, pages := []string{}, []object{}, []object{}
	for _, u := range r.ProviderTools {
		switch u.Name {
		case model.WebSearch:
			queries = append(queries, argument(u, "query"))
			for _, f := range findings(u.Result) {
				chunks = append(chunks, object{"web": object{"title": f.title, "uri": f.url}})
			}
		case model.WebFetch:
			status := "URL_RETRIEVAL_STATUS_SUCCESS"
			if u.IsError {
				status = "URL_RETRIEVAL_STATUS_ERROR"
			}
			pages = append(pages, object{"retrievedUrl": argument(u, "url"), "urlRetrievalStatus": status})
		}
	}
	if len(queries) > 0 {
		candidate["groundingMetadata"] = object{"webSearchQueries": queries, "groundingChunks": chunks}
	}
	if len(pages) > 0 {
		candidate["urlContextMetadata"] = object{"urlMetadata": pages}
	}
}
