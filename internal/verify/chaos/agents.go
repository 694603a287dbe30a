package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// kind is one sort of run: its agent, and how often it is submitted.
type kind struct {
	name   string
	weight int
	tools  string // in YAML
	more   string // further lines of the definition
	script []mockmodel.Response
}

// The tools of the worker, as agents declare them.
const (
	readTool   = "{name: read, idempotent: true, reuse: false}"
	onceTool   = "{name: once}"
	slowerTool = "{name: slow}"
	onceSerial = "{name: once, concurrency: serial}"
	onceAsked  = "{name: once, approval: always}"
	laterTool  = "{name: later, async: true, idempotent: true}"
	pickTool   = "{name: pick, kind: client, schema: {type: object}}"
	remoteTool = "{name: remote, kind: nats, timeout: 5s}"
	askTool    = "{name: ask, kind: human}"
	leafTool   = "{name: leaf, kind: agent, agent: leaf}"
	sureTool   = "{name: sure, probe: {}}"
	noteTool   = "{name: note, kind: memory, scope: agent}"
	takerTool  = "{name: to_taker, kind: handoff, agent: taker}"
	mcpTool    = "{kind: mcp, url: \"" + mcpMark + "\", allow: [" + mcpName + "]}"
)

// mcpMark is the placeholder for the address of the MCP server.
const mcpMark = "mcp_here"

// keptFor is the retention of runs of the kind kept: the minimum that an agent can set.
const keptFor = agent.ShortestPeriod

// budgetTokens limits the runs of kind budget; each of their answers has answerTokens.
const (
	budgetTokens = 250
	answerTokens = 100
)

// watched calls a hook at every point.
const watched = `hooks:
  input: [{kind: go, name: watcher, on_error: allow}]
  pre_tool: [{kind: go, name: watcher, on_error: allow}]
  post_sampling: [{kind: go, name: watcher}]
  stop: [{kind: go, name: watcher}]
  stop_failure: [{kind: go, name: watcher}]`

func kinds() []kind {
	return []kind{
		{
			name: "steps", weight: 30, tools: readTool + ", " + onceTool + ", " + slowerTool + ", " + remoteTool,
			script: []mockmodel.Response{calls("read", "once", "read"), calls("once", "slow"), calls("remote", "read"), text()},
		},
		{
			name: "serial", weight: 15, tools: readTool + ", " + onceSerial,
			script: []mockmodel.Response{calls("once", "read", "read", "once", "once"), text()},
		},
		{
			name: "watched", weight: 12, tools: readTool + ", " + onceTool + ", " + slowerTool, more: watched,
			script: []mockmodel.Response{calls("read", "once"), calls("slow"), text()},
		},
		{
			name: "failing", weight: 4, tools: onceTool, more: watched,
			script: []mockmodel.Response{calls("once"), fails(model.InvalidRequest, 0)},
		},
		{name: "probed", weight: 10, tools: sureTool + ", " + readTool, script: []mockmodel.Response{calls("sure", "read"), calls("sure"), text()}},
		{name: "served", weight: 10, tools: mcpTool + ", " + readTool, script: []mockmodel.Response{calls(mcpName, "read"), calls(mcpName), text()}},
		{
			name: "kept", weight: 8, tools: onceTool, more: fmt.Sprintf("retention: {completed: %[1]s, failed: %[1]s}", keptFor),
			script: []mockmodel.Response{calls("once"), text()},
		},
		{name: "leaf", weight: 5, tools: onceTool, script: []mockmodel.Response{calls("once"), text()}},
		{
			name: "tree", weight: 12, tools: leafTool + ", " + onceTool,
			script: []mockmodel.Response{calls("leaf", "once", "leaf"), text()},
		},
		{name: "client", weight: 10, tools: pickTool + ", " + onceTool, script: []mockmodel.Response{calls("pick", "once"), text()}},
		{name: "ask", weight: 5, tools: askTool + ", " + readTool, script: []mockmodel.Response{calls("read"), calls("ask"), text()}},
		{name: "approve", weight: 10, tools: onceAsked + ", " + readTool, script: []mockmodel.Response{calls("once", "read"), text()}},
		{name: "later", weight: 8, tools: laterTool + ", " + onceTool, script: []mockmodel.Response{calls("later", "once"), text()}},
		{
			name: "flaky", weight: 5, tools: readTool + ", " + onceTool,
			script: []mockmodel.Response{fails(model.Overloaded, 0), calls("once"), fails(model.Transport, 0), calls("read"), text()},
		},
		// Few: the rate limit of one applies to all.
		{
			name: "limited", weight: 1, tools: readTool,
			script: []mockmodel.Response{calls("read"), fails(model.RateLimited, 2*time.Second), text()},
		},
		{
			name: "budget", weight: 6, tools: onceTool, more: fmt.Sprintf("limits: {output_tokens: %d}", budgetTokens),
			script: []mockmodel.Response{calls("once"), calls("once"), calls("once"), calls("once"), calls("once"), text()},
		},
		{name: "noted", weight: 8, tools: noteTool + ", " + onceTool, script: []mockmodel.Response{notes(), calls("once"), text()}},
		{name: "filed", weight: 6, tools: readTool, script: []mockmodel.Response{calls("read"), text()}},
		// Only handoffs start taker: after one answer of handed, its model gives its second answer.
		{name: "taker", tools: onceTool, script: []mockmodel.Response{text(), calls("once"), text()}},
		{name: "handed", weight: 8, tools: readTool + ", " + takerTool, script: []mockmodel.Response{calls("read", "to_taker"), text()}},
		{
			name: "compact", weight: 4, tools: readTool,
			script: []mockmodel.Response{
				calls("read"), calls("read"), calls("read"), fails(model.PromptTooLong, 0), fails(model.PromptTooLong, 0), text(),
			},
		},
	}
}

// listens reports whether the expected end of such runs still holds after a message.
func listens(kind string) bool {
	return kind != "budget" && kind != "compact" && kind != "failing" && kind != "kept"
}

// startedOnce reports whether a tool may be started once only.
func startedOnce(tool string) bool {
	return slices.Contains([]string{"once", "slow", "sure", remoteName, mcpName}, tool)
}

// calls returns an answer that calls tools, each with the answer's nonce.
func calls(tools ...string) mockmodel.Response {
	r := mockmodel.Response{Scripted: model.Scripted{Text: nonceMark, Usage: &model.ScriptedUsage{InputTokens: 50, OutputTokens: answerTokens}}}
	for i, name := range tools {
		args := fmt.Sprintf(`{"nonce":"%s","place":%d}`, nonceMark, i)
		switch name {
		case "leaf":
			args = fmt.Sprintf(`{"task":"%s %d"}`, nonceMark, i)
		case "ask":
			args = fmt.Sprintf(`{"question":"%s?"}`, nonceMark)
		case "to_taker":
			args = fmt.Sprintf(`{"reason":"%s"}`, nonceMark)
		}
		r.ToolCalls = append(r.ToolCalls, model.ScriptedCall{Name: name, Arguments: []byte(args)})
	}
	return r
}

// notes returns an answer that writes its nonce into its own file and into one that all runs share.
func notes() mockmodel.Response {
	r := text()
	for _, args := range []string{
		fmt.Sprintf(`{"command":"create","path":"/memories/%[1]s","file_text":"%[1]s\n"}`, nonceMark),
		fmt.Sprintf(`{"command":"insert","path":"/memories/%s","insert_line":0,"insert_text":"%s\n"}`, sharedNote, nonceMark),
	} {
		r.ToolCalls = append(r.ToolCalls, model.ScriptedCall{Name: "note", Arguments: []byte(args)})
	}
	return r
}

func text() mockmodel.Response {
	return mockmodel.Response{Scripted: model.Scripted{Text: nonceMark + " is all.", Usage: &model.ScriptedUsage{InputTokens: 50, OutputTokens: answerTokens}}}
}

func fails(class model.Class, retryAfter time.Duration) mockmodel.Response {
	return mockmodel.Response{Scripted: model.Scripted{Error: class, RetryAfter: model.Duration(retryAfter)}}
}

// scripts returns the model server's answers to each kind.
func scripts() mockmodel.Config {
	var c mockmodel.Config
	for _, k := range kinds() {
		answers := k.script
		if listens(k.name) { // and answers messages after its end
			answers = append(answers, text())
		}
		c.Scripts = append(c.Scripts, mockmodel.Script{Model: "^" + k.name + "$", Responses: answers})
	}
	return c
}

// definition is the agent of a kind. Its model is at one URL, its MCP server at another.
func (k kind) definition(model, mcp string) []byte {
	tools := strings.ReplaceAll(k.tools, mcpMark, mcp)
	return fmt.Appendf(nil, "model: {provider: openai, name: %s, base_url: %q, api_key: \"secret://%s\"}\ntools: [%s]\n%s\n", k.name, model, modelKey, tools, k.more)
}

// modelKey names the secret with the key for the model server, which accepts any.
const modelKey = "CHAOS_MODEL_KEY"
