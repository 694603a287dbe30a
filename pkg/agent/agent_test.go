package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const scripted = "name: a\nmodel: {provider: scripted}\n"

func parse(t *testing.T, text string) (*agent.Agent, error) {
	t.Helper()
	def, err := agent.Builtin().Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return agent.Builtin().Compile(def, 1)
}

func TestCompileAccepts(t *testing.T) {
	t.Parallel()
	a, err := parse(t, `
name: support
instructions: You are a support agent.
model: {provider: anthropic, name: claude-haiku-4-5, max_output_tokens: 4096, api_key: "secret://KEY"}
loop: {type: react, max_turns: 20}
tools:
  - {name: refund, kind: nats, approval: "args.amount > 100", idempotent: false, timeout: 30s, concurrency: serial}
  - {name: pick_file, kind: client, schema: {type: object, required: [path], properties: {path: {type: string}}}}
  - {name: ask_user, kind: human}
limits: {output_tokens: 50000, cost_usd: 0.50, deadline: 10m, warn_at: 0.8}
`)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range a.ToolSpecs() {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"refund", "pick_file", "ask_user"}, names); diff != "" {
		t.Errorf("ToolSpecs:\n%s", diff)
	}
	created := state.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	got := a.Tighten(state.Limits{MaxTurns: 5, OutputTokens: 90000}, created)
	want := state.Limits{MaxTurns: 5, OutputTokens: 50000, CostUSD: 500000, DeadlineAt: state.At(created.Add(10 * time.Minute)), WarnAt: 0.8}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Tighten:\n%s", diff)
	}
	refund := a.Tool("refund")
	for args, want := range map[string]bool{`{"amount":101}`: true, `{"amount":99.5}`: false, `{}`: true, `{"amount":"x"}`: true} {
		if got := refund.NeedsApproval(args, nil); got != want {
			t.Errorf("NeedsApproval(%s) = %v, want %v", args, got, want)
		}
	}
	pick := a.Tool("pick_file")
	if err := pick.Validate(`{"path":"x"}`); err != nil {
		t.Errorf("Validate: %v", err)
	}
	for _, bad := range []string{``, `[]`, `null`, `{"path":1}`, `{`} {
		if pick.Validate(bad) == nil {
			t.Errorf("Validate(%s) accepts it", bad)
		}
	}
	for args, want := range map[string]bool{`{}`: true, ` {"x":[1]}`: true, `{"x":1`: false, `{} {}`: false, `[]`: false, `null`: false, ``: false} {
		if err := refund.Validate(args); (err == nil) != want {
			t.Errorf("Validate(%s) of a tool without a schema: %v", args, err)
		}
	}
}

// Compile refuses contradictory definitions with the reason (D3, D7, D8).
func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{"name: Bad Name\nmodel: {provider: scripted}", "name:"},
		{"name: a\nmodel: {provider: nobody, name: x}", "model.provider"},
		{"name: a\nmodel: {provider: openai}", "model.name"},
		{"name: a\nmodel: {provider: openai, name: x, api_key: sk-123}", "secret://"},
		{"name: a\nmodel: {provider: openai, name: x, responses: [{text: hi}]}", "responses"},
		{scripted + "surprise: 1", "surprise"},
		{scripted + "loop: {type: react, max_turns: 201}", "201 is above the maximum of 200"},
		{scripted + "loop: {type: spiral}", "spiral"},
		{scripted + "loop: {type: single_call}\ntools: [{name: t}]", "uses the loop single_call but has 1 tool"},
		{scripted + "loop: {type: single_call, converse: true}", "converse"},
		{scripted + "output_schema: {type: object}\nloop: {converse: true}", "output_schema: an agent with loop.converse never ends with an output"},
		{scripted + "loop: {on_limit: stop}", "loop.on_limit: it is \"stop\": write end or answer"},
		{scripted + "loop: {type: single_call, on_limit: answer}", "loop.on_limit: single_call makes exactly one model call"},
		{scripted + "max_output_retries: 21", "max_output_retries: 21 is not between 0 and 20"},
		{scripted + "max_output_retries: 1\nloop: {type: single_call}", "max_output_retries: single_call makes exactly one model call"},
		{scripted + "tools: [{name: turnpike_final_answer}]", "tools[0].name: turnpike_final_answer is reserved"},
		{scripted + "tools: [{name: t}, {name: t}]", "used twice"},
		{scripted + "tools: [{name: t, kind: client}]", "needs a JSON Schema"},
		{scripted + "tools: [{kind: handoff}]", `tools[0].agent: "" is not the name of an agent`},
		{scripted + "tools: [{kind: handoff, agent: b}, {kind: handoff, agent: b}]", `tools[1].name: "transfer_to_b" is used twice`},
		{scripted + "tools: [{name: t, kind: magic}]", "tools[0].kind: this process does not know tools of kind \"magic\": use one of a2a, agent, client, go, handoff, http, human, mcp, memory, nats, provider, results"},
		{scripted + "tools: [{name: t, kind: results}]", "tools[0].kind: a tool of kind results reads what compaction has removed"},
		{scripted + "compaction: {at: 0.5, window: 1000}\ntools: [{name: t, kind: results, timeout: 1s, schema: {type: object}}]", "the tool defines its own arguments"},
		{scripted + "tools: [{name: t, schema: {type: 7}}]", "schema"},
		{scripted + "tools: [{name: t, approval: \"args.amount >\"}]", "approval"},
		{scripted + "tools: [{name: t, approval: \"1 + 1\"}]", "boolean"},
		{scripted + "tools: [{name: t, approval: allways}]", "tools[0].approval: it is neither always nor never, and cannot be used as a CEL expression over args, args_from_untrusted and untrusted_seen: \"allways\" is not a valid expression"},
		{"name: a\nmodel: {provider: ollama, name: x}", "write openai and set base_url"},
		{scripted + "tools: [{name: t, kind: magic}]", "register your own kind with both"},
		{scripted + "tools: [{name: t, timeout: soon}]", "30s"},
		{scripted + "tools: [{name: t, idempotent: true, probe: {}}]", "tools[0].probe: after a crash the worker repeats a call of an idempotent tool without asking the probe: remove probe or idempotent"},
		{scripted + "tools: [{name: t, kind: human, probe: {}}]", "tools[0].probe: no worker makes the calls of a tool of kind human"},
		{scripted + "tools: [{name: t, probe: {kind: agent, agent: b}}]", "tools[0].probe.kind: the worker calls a probe itself and cannot call tools of kind agent"},
		{scripted + "tools: [{name: t, probe: {kind: magic}}]", "tools[0].probe.kind: this process does not know tools of kind \"magic\""},
		{scripted + "tools: [{name: t, probe: {kind: http, url: ftp}}]", "tools[0].probe: url: \"ftp\" is not an http or https URL"},
		{scripted + "tools: [{name: t, probe: {name: a b}}]", "tools[0].probe.name: \"a b\" is not a valid name: use 1 to 64"},
		{scripted + "tools: [{name: t, probe: {timeout: 1s}}]", "tools[0].probe.timeout: unknown key: remove it, or use one of name, kind"},
		{scripted + "tools: [{name: t, probe: {probe: {}}}]", "tools[0].probe.probe: unknown key"},
		{scripted + "tools: [{name: t, probe: {url: x}}]", "tools[0].probe.url: it is a key of probes of kind a2a, http, mcp, and this one has the kind go"},
		{scripted + "tools: [{name: t, probe: t_probe}]", "tools[0].probe: a string is not valid here: write a mapping"},
		{scripted + "tools: [{name: search, kind: provider}]", "tools[0].name: \"search\" is not a tool that model providers run: write one of web_search, web_fetch, code_execution"},
		{scripted + "tools: [{name: web_search, kind: provider, approval: always}]", "tools[0].approval: the model's provider runs the tool during the model call"},
		{scripted + "tools: [{name: web_search, kind: provider, max_uses: -1}]", "tools[0].max_uses: -1 is not between 1 and 1000"},
		{scripted + "tools: [{name: web_search, kind: provider, max_calls: 5}]", "tools[0].max_calls: the model's provider runs the tool, so the worker cannot count its calls: write max_uses"},
		{scripted + "tools: [{name: web_search, kind: provider}]\nlimits: {cost_usd: 1}", "tools[0].max_uses: model scripted: it is missing, and limits.cost_usd needs a bound"},
		{scripted + "tools: [{name: web_search, kind: provider}, {name: web_search, kind: provider}]", "tools[1].name: \"web_search\" is used twice"},
		{scripted + "tools: [{name: web_search, kind: provider}, {name: web_search}]", "tools[1].name: \"web_search\" is used twice"},
		{scripted + "tools: [{name: web_search, kind: provider, settings: {container: x}}]", "tools[0].settings.container: model scripted: web_search of scripted takes allowed_domains"},
		{scripted + "tools: [{name: web_search, kind: provider}]\nhooks: {pre_tool: [{kind: nats, subject: s, tools: [web_search]}]}", "hooks.pre_tool[0].tools[0]: web_search is run by the model's provider, so no hook sees its calls"},
		{scripted + "tools: [{name: web_search, kind: provider}]\nhooks: {pre_tool: [{kind: nats, subject: s}]}", "hooks.pre_tool[0].tools: it is missing, so the hook would apply to all tools, and it cannot see web_search"},
		{scripted + "tools: [{name: web_search, kind: provider}]\nloop: {type: two_phase}", "tools[0]: the loop two_phase cannot use tools that the model's provider runs"},
		{scripted + "tools: [{name: web_search, kind: provider}]\nloop: {type: single_call}", "single_call makes exactly one model call"},
		{"name: a\nmodel: {provider: scripted, tool_choice: any}\ntools: [{name: web_search, kind: provider}]", "model.tool_choice: the agent has no tools that the model could call"},
		{"name: a\nmodel: {provider: scripted, parallel_tool_calls: false}", "model.parallel_tool_calls: the agent has no tools that the model could call"},
		{"name: a\nmodel: {provider: anthropic, name: claude-haiku-4-5, fallback: [{provider: openai, name: gpt-5-mini}]}\ntools: [{name: web_fetch, kind: provider}]", "tools[0].name: model.fallback[0] openai gpt-5-mini: openai does not run it, it runs web_search, code_execution: remove it"},
		{"name: a\nmodel: {provider: openai, name: gpt-5-mini, api: chat}\ntools: [{name: web_search, kind: provider}]", "tools[0].name: model openai gpt-5-mini: the API chat of openai does not have it: remove it, or write api: responses"},
		{"name: a\nmodel: {provider: scripted, responses: [{provider_tools: [{name: x}]}]}", "model.responses[0].provider_tools[0].name: it is \"x\": write one of"},
		{scripted + "limits: {warn_at: 2}", "warn_at"},
		{scripted + "limits: {output_tokens: -1}", "negative"},
		{"name: a\nmodel: {provider: scripted, responses: [{error: gremlins}]}", "gremlins"},
		{"name: a\nname: b\nmodel: {provider: scripted}", "name"},
		{"name: a\nmodel: {provider: bedrock, name: x}", `"bedrock" is not a provider of this build`},
		{"name: a", "model.provider: it is missing: write one of anthropic, "},
		{"name: a\nmodel: {name: x}", "model.provider: it is missing: write one of anthropic, "},
		{scripted + "loop: {type: reactt}", `loop.type: it is "reactt": write react, single_call, reflect, two_phase, or a loop registered in Go; did you mean react?`},
		{scripted + "deadline: 1m", "deadline: unknown key: remove it, or use one of name, "},
		{scripted + "deadline: 1m", "variables; did you mean limits.deadline?"},
		{scripted + "converse: true", "variables; did you mean loop.converse?"},
		{scripted + "temperature: 1", "variables; did you mean model.temperature?"},
		{"name: a\nmodel: {provider: openai, name: x, base_url: localhost}", "model.base_url"},
		{"name: a\nmodel: {provider: openai, name: x, api: assistants}", `it is "assistants": write one of responses, chat`},
		{"name: a\nmodel: {provider: anthropic, name: x, api: chat}", "model.api: only the provider openai"},
		{"name: a\nmodel: {provider: openai, name: x, api_key: \"secret://../key\"}", "model.api_key"},
		{"name: a\nmodel: {provider: scripted, responses_file: r.json}", "model.responses_file"},
		{"name: a\nmodel: {provider: scripted, max_output_tokens: -1}", "model.max_output_tokens: -1 is negative"},
		{"name: a\nmodel: {provider: scripted, timeout: -1s}", "model.timeout: -1s is negative"},
		{"name: a\nmodel: {provider: scripted, responses: [{delay: -1s}]}", "model.responses[0].delay"},
		{"name: yes\nmodel: {provider: scripted}", "name: true is not valid here: write a string"},
		{scripted + "loop: {type: reflect, max_steps: 5}", "loop.max_steps: it is for the loop two_phase"},
		{scripted + "loop: {type: reflect, confidence_threshold: 1.5}", "loop.confidence_threshold: 1.5 is not between 0 and 1"},
		{scripted + "loop: {type: reflect, terminal_tools: [submit]}", "loop.terminal_tools[0]: the agent has no tool \"submit\""},
		{scripted + "loop: {type: two_phase, reflect_interval: 2}", "are for the loop reflect, this agent uses two_phase"},
		{scripted + "hooks: {post_sampling: [{kind: nats, subject: s, timeout: 100h}]}", "hooks.post_sampling[0].timeout: 100h0m0s is too long: a hook at post_sampling may take at most 1m0s: set a shorter timeout"},
		{scripted + "hooks: {stop_failure: [{kind: nats, subject: s, timeout: 61s}]}", "hooks.stop_failure[0].timeout: 1m1s is too long: a hook at stop_failure may take at most 1m0s"},
		{scripted + "hooks: {pre_tool: [{kind: nats, subject: s, timeout: 61m}]}", "hooks.pre_tool[0].timeout: 1h1m0s is too long: a hook at pre_tool may take at most 1h0m0s"},
		{scripted + "hooks: {stop: [{kind: nats, subject: s}, {kind: nats, subject: s, timeout: 61m}]}", "hooks.stop[1].timeout: 1h1m0s is too long"},
		{scripted + "loop: {type: two_phase, max_steps: -5}", "loop.max_steps: -5 is negative"},
		{scripted + "loop: {tool_loop_threshold: 1}", "loop.tool_loop_threshold: 1 would end"},
		{scripted + "compaction: {at: 0.8}", "compaction.window"},
		{scripted + "compaction: {at: 80, window: 1000}", "compaction.at: 80 is not between 0 and 1"},
		{scripted + "compaction: {reactive: twice}", "compaction.reactive: it is \"twice\": write once or progress"},
		{scripted + "limits: {token_budget: {}}", "limits.token_budget: output_tokens"},
		{"name: a\nmodel: {provider: scripted, fallback: [{provider: openai}]}", "model.fallback[0].name: it is missing"},
		{"name: a\nmodel: {provider: scripted, fallback: [{provider: scripted, fallback: [{provider: scripted}]}]}", "model.fallback[0].fallback: a fallback cannot have its own fallback"},
		{scripted + "loop: {max_turns: 2.5}", "loop.max_turns: 2.5 is not valid here: write a whole number"},
		{scripted + "output_schema: [1]", "output_schema: not a JSON Schema"},
		{scripted + "hooks: {stop: [{kind: nats}]}", "hooks.stop[0].subject: \"\" is empty"},
		{scripted + "hooks: {stop: [{kind: nats, subject: " + strings.Repeat("a", 1025) + "}]}", "1025 bytes, at most 1024 are allowed"},
		{scripted + "hooks: {stop: [{kind: nats, subject: \"a.>\"}]}", "has a wildcard"},
		{scripted + "hooks: {stop: [{kind: nats, subject: $JS.API}]}", "is reserved by NATS"},
		{scripted + "hooks: {stop: [{kind: go}]}", "hooks.stop[0].name"},
		{scripted + "hooks: {stop: [{kind: go, name: x, subject: policy}]}", "it is a key of hooks of kind nats, and this one has the kind go"},
		{scripted + "hooks: {stop: [{kind: python}]}", "it is \"python\": write one of cel, go, nats"},
		{scripted + "hooks: {stop: [{kind: cel, when: \"true\", then: deny}]}", "the field then is \"deny\": write one of block, prevent"},
		{scripted + "hooks: {stop: [{kind: cel, then: block}]}", "the field when is missing"},
		{scripted + "hooks: {pre_tool: [{kind: cel, when: \"output == ''\", then: deny}]}", "undeclared reference to 'output'"},
		{scripted + "hooks: {pre_tool: [{kind: cel, when: \"1 + 1\", then: deny}]}", "not a boolean"},
		{scripted + "hooks: {post_sampling: [{kind: cel, when: \"true\", then: deny}]}", "a post_sampling hook can decide nothing"},
		{scripted + "hooks: {input: [{kind: go, name: x, timeout: 61m}]}", "hooks.input[0].timeout: 1h1m0s is too long"},
		{scripted + "hooks: {input: [{kind: cel, when: 'size(input) > 10', then: deny}]}", "write one of refuse, replace"},
		{scripted + "hooks: {input: [{kind: cel, when: 'size(input) > 10', then: replace}]}", "the field message is missing: give the text that replaces"},
		{scripted + "hooks: {post_sampling: [{kind: go, name: x, on_error: deny}]}", "can neither allow nor deny"},
		{scripted + "hooks: {stop: [{kind: go, name: x, tools: [t]}]}", "only pre_tool hooks see calls of tools"},
		{scripted + "hooks: {pre_tool: [{kind: go, name: x, tools: [t]}]}", "hooks.pre_tool[0].tools[0]: the agent has no tool \"t\""},
		{scripted + "hooks: {pre_tool: [{kind: go, name: x, timeout: -1s, on_error: panic}]}", "hooks.pre_tool[0].on_error"},
		{scripted + "hooks: {pre_tools: []}", "unknown key"},
		{scripted + "hooks: {max_stop_blocks: -1}", "hooks.max_stop_blocks: -1 is not between 0 and 100"},
		{scripted + "hooks: {max_stop_blocks: 101}", "hooks.max_stop_blocks: 101 is not between 0 and 100"},
		{scripted + "loop: {type: single_call}\nhooks: {stop: [{kind: go, name: x}]}", "hooks: single_call makes one model call without tools"},
		{scripted + "tools: {name: t}", "tools: a mapping is not valid here: write a list"},
		{scripted + "tools: [{name: \"a b\"}]", "tools[0].name"},
		{scripted + "tools: [{name: t, descripton: x}]", "tools[0].descripton: unknown key"},
		{scripted + "tools: [{name: t, Kind: go}]", "tools[0].Kind: unknown key"},
		{scripted + "tools: [{name: t, kind: client, schema: null}]", "needs a JSON Schema"},
		{scripted + "tools: [{name: t, kind: http, url: \"ftp://x\"}]", "tools[0]: url: \"ftp://x\" is not an http or https URL"},
		{scripted + "tools: [{name: t, kind: http, url: \"https://x/\", method: BREW}]", "tools[0]: method: it is \"BREW\": write one of"},
		{scripted + "tools: [{name: t, kind: http, url: \"https://x\", headers: {A: 1}}]", "tools[0].headers.A: 1 is not valid here: write a string"},
		{scripted + "tools: [{name: t, kind: http, url: \"https://x\", query: [a]}]", "tools[0].query: a list is not valid here: write a mapping"},
		{scripted + "tools: [{name: t, method: GET}]", "tools[0].method: it is a key of tools of kind http, and this one has the kind go"},
		{scripted + "tools: [{kind: mcp}]", "tools[0]: an MCP server needs a command or a url"},
		{scripted + "tools: [{kind: mcp, command: [npx], url: \"https://x\"}]", "tools[0]: an MCP server needs a command or a url"},
		{scripted + "tools: [{kind: mcp, url: \"ftp://x\"}]", "tools[0]: url: \"ftp://x\" is not an http or https URL"},
		{scripted + "tools: [{kind: mcp, url: \"https://x\", headers: {\"A b\": x}}]", "headers: \"A b\" is not a valid name: use 1 to 64 letters, digits and -"},
		{scripted + "tools: [{kind: mcp, url: \"https://x#y\"}]", "url: it has a fragment, which is never sent"},
		{scripted + "tools: [{kind: memory, scope: \"metadata.a:b\"}]", "the key in \"metadata.a:b\" is not valid: use 1 to 128 characters"},
		{scripted + "tools: [{kind: mcp, url: \"https://x\", headers: {Mcp-Session-Id: x}}]", "headers: the worker sets \"Mcp-Session-Id\" itself: remove it"},
		{scripted + "tools: [{kind: mcp, command: [npx], env: {\"A B\": x}}]", "env: \"A B\" is not a valid name of a variable"},
		{scripted + "tools: [{kind: mcp, command: [npx, x, \"--key=secret://K\"]}]", "tools[0]: command: a secret is not allowed here"},
		{scripted + "tools: [{kind: mcp, url: \"https://x/?k=secret://K\"}]", "or a secret is not allowed here"},
		{scripted + "tools: [{name: t, kind: http, url: \"https://x/secret://K\"}]", "has a secret before the ?"},
		{scripted + "tools: [{name: t, kind: a2a, url: \"https://x/?k=secret://K\"}]", "tools[0].url: it contains a secret, which only token may"},
		{"name: a\nmodel: {provider: openai, name: x, base_url: \"https://x/?k=secret://K\"}", "model.base_url: it contains a secret, which only api_key may"},
		{"name: a\nmodel: {provider: anthropic, name: x, base_url: \"https://bedrock-runtime.us-east-1.amazonaws.com\"}", "model.api_key: a model of Amazon Bedrock needs credentials"},
		{"name: a\nmodel: {provider: gemini, name: x, base_url: \"https://aiplatform.googleapis.com/v1\", api_key: \"secret://G\"}", "model.base_url: the address of Google Vertex AI is not valid: write https://aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION"},
		{scripted + "tools: [{kind: mcp, url: \"unix:///run/docker.sock\"}]", "is not an http or https URL"},
		{scripted + "tools: [{name: t, kind: a2a, url: \"file:///etc/passwd\"}]", "is not an http or https URL"},
		{scripted + "tools: [{kind: mcp, command: [npx], allow: [a, a]}]", "tools[0].allow: \"a\" is empty or listed twice"},
		{scripted + "tools: [{kind: mcp, command: [npx], schema: {}}]", "tools[0]: description and schema come from the MCP server"},
		{scripted + "tools: [{name: a, allow: [b]}]", "tools[0].allow: it is a key of tools of kind mcp, and this one has the kind go"},
		{scripted + "tools: [{name: t, kind: agent}]", "tools[0].agent: \"\" is not the name of an agent"},
		{scripted + "tools: [{name: t, kind: agent, agent: b, timeout: 3s}]", "cannot have idempotent or timeout"},
		{scripted + "tools: [{name: t, kind: a2a}]", "tools[0].url: \"\" is not an http or https URL"},
		{scripted + "tools: [{name: t, kind: a2a, url: \"https://x\", token: abc}]", "tools[0].token: it is not a reference"},
		{scripted + "tools: [{name: t, url: \"https://x\"}]", "tools[0].url: it is a key of tools of kind a2a, http, mcp, and this one has the kind go"},
		{scripted + "tools: [{name: t, agent: b}]", "tools[0].agent: it is a key of tools of kind agent, handoff, and this one has the kind go"},
		{scripted + "tools: [{name: t, kind: human, async: true}]", "tools[0].async: a tool of kind human cannot answer later"},
		{scripted + "tools: [{name: t, reuse: true}]", "tools[0].reuse: only the results of an idempotent tool"},
		{scripted + "tools: [{name: t, max_calls: -1}]", "max_calls is -1 and max_result 0: write 0 or more for both"},
		{scripted + "tools: [{name: ask_user, kind: nats}]", "reserved"},
		{scripted + "tools: [{name: t, schema: {type: string}}]", "set type to \"object\""},
		{scripted + "tools: [{name: t, schema: {$ref: \"http://x/y\"}}]", "tools[0].schema"},
		{scripted + "tools: [{name: t, approval: [1]}]", "tools[0].approval: the approval rule is not a string: write"},
		{scripted + "tools: [{name: t, timeout: -1s}]", "tools[0].timeout"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, top_k: 5}", "model.top_k: openai does not support it: remove it"},
		{"name: a\nmodel: {provider: openai, name: gpt-5-mini, temperature: 0.2}", "model.temperature: models of OpenAI that reason"},
		{"name: a\nmodel: {provider: anthropic, name: claude-sonnet-4-5, temperature: 0.2, top_p: 0.5}", "model.top_p: this model takes temperature or top_p, not both"},
		{scripted[:len(scripted)-2] + ", fallback: [{provider: gemini, name: gemini-2.5-flash, parallel_tool_calls: false}]}\ntools: [{name: t}]", "model.fallback[0].parallel_tool_calls: gemini does not support it: remove it"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, extra: {store: true}}", "model.extra.store: it is not allowed, since Turnpike sets this field"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, extra: [store]}", "model.extra: a list is not valid here: write a mapping"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, reasoning: most}", "model.reasoning: it is \"most\": write none, low, medium, high, xhigh or max"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, temperature: warm}", "model.temperature: a string is not valid here: write a number"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, service_tier: fast}", "model.service_tier: it is \"fast\": write standard, flex or priority"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, tool_choice: any}", "model.tool_choice: the agent has no tools"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, parallel_tool_calls: true}", "the agent has no tools"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, tool_choice: {name: u}}\ntools: [{name: t}]", "model.tool_choice: the agent has no tool \"u\": write auto, none, any or the name of one of t"},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, tool_choice: required}\ntools: [{name: t}]", "model.tool_choice: the agent has no tool \"required\""},
		{"name: a\nmodel: {provider: openai, name: gpt-4.1, tool_choice: {tool: t}}\ntools: [{name: t}]", "model.tool_choice: the tool choice {\"tool\":\"t\"} is not valid: write auto, none, any or {name: TOOL}"},
		{"name: a\nloop: {type: two_phase}\nmodel: {provider: openai, name: gpt-4.1, tool_choice: any}\ntools: [{name: t}]", "model.tool_choice: the loop two_phase describes tools to the model in its prompt"},
		{"name: a\nmodel: {provider: scripted, responses: [{show: all}]}", "model.responses[0].show: \"all\" is not valid: write settings"},
		{scripted + "tools: [{name: t, concurrency: both}]", "tools[0].concurrency"},
		{scripted + "limits: {deadline: soon}", "limits.deadline"},
		{scripted + "limits: {cost_usd: cheap}", "limits.cost_usd"},
		{scripted + "---\n" + scripted, "more than one YAML document"},
		{`{"name": "a", "model": {"provider": "scripted", "provider": "openai"}}`, "model.provider: the key occurs twice"},
		{"", "empty"},
		{"null", "name"},
		{"name: a\ninstructions: " + strings.Repeat("x", agent.MaxDefinition), "the document has more than 1048576 bytes, the maximum: shorten it"},
		{"description: &x " + strings.Repeat("x", 100_000) + "\nhooks: {stop: [" + strings.Repeat("*x, ", 20) + "*x]}", "aliases"},
	}
	for _, tt := range tests {
		_, err := parse(t, tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n  error = %v, want one with %q", tt.text, err, tt.want)
		}
	}
}

// All errors are reported at once, each with its location.
func TestMistakesComeTogether(t *testing.T) {
	t.Parallel()
	const bad = `
nam: a
model: {provider: scripted, responses: [{}, {delay: soon}]}
tools: [{name: t}, {name: u, timeout: later, shema: {}}]
`
	_, err := agent.Builtin().Parse([]byte(bad))
	for _, want := range []string{"nam:", "model.responses[1].delay:", "tools[1].timeout:", "tools[1].shema:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse: error = %v, want one with %q", err, want)
		}
	}
	_, err = parse(t, "name: A\nmodel: {provider: openai}\nloop: {max_turns: 500}\ntools: [{name: t}, {name: t}]")
	for _, want := range []string{"name:", "model.name:", "loop.max_turns:", "tools[1].name:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile: error = %v, want one with %q", err, want)
		}
	}
}

// Parse accepts JSON that YAML parsers reject: tabs, surrogate pairs, escaped slashes.
func TestParseJSON(t *testing.T) {
	t.Parallel()
	def, err := agent.Parse([]byte("{\n\t\"name\": \"a\",\n\t\"instructions\": \"\\ud83d\\ude00 \\/\",\n\t\"model\": {\"provider\": \"scripted\"}\n}"))
	if err != nil || def.Instructions != "😀 /" {
		t.Fatalf("Parse = %q, %v", def.Instructions, err)
	}
}

// A key is the text as written, as in YAML 1.2, whatever surrounds it.
func TestKeysAreTexts(t *testing.T) {
	t.Parallel()
	def, err := agent.Parse([]byte(scripted + `
# a comment, an anchor, a text over two lines
instructions: |
  n: is not a key
  here
tools:
  - {name: at, async: yes, schema: {type: object, properties: {x: &number {type: number}, y: *number, No: {enum: ["no"]}}}}
  - {name: by, schema: {properties: {on: {properties: {off: {}}}}, type: object}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"properties":{"No":{"enum":["no"]},"x":{"type":"number"},"y":{"type":"number"}},"type":"object"}`
	if diff := cmp.Diff(want, string(def.Tools[0].Schema)); diff != "" || !def.Tools[0].Async || def.Instructions != "n: is not a key\nhere\n" {
		t.Errorf("schema, of %+v:\n%s", def, diff)
	}
	if got := string(def.Tools[1].Schema); got != `{"properties":{"on":{"properties":{"off":{}}}},"type":"object"}` {
		t.Errorf("the schema of the second tool is %s", got)
	}
	if _, err := agent.Parse([]byte("model: {n: 1, \"n\": 2}")); err == nil {
		t.Error("a duplicate key is accepted")
	}
}

// A definition that was saved as JSON reads back unchanged.
func TestParseRoundTrip(t *testing.T) {
	t.Parallel()
	def, err := agent.Parse([]byte(scripted + `
loop: {max_turns: 7, converse: true}
tools: [{name: t, approval: true, timeout: 1.5, schema: {type: object, properties: {n: {type: integer}}}}]
limits: {cost_usd: 0.25, deadline: 10m}
`))
	if err != nil {
		t.Fatal(err)
	}
	saved, err := json.Marshal(def)
	if err != nil {
		t.Fatal(err)
	}
	again, err := agent.Parse(saved)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(def, again); diff != "" {
		t.Errorf("after Marshal and Parse:\n%s", diff)
	}
}

// A third party's loop is accepted by name (D10).
func TestCompileRegisteredLoop(t *testing.T) {
	t.Parallel()
	def, err := agent.Parse([]byte(scripted + "loop: {type: reflect}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Builtin("reflect").Compile(def, 1); err != nil {
		t.Errorf("Compile: %v", err)
	}
}

func TestApprovalRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		rule, args string
		want       bool
	}{
		{"always", `{}`, true},
		{"never", `{}`, false},
		{"true", `{}`, true},
		{"false", `{}`, false},
		{`"has(args.path) && args.path.startsWith('/etc')"`, `{"path":"/etc/passwd"}`, true},
		{`"has(args.path) && args.path.startsWith('/etc')"`, `{}`, false},
		{`"args.items.exists(i, i.price > 10)"`, `{"items":[{"price":1},{"price":11}]}`, true},
		{`"args.sure"`, `{"sure":"maybe"}`, true}, // not a boolean: a person decides
		{`"args.sure"`, `{"sure":false}`, false},
		{`"args.sure"`, `not JSON`, true},
	}
	for _, tt := range tests {
		a, err := parse(t, scripted+"tools: [{name: t, approval: "+tt.rule+"}]")
		if err != nil {
			t.Errorf("approval %s: %v", tt.rule, err)
			continue
		}
		if got := a.Tool("t").NeedsApproval(tt.args, nil); got != tt.want {
			t.Errorf("approval %s: NeedsApproval(%s) = %v, want %v", tt.rule, tt.args, got, tt.want)
		}
	}
}

// Every run has a turn limit; a submission may only lower it (D3).
func TestTighten(t *testing.T) {
	t.Parallel()
	created := state.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	soon := state.At(created.Add(time.Minute))
	late := state.At(created.Add(time.Hour))
	tests := []struct {
		name, def  string
		more, want state.Limits
	}{
		{"defaults", "", state.Limits{}, state.Limits{MaxTurns: 20, WarnAt: 0.8}},
		{"more turns than the agent has", "loop: {max_turns: 3}", state.Limits{MaxTurns: 9}, state.Limits{MaxTurns: 3, WarnAt: 0.8}},
		{"limits of the run only", "", state.Limits{OutputTokens: 5, WaitMS: 7, DeadlineAt: soon}, state.Limits{MaxTurns: 20, OutputTokens: 5, WaitMS: 7, DeadlineAt: soon, WarnAt: 0.8}},
		{"looser", "limits: {total_tokens: 10, cost_usd: 1, deadline: 1m, wait: 1s, warn_at: 0.5}", state.Limits{TotalTokens: 11, CostUSD: 2e6, DeadlineAt: late, WaitMS: 5000}, state.Limits{MaxTurns: 20, TotalTokens: 10, CostUSD: 1e6, DeadlineAt: soon, WaitMS: 1000, WarnAt: 0.5}},
		{"an earlier deadline", "limits: {deadline: 1h}", state.Limits{DeadlineAt: soon}, state.Limits{MaxTurns: 20, DeadlineAt: soon, WarnAt: 0.8}},
		{"negative", "limits: {total_tokens: 10}", state.Limits{TotalTokens: -1, OutputTokens: -1, MaxTurns: -1}, state.Limits{MaxTurns: 20, TotalTokens: 10, WarnAt: 0.8}},
	}
	for _, tt := range tests {
		a, err := parse(t, scripted+tt.def)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, a.Tighten(tt.more, created)); diff != "" {
			t.Errorf("%s: Tighten:\n%s", tt.name, diff)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("r.yaml", "- {text: hello}\n- {error: overloaded, retry_after: 1s}\n")
	write("bad.json", `[{"txt": "hello"}]`)
	def, err := agent.Load(write("a.yaml", "name: a\nmodel: {provider: scripted, responses_file: r.yaml}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Builtin().Compile(def, 1); err != nil || len(def.Model.Responses) != 2 || def.Model.Responses[0].Text != "hello" {
		t.Fatalf("Load = %+v, Compile: %v", def.Model, err)
	}
	for text, want := range map[string]string{
		"name: a\nmodel: {provider: scripted, responses_file: none.yaml}":                      "none.yaml",
		"name: a\nmodel: {provider: scripted, responses_file: bad.json}":                       "[0].txt: unknown key",
		"name: a\nmodel: {provider: scripted, responses_file: r.yaml, responses: [{text: x}]}": "both responses and responses_file",
	} {
		if _, err := agent.Load(write("b.yaml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s): error = %v, want one with %q", text, err, want)
		}
	}
}

func TestValidateOutput(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)
	got, err := jsonschema.ValidateOutput(schema, ` { "n": 9007199254740993 } `)
	if err != nil || string(got) != `{"n":9007199254740993}` {
		t.Errorf("ValidateOutput = %s, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"n":1.5}`, `{"n":1} and more`} {
		if _, err := jsonschema.ValidateOutput(schema, bad); err == nil {
			t.Errorf("ValidateOutput(%s) accepts it", bad)
		}
	}
}

// A recursive schema that might not terminate is refused; one that recurses like a tree is accepted.
func TestSchemaBounds(t *testing.T) {
	t.Parallel()
	chain := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"$ref": "#/$defs/0", "$defs": {`)
		for i := range n {
			fmt.Fprintf(&b, `"%d": {"$ref": "#/$defs/%d"}, `, i, i+1)
		}
		fmt.Fprintf(&b, `"%d": {}}}`, n)
		return b.String()
	}
	tests := []struct{ schema, want string }{
		{`{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}`, ""},
		{`{"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"object"}}}`, ""},
		{`{"$ref":"#top","$defs":{"x":{"$anchor":"top","properties":{"x":{"$ref":"#top"}}}}}`, ""},
		{`{"properties":{"$ref":{"type":"string"},"not":{"type":"string"},"$id":{"type":"string"}}}`, ""},
		{`{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{}}}`, ""},
		{chain(90), ""},
		{chain(200), "more than 100 schemas"},
		{`{"$ref":"#"}`, "refers to itself without end"},
		{`{"$defs":{"a":{"$ref":"#/$defs/a"}}}`, "refers to itself without end"},
		{`{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"not":{"$ref":"#/$defs/b"}}]},"b":{"if":{"$ref":"#/$defs/a"}}}}`, "refers to itself without end"},
		{`{"dependentSchemas":{"x":{"$ref":"#"}}}`, "refers to itself without end"},
		{`{"$ref":"#x","$anchor":"x"}`, "refers to itself without end"},
		{`{"NOT":{"$REF":"#"}}`, "refers to itself without end"},
		{`{"not":{"$ref":"#"},"not":{}}`, "refers to itself without end"},
		{`{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`, "twice"},
		{`{"$dynamicRef":"#x","$dynamicAnchor":"x"}`, "$dynamicRef"},
		{`{"$id":"http://a/b","$ref":"http://a/b"}`, "does not begin with #"},
		{`{"$defs":{"a":{"$id":"http://a/b"}}}`, "$id"},
		{`{"$ref":"#/$defs/none"}`, "no such place"},
		{`{"$ref":"#none"}`, "no such place"},
		{`{"$ref":"#/%zz"}`, "$ref"},
		{strings.Repeat(`{"items":`, 300) + "{}" + strings.Repeat("}", 300), "levels deep"},
		{strings.Repeat(`{"not":`, 150) + "{}" + strings.Repeat("}", 150), "more than 100 schemas"},
	}
	for _, tt := range tests {
		err := jsonschema.Check(json.RawMessage(tt.schema))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("Check(%.150s) = %v, want %q", tt.schema, err, tt.want)
		}
	}
	a, err := parse(t, scripted+`tools: [{name: t, schema: {type: object, properties: {in: {$ref: "#"}}}}]`)
	if err != nil {
		t.Fatal(err)
	}
	nested := func(n int) string { return strings.Repeat(`{"in":`, n) + "{}" + strings.Repeat("}", n) }
	if err := a.Tool("t").Validate(nested(150)); err != nil {
		t.Errorf("Validate: %v", err)
	}
	if err := a.Tool("t").Validate(nested(5000)); err == nil || !strings.Contains(err.Error(), "levels deep") {
		t.Errorf("Validate of 5000 levels: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(scripted))
	f.Add([]byte(`{"name":"a","model":{"provider":"scripted","responses":[{"delay":"1s"}]},"tools":[{"name":"t","approval":"args.x > 1"}]}`))
	f.Add([]byte("name: a\nmodel: &m {provider: openai, name: x, fallback: [*m]}\n"))
	f.Add([]byte(scripted + "tools: [{name: t, kind: client, timeout: 1.5, schema: {type: object, $defs: {a: {$ref: \"#/$defs/a\"}}, properties: {x: {$ref: \"#/$defs/a\"}}}}]\nlimits: {cost_usd: 0.1, warn_at: 1e-3}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, err := agent.Parse(data)
		if err != nil {
			return
		}
		a, err := agent.Builtin().Compile(def, 1)
		if err != nil {
			return
		}
		// The saved definition is the checked one.
		saved, err := json.Marshal(def)
		if err != nil {
			t.Fatalf("Marshal: %v", err)
		}
		again, err := agent.Parse(saved)
		if err != nil {
			t.Fatalf("Parse(%s): %v", saved, err)
		}
		if _, err := agent.Builtin().Compile(again, 1); err != nil {
			t.Fatalf("Compile(%s): %v", saved, err)
		}
		for _, s := range a.ToolSpecs() {
			a.Tool(s.Name).NeedsApproval(`{"x":1}`, nil)
			_ = a.Tool(s.Name).Validate(`{"x":1}`)
		}
	})
}
