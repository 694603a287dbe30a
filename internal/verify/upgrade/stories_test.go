package upgrade_test

import (
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// story is one run of a fixture: where it stands when it is frozen, and what must
// become of it.
type story struct {
	agent  string
	submit api.SubmitRequest
	frozen string // status, or reason if there is one
	want   string // reason of its end
	output string
	say    string // to the run, once it has ended

	// late says that it is submitted when no worker takes turns any more.
	late bool
}

// agents of the stories. What a run's model says is counted by the run, so a run goes
// on with the response that is next.
var agents = map[string]string{
	"plain": `{model: {provider: scripted, responses: [{text: plain}, {text: more}]}}`,
	"refunds": `{model: {provider: scripted, responses: [{thinking: hm, text: a moment, tool_calls: [{name: refund, id: c1, arguments: {amount: 500}}, {name: look, id: c2}]}, {text: refunded}]},
		tools: [{name: refund, approval: "args.amount > 100"}, {name: look, idempotent: true}]}`,
	"files":   `{model: {provider: scripted, responses: [{tool_calls: [{name: pick, id: c1}]}, {text: picked}]}, tools: [{name: pick, kind: client, schema: {type: object}}]}`,
	"asks":    `{model: {provider: scripted, responses: [{tool_calls: [{name: ask_user, id: c1, arguments: {question: "sure?"}}]}, {text: asked}]}, tools: [{name: ask_user, kind: human}]}`,
	"elicits": `{model: {provider: scripted, responses: [{tool_calls: [{name: elicit, id: c1}]}, {text: elicited}]}, tools: [{name: elicit}]}`,
	"later":   `{model: {provider: scripted, responses: [{tool_calls: [{name: render, id: c1}]}, {text: rendered}]}, tools: [{name: render, async: true}]}`,
	"parent": `{model: {provider: scripted, responses: [{tool_calls: [{name: files, id: c1, arguments: {task: go}}, {name: plain, id: c2, arguments: {task: go}}]}, {text: both}]},
		tools: [{name: files, kind: agent, agent: files}, {name: plain, kind: agent, agent: plain}]}`,
	"busy": `{model: {provider: scripted, responses: [{tool_calls: [{name: look, id: c1}, {name: stall, id: c2}, {name: stall_again, id: c3}]}, {text: unstalled}]},
		tools: [{name: look, idempotent: true}, {name: stall, timeout: 1h}, {name: stall_again, idempotent: true, timeout: 1h}]}`,
	"compacts": `{model: {provider: scripted, responses: [{tool_calls: [{name: look, id: c1}], usage: {input_tokens: 90}}, {tool_calls: [{name: look, id: c2, arguments: {n: 2}}]}, {error: prompt_too_long},
		{tool_calls: [{name: pick, id: c3}]}, {text: compacted}]}, tools: [{name: look, idempotent: true}, {name: pick, kind: client, schema: {type: object}}]}`,
	"falls": `{model: {provider: scripted, responses: [{error: auth}], fallback: [{provider: scripted, responses: [{tool_calls: [{name: pick, id: c1}]}, {text: fallen}]}]},
		tools: [{name: pick, kind: client, schema: {type: object}}]}`,
	"waits": `{model: {provider: scripted, responses: [{error: rate_limited, retry_after: 2h}, {text: waited}]}}`,
	"steps": `{loop: {type: two_phase}, model: {provider: scripted, responses: [{text: '{"tool": "look", "arguments": {}}'}, {text: '{"tool": "pick", "arguments": {}}'}, {text: '{}'}, {text: stepped}]},
		tools: [{name: look, idempotent: true}, {name: pick, kind: client, schema: {type: object}}]}`,
	"judges": `{loop: {type: reflect}, model: {provider: scripted, responses: [{tool_calls: [{name: look, id: c1}]}, {tool_calls: [{name: pick, id: c2}]}, {text: judged}]},
		tools: [{name: look, idempotent: true}, {name: pick, kind: client, schema: {type: object}}], limits: {output_tokens: 1000}}`,
	"extracts":  `{loop: {type: single_call}, model: {provider: scripted, responses: [{text: '{"a": 1}'}]}, output_schema: {type: object}}`,
	"dies":      `{model: {provider: scripted, responses: [{tool_calls: [{name: bomb, id: c1}]}, {text: survived}]}, tools: [{name: bomb, idempotent: true}]}`,
	"converses": `{loop: {converse: true}, model: {provider: scripted, responses: [{text: hello}, {text: bye}]}}`,
}

// stories are the runs of a fixture, by name. Those of a batch have its name and
// their number.
var stories = map[string]story{
	"finished":   {agent: "plain", frozen: "completed", want: "completed", output: "plain", say: "more"},
	"extracted":  {agent: "extracts", frozen: "completed", want: "completed", output: `{"a": 1}`},
	"approval":   {agent: "refunds", frozen: "waiting_approval", want: "completed", output: "refunded"},
	"client":     {agent: "files", frozen: "waiting_client_tool", want: "completed", output: "picked"},
	"question":   {agent: "asks", frozen: "waiting_human_input", want: "completed", output: "asked"},
	"elicited":   {agent: "elicits", frozen: "waiting_human_input", want: "completed", output: "elicited"},
	"conversing": {agent: "converses", frozen: "waiting_human_input", want: "model_error"},
	"async":      {agent: "later", frozen: "waiting_tool", want: "completed", output: "rendered"},
	"parent":     {agent: "parent", frozen: "waiting_child", want: "completed", output: "both"},
	"compacted":  {agent: "compacts", frozen: "waiting_client_tool", want: "completed", output: "compacted"},
	"fallback":   {agent: "falls", frozen: "waiting_client_tool", want: "completed", output: "fallen"},
	"limited":    {agent: "waits", frozen: "waiting_schedule", want: "completed", output: "waited"},
	"scheduled":  {agent: "plain", submit: api.SubmitRequest{StartAt: in(2 * time.Hour)}, frozen: "waiting_schedule", want: "completed", output: "plain"},
	"two_phase":  {agent: "steps", frozen: "waiting_client_tool", want: "completed", output: "stepped"},
	"reflect":    {agent: "judges", submit: api.SubmitRequest{Limits: &api.SubmitLimits{MaxTurns: 7}}, frozen: "waiting_client_tool", want: "completed", output: "judged"},
	"batch0":     {agent: "files", frozen: "waiting_client_tool", want: "completed", output: "picked"},
	"batch1":     {agent: "files", frozen: "waiting_schedule", want: "completed", output: "picked"},
	"batch2":     {agent: "files", frozen: "waiting_schedule", want: "completed", output: "picked"},

	// A turn that five workers took: its dead letter is replayed.
	"poisoned": {agent: "dies", frozen: "poisoned", want: "completed", output: "survived"},

	// In the middle of a turn: a result in the journal, and two start marks.
	"running":     {agent: "busy", frozen: "running", want: "completed", output: "unstalled"},
	"running_too": {agent: "busy", frozen: "running", want: "completed", output: "unstalled"},

	// Signals and an abort lie in the inbox.
	"approved": {agent: "refunds", frozen: "queued", want: "completed", output: "refunded"},
	"steered":  {agent: "plain", frozen: "queued", want: "completed", output: "plain", late: true},
	"aborted":  {agent: "plain", frozen: "queued", want: "aborted_queued", late: true},
	"queued":   {agent: "plain", submit: api.SubmitRequest{Metadata: map[string]string{"k": "v"}, Priority: "low"}, frozen: "queued", want: "completed", output: "plain", late: true},
}

func in(d time.Duration) *state.Time {
	t := state.At(time.Now().Add(d))
	return &t
}
