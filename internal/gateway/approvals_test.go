package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A decision with the hash of an earlier call does not approve the next turn's call of the same id.
func TestStaleApproval(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("twice", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1, arguments: {n: 1}}]}, {tool_calls: [{name: add, id: c1, arguments: {n: 1}}]}, {text: done}]}, tools: [{name: add, approval: always, idempotent: true, reuse: false}]}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"twice","input":"x"}`)
	id, _ := run["id"].(string)
	hashOf := func(run map[string]any) string {
		t.Helper()
		waiting, _ := run["waiting"].(map[string]any)
		calls, _ := waiting["calls"].([]any)
		if len(calls) != 1 {
			t.Fatalf("run waits for %v", waiting)
		}
		call, _ := calls[0].(map[string]any)
		hash, _ := call["hash"].(string)
		return hash
	}
	first := hashOf(run)
	approve := func(hash string) (int, any) {
		code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", fmt.Sprintf(`{"approvals":[{"call_id":"c1","decision":"approve","hash":%q}]}`, hash))
		return code, p["code"]
	}
	if code, problem := approve("0123"); code != 409 || problem != "stale_approval" {
		t.Errorf("a malformed hash: %d %v", code, problem)
	}
	if code, problem := approve(first); code != 202 {
		t.Fatalf("the hash of the call: %d %v", code, problem)
	}
	var second string
	eventually(t, "the next call waits", func() bool {
		_, _, run := s.call("GET", "/v1/runs/"+id, "")
		if run["status"] != "waiting" || run["turn_count"] != float64(2) {
			return false
		}
		second = hashOf(run)
		return true
	})
	if code, problem := approve(first); second == first || code != 409 || problem != "stale_approval" {
		t.Errorf("the hash of the previous turn's call: %d %v", code, problem)
	}
	if code, problem := approve(second); code != 202 {
		t.Errorf("the hash of the waiting call: %d %v", code, problem)
	}
}

// The decision about a call is one event that contains what was shown. An edited call that needs approval
// itself waits again.
func TestDecisionIsOneEvent(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("edits", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1, arguments: {n: 5}}]}, {text: done}]}, tools: [{name: add, approval: "args.n > 1"}]}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"edits","input":"x"}`)
	id, _ := run["id"].(string)
	shown := func() (arguments, hash string) {
		_, _, run := s.call("GET", "/v1/runs/"+id, "")
		waiting, _ := run["waiting"].(map[string]any)
		calls, _ := waiting["calls"].([]any)
		if len(calls) != 1 {
			return "", ""
		}
		call, _ := calls[0].(map[string]any)
		hash, _ = call["hash"].(string)
		return fmt.Sprint(call["arguments"]), hash
	}
	_, before := shown()
	decide := func(approval string) (int, any) {
		code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", fmt.Sprintf(`{"approvals":[{"call_id":"c1","decision":"approve",%s}]}`, approval))
		return code, p["code"]
	}
	if code, p := decide(fmt.Sprintf(`"hash":%q,"arguments":{"n":9},"reason":"more"`, before)); code != 202 {
		t.Fatalf("the edit: %d %v", code, p)
	}
	var after string
	eventually(t, "the edited call waits", func() bool {
		var arguments string
		arguments, after = shown()
		return arguments == "map[n:9]"
	})
	if code, p := decide(fmt.Sprintf(`"hash":%q`, before)); code != 409 || p != "stale_approval" {
		t.Errorf("the hash from before the edit: %d %v", code, p)
	}
	if code, p := decide(fmt.Sprintf(`"hash":%q`, after)); code != 202 {
		t.Fatalf("the edited call: %d %v", code, p)
	}
	eventually(t, "the run ends", func() bool {
		_, _, run := s.call("GET", "/v1/runs/"+id, "")
		return run["status"] == "completed"
	})
	_, _, page := s.call("GET", "/v1/runs/"+id+"/events", "", "Accept", "application/json")
	items, _ := page["items"].([]any)
	var got []string
	for _, item := range items {
		e, _ := item.(map[string]any)
		if e["type"] == "approval.decided" {
			a, _ := e["approval"].(map[string]any)
			by, _ := e["by"].(map[string]any)
			got = append(got, fmt.Sprintf("%v %v %v %v %v %v %v", by["principal"], e["call_id"], a["decision"], a["shown"], a["arguments"], a["reason"], a["hash"]))
		}
	}
	want := []string{"c1 approve map[n:5] map[n:9] more " + before, "c1 approve map[n:9] <nil> <nil> " + after}
	if len(got) != 2 || !strings.HasSuffix(got[0], want[0]) || !strings.HasSuffix(got[1], want[1]) {
		t.Errorf("decisions %q, want %q", got, want)
	}
}

// A call whose arguments derive from a tool's output waits for approval if a rule or hook asks for it, with the
// risk that its tool declares. Other calls do not wait.
func TestArgumentsFromOutside(t *testing.T) {
	t.Parallel()
	responses := `model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1}]}, {tool_calls: [{name: pay, id: c2, arguments: {amount: 41}}, {name: pay, id: c3, arguments: {amount: 42}}]}, {text: done}]}`
	for name, rest := range map[string]string{
		"rule": `tools: [{name: add}, {name: pay, kind: client, schema: {type: object}, risk: pays, approval: args_from_untrusted}]`,
		"hook": `tools: [{name: add}, {name: pay, kind: client, schema: {type: object}, risk: pays}], hooks: {pre_tool: [{kind: cel, when: 'tool == "pay" && args_from_untrusted && untrusted_seen', then: approve}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			s.put("payer", `{`+responses+`, `+rest+`}`)
			_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"payer","input":"pay 42"}`)
			waiting, _ := run["waiting"].(map[string]any)
			calls, _ := waiting["calls"].([]any)
			var got []string
			for _, c := range calls {
				call, _ := c.(map[string]any)
				got = append(got, fmt.Sprintf("%v %v %v %v %v %v", call["id"], call["needs"], call["risk"], call["untrusted_seen"], call["args_from_untrusted"], call["sources"]))
			}
			if want := "c2 result pays false false [], c3 approval pays true true [map[argument:amount call_id:c1 origin:tool tool:add turn:1]]"; strings.Join(got, ", ") != want {
				t.Errorf("waits for %q, want %q", got, want)
			}
			id, _ := run["id"].(string)
			_, _, page := s.call("GET", "/v1/runs/"+id+"/messages", "")
			if text := fmt.Sprint(page["items"]); !strings.Contains(text, "origin:tool") {
				t.Errorf("the result has no origin: %s", text)
			}
		})
	}
}

// An edit of a call's arguments that violates the tool's schema is refused at once, and the call keeps waiting.
// An approval without changes, or a denial, is not validated.
func TestEditThatTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("pays", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1, arguments: {n: 5}}]}, {text: done}]}, tools: [{name: add, approval: always, schema: {type: object, properties: {"n": {type: integer}}, required: ["n"]}}]}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"pays","input":"x"}`)
	id, _ := run["id"].(string)
	decide := func(approval string) (int, string) {
		code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", `{"approvals":[{"call_id":"c1","decision":"approve",`+approval+`}]}`)
		return code, fmt.Sprint(p["code"], " ", p["detail"])
	}
	for _, wrong := range []string{`{"n":"many"}`, `{}`} {
		if code, text := decide(`"arguments":` + wrong); code != 400 || !strings.HasPrefix(text, "invalid_request approvals[0].arguments: ") {
			t.Errorf("%s: %d %s", wrong, code, text)
		}
	}
	if code, text := decide(`"hash":"0123","arguments":{}`); code != 409 {
		t.Errorf("an edit of another call: %d %s", code, text)
	}
	if _, _, run := s.call("GET", "/v1/runs/"+id, ""); run["status"] != "waiting" {
		t.Fatalf("the run is %v", run["status"])
	}
	if code, text := decide(`"arguments":{"n":7}`); code != 202 {
		t.Errorf("a valid edit: %d %s", code, text)
	}
	eventually(t, "the run completes", func() bool {
		_, _, run = s.call("GET", "/v1/runs/"+id, "")
		return run["status"] == "completed"
	})
}

// A caller cannot mark a tool result as synthetic, which would make it trusted.
func TestSyntheticResultsFromOutside(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("payer", `{model: {provider: scripted, responses: [{tool_calls: [{name: pay, id: c2, arguments: {amount: 42}}]}, {text: done}]},
		tools: [{name: add}, {name: pay, kind: client, schema: {type: object}, approval: args_from_untrusted}]}`)
	for _, synthetic := range []bool{false, true} {
		input := fmt.Sprintf(`[{"role":"user","content":"add"}, {"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"add","arguments":{}}]},
			{"role":"tool","synthetic":%v,"parts":[{"type":"tool_result","call_id":"c1","content":"42"}]}, {"role":"user","content":"pay it"}]`, synthetic)
		_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"payer","input":`+input+`}`)
		if run["reason"] != "waiting_approval" {
			t.Errorf("with synthetic %v the call waits for %v, want waiting_approval", synthetic, run["reason"])
		}
	}
}

// A decision that gives only a call id is refused once the run has had a decision about that id: it may be
// meant for the earlier call.
func TestApprovalOfADecidedID(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{
		"approved":  `{"call_id":"c1","decision":"approve"}`,
		"denied":    `{"call_id":"c1","decision":"deny"}`,
		"edited":    `{"call_id":"c1","decision":"approve","arguments":{"n":7}}`,
		"expired":   "",
		"cancelled": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			again := `{tool_calls: [{name: add, id: c1, arguments: {n: 2}}, {name: add, id: c2, arguments: {n: 3}}]}`
			limits := ""
			if name == "expired" {
				limits = "limits: {wait: 200ms}, "
			}
			s.put("again", `{`+limits+`model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1, arguments: {n: 1}}]}, `+again+`, {text: done}]}, tools: [{name: add, approval: always, idempotent: true, reuse: false}]}`)
			_, _, run := s.call("POST", "/v1/runs?wait=20s", `{"agent":"again","input":"x"}`)
			id, _ := run["id"].(string)
			send := func(signal string) (int, any) {
				code, _, p := s.call("POST", "/v1/runs/"+id+"/signals", signal)
				return code, p["code"]
			}
			if name == "cancelled" {
				if code, _, p := s.call("POST", "/v1/runs/"+id+"/cancel", "{}"); code != 202 {
					t.Fatalf("the cancel: %d %v", code, p)
				}
			}
			if first == "" {
				eventually(t, "the run ends", func() bool {
					_, _, run = s.call("GET", "/v1/runs/"+id, "")
					return run["finished_at"] != nil
				})
				if code, p := send(`{"message": "again"}`); code != 202 {
					t.Fatalf("the message: %d %v", code, p)
				}
			} else if code, p := send(`{"approvals":[` + first + `]}`); code != 202 {
				t.Fatalf("the first decision: %d %v", code, p)
			}
			hash := ""
			eventually(t, "the second response waits", func() bool {
				st, err := s.store.Load(t.Context(), state.RunID(id))
				if err != nil || st.Waiting == nil || len(st.Waiting.Calls) != 2 {
					return false
				}
				hash = st.Waiting.Calls[0].Hash
				return true
			})
			for _, stale := range []string{
				`{"call_id":"c1","decision":"approve"}`,
				`{"call_id":"c1","decision":"approve","arguments":{"n":2}}`,
				`{"call_id":"c1","decision":"deny"}`,
				`{"call_id":"c2","decision":"approve"},{"call_id":"c1","decision":"approve"}`,
			} {
				if code, p := send(`{"approvals":[` + stale + `]}`); code != 409 || p != "stale_approval" {
					t.Errorf("%s: %d %v", stale, code, p)
				}
			}
			if code, p := send(`{"approvals":[{"call_id":"c2","decision":"approve"}]}`); code != 202 {
				t.Errorf("a new id: %d %v", code, p)
			}
			if code, p := send(fmt.Sprintf(`{"approvals":[{"call_id":"c1","decision":"approve","hash":%q}]}`, hash)); code != 202 {
				t.Errorf("the hash of the waiting call: %d %v", code, p)
			}
		})
	}
}
