package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// said returns what the model read in a run: roles, texts and results, the latter with their origin unless it
// is the tool.
func (s *deployment) said(id string) []string {
	s.t.Helper()
	messages, err := s.client.Messages(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, m := range messages {
		for _, p := range m.Parts {
			line := fmt.Sprintf("%s@%d %s", m.Role, m.Turn, p.Type)
			if p.Text != "" || p.Content != "" {
				line += ": " + p.Text + p.Content
			}
			if p.Origin != "" && p.Origin != state.OriginTool {
				line += " (" + string(p.Origin) + ")"
			}
			out = append(out, line)
		}
	}
	return out
}

// A fork continues with the agent that was responsible at its turn, and a message with the current one.
func TestForkAfterHandoff(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("front", `{"instructions": "Be kind.", "model": {"provider": "scripted", "responses": [
		{"tool_calls": [{"id": "c1", "name": "over", "arguments": {}}]}, {"text": "front"}]}, "tools": [{"name": "over", "kind": "handoff", "agent": "back"}]}`)
	s.put("back", `{"instructions": "Be exact.", "model": {"provider": "scripted", "responses": [{"text": "0"}, {"text": "back"}, {"text": "still back"}]}}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"front","input":"go"}`)
	if run["output"] != "back" || run["agent"] != "front" || fmt.Sprint(run["active_agent"]) != "map[name:back version:1]" {
		t.Fatalf("run = %v", run)
	}
	id := run["id"].(string)
	if got := s.said(id)[0]; got != "system@1 text: Be exact." {
		t.Errorf("the view begins with %q", got)
	}
	for turn, want := range []string{"front", "back", "back"} {
		code, _, forked := s.call("POST", "/v1/runs/"+id+"/fork", fmt.Sprintf(`{"turn":%d,"input":"again"}`, turn))
		if code != 202 || forked["agent"] != want || forked["active_agent"] != nil {
			t.Fatalf("fork at turn %d = %d %v", turn, code, forked)
		}
		// The fork of the front agent also hands over.
		if _, err := s.client.Wait(t.Context(), forked["id"].(string)); err != nil {
			t.Fatal(err)
		}
		if got := s.said(forked["id"].(string))[0]; !strings.HasSuffix(got, "Be exact.") {
			t.Errorf("the fork at turn %d begins with %q", turn, got)
		}
	}
	code, _, signal := s.call("POST", "/v1/runs/"+id+"/signals", `{"message":"sure?"}`)
	if code/100 != 2 {
		t.Fatalf("signal = %d %v", code, signal)
	}
	if end, err := s.client.Wait(t.Context(), id); err != nil || end.Output == nil || *end.Output != "still back" {
		t.Errorf("after the message the run is %+v, %v", end, err)
	}
}

// A fork changes exactly what it names: the version, the instructions, a message or a result. It records that,
// and the original is unchanged.
func TestForkChanges(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	put := func(instructions, answer string) {
		t.Helper()
		s.put("teller", fmt.Sprintf(`{"instructions": %q, "model": {"provider": "scripted", "responses": [
			{"tool_calls": [{"id": "call_a", "name": "add", "arguments": {"n": 1}}]}, {"text": %q}]}, "tools": [{"name": "add"}]}`, instructions, answer))
	}
	put("Be brief.", "one")
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"teller","input":"go"}`)
	put("Be kind.", "two")
	id := run["id"].(string)
	before := s.said(id)
	result := strings.TrimPrefix(before[3], "tool@1 tool_result: ")
	fork := func(body string) (map[string]any, []string) {
		t.Helper()
		code, _, forked := s.call("POST", "/v1/runs/"+id+"/fork", body)
		if code != 202 {
			t.Fatalf("fork %s = %d %v", body, code, forked)
		}
		first := s.events(forked["id"].(string), 0, nil)[0]
		detail := fmt.Sprintf("%s turn %d", first.ForkedFrom.RunID, first.ForkedFrom.Turn)
		if changed := first.ForkedFrom.Changed; len(changed) > 0 {
			detail += ", changed: " + strings.Join(changed, ", ")
		}
		if detail != first.Detail {
			t.Errorf("forked_from is %q, the detail %q", detail, first.Detail)
		}
		return forked, s.said(forked["id"].(string))
	}
	rest := []string{"assistant@2 tool_call", "tool@2 tool_result: " + result}
	for _, test := range []struct {
		name, body, changed string
		version             float64
		want                []string
	}{
		{"nothing", `{"turn": 1}`, "", 1,
			[]string{"system@0 text: Be brief.", "user@0 text: go", "assistant@1 tool_call", "tool@1 tool_result: " + result}},
		{"the version", `{"turn": 1, "agent_version": 2}`, ", changed: version 2 in place of 1", 2,
			[]string{"system@0 text: Be kind.", "user@0 text: go", "assistant@1 tool_call", "tool@1 tool_result: " + result}},
		{"a message", `{"turn": 1, "messages": [{"id": "msg_1_1", "parts": [{"type": "text", "text": "stop"}]}]}`, ", changed: message msg_1_1", 1,
			[]string{"system@0 text: Be brief.", "user@0 text: stop", "assistant@1 tool_call", "tool@1 tool_result: " + result}},
		{"a result", `{"turn": 1, "tool_results": [{"call_id": "call_a", "content": {"sum": 9}}]}`, ", changed: the result of call_a in turn 1", 1,
			[]string{"system@0 text: Be brief.", "user@0 text: go", "assistant@1 tool_call", `tool@1 tool_result: {"sum": 9} (person)`}},
		{"the version and what is said then", `{"turn": 1, "agent_version": 2, "input": "again"}`, ", changed: version 2 in place of 1", 2,
			[]string{"system@0 text: Be kind.", "user@0 text: go", "assistant@1 tool_call", "tool@1 tool_result: " + result, "user@1 text: again"}},
	} {
		forked, got := fork(test.body)
		if want := append(test.want, rest...); len(got) <= len(want) || cmp.Diff(want, got[:len(want)]) != "" {
			t.Errorf("%s: %s", test.name, cmp.Diff(want, got))
		}
		if d := forked["transition"].(map[string]any)["detail"]; d != id+" turn 1"+test.changed || forked["agent_version"] != test.version || forked["agent"] != "teller" {
			t.Errorf("%s: %v@%v, %v", test.name, forked["agent"], forked["agent_version"], d)
		}
	}
	// Changed instructions become an immutable definition of their own.
	forked, got := fork(`{"turn": 1, "instructions": "Be rude."}`)
	if got[0] != "system@0 text: Be rude." || got[1] != "user@0 text: go" {
		t.Errorf("other instructions: %v", got)
	}
	name := forked["agent"].(string)
	if d := forked["transition"].(map[string]any)["detail"]; !strings.HasPrefix(name, "draft-") || forked["metadata"].(map[string]any)["draft"] != "teller" || d != id+" turn 1, changed: the instructions" {
		t.Errorf("run of changed instructions: %v", forked)
	}
	if _, _, a := s.call("GET", "/v1/agents/"+name+"?version=1", ""); a["definition"].(map[string]any)["instructions"] != "Be rude." {
		t.Errorf("its definition: %v", a)
	}
	for _, a := range s.list("/v1/agents") {
		if a.(map[string]any)["name"] == name {
			t.Error("the list of agents contains the draft")
		}
	}
	// Empty instructions, and unchanged ones.
	if _, got := fork(`{"turn": 0, "instructions": ""}`); got[0] != "user@0 text: go" {
		t.Errorf("no instructions: %v", got)
	}
	if forked, _ := fork(`{"turn": 0, "instructions": "Be brief."}`); forked["agent"] != "teller" {
		t.Errorf("the same instructions: %v", forked["agent"])
	}
	if diff := cmp.Diff(before, s.said(id)); diff != "" {
		t.Errorf("the original changed: %s", diff)
	}
	// The same key returns the same run, so that a caller without an answer can retry.
	once := func(body string) (api.Run, error) {
		var req api.ForkRequest
		if err := json.Unmarshal([]byte(body), &req); err != nil {
			t.Fatal(err)
		}
		return s.client.ForkWithKey(t.Context(), id, req, "k")
	}
	const body = `{"turn": 0, "instructions": "Be rude.", "tool_results": []}`
	a, err := once(body)
	if b, err2 := once(body); err != nil || err2 != nil || a.ID != b.ID {
		t.Errorf("one key, runs %s and %s: %v, %v", a.ID, b.ID, err, err2)
	}
	if _, err := once(`{"turn": 0}`); !strings.Contains(fmt.Sprint(err), api.CodeIdempotencyConflict) {
		t.Errorf("one key, another body: %v", err)
	}
}

func (s *deployment) list(path string) []any {
	s.t.Helper()
	_, _, page := s.call("GET", path, "")
	return page["items"].([]any)
}

// All invalid changes of a fork are reported at once, each with its location.
func TestForkRefused(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("twice", `{"instructions": "Count.", "model": {"provider": "scripted", "responses": [
		{"tool_calls": [{"id": "c", "name": "add", "arguments": {"n": 1}}]}, {"tool_calls": [{"id": "c", "name": "add", "arguments": {"n": 2}}]}, {"text": "done"}]},
		"tools": [{"name": "add"}]}`)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"twice","input":"go"}`)
	path := fmt.Sprintf("/v1/runs/%s/fork", run["id"])
	refused := func(body string, want map[string]string) {
		t.Helper()
		code, _, p := s.call("POST", path, body)
		errs, _ := p["errors"].([]any)
		if code != 400 || len(errs) != len(want) {
			t.Errorf("fork %.200s = %d %v", body, code, p)
			return
		}
		for _, e := range errs {
			at, detail := e.(map[string]any)["at"].(string), e.(map[string]any)["detail"].(string)
			if !strings.Contains(detail, want[at]) || want[at] == "" || !strings.Contains(p["detail"].(string), detail) {
				t.Errorf("fork %.200s: %s: %s, want %q", body, at, detail, want[at])
			}
		}
	}
	refused(`{"turn": 2, "agent_version": 7, "messages": [{"id": "msg_9", "parts": [{"type": "text", "text": "x"}]}, {"id": "msg_1_0", "parts": [{"type": "text", "text": "x"}]},
		{"id": "msg_1_1", "parts": [{"type": "tool_call", "id": "x", "name": "y"}]}], "tool_results": [{"call_id": "d", "content": "x"}, {"call_id": "c", "content": "x"}, {"call_id": "c", "turn": 1}], "input": " "}`,
		map[string]string{
			"agent_version":           "agent twice has no version 7",
			"messages[0].id":          "msg_9 is not a message of turns 0 to 2",
			"messages[1].id":          "set the field instructions instead",
			"messages[2].parts[0]":    "a message of role user cannot have a part of type",
			"tool_results[0].call_id": "there is no result of a call d in turns 0 to 2: name one of c (turn 1), c (turn 2)",
			"tool_results[1].call_id": "2 calls have the id c: add turn to select one",
			"tool_results[2].content": "content is missing",
			"input":                   "input is empty",
		})
	refused(`{"turn": 1, "tool_results": [{"call_id": "c", "turn": 2, "content": "x"}]}`, map[string]string{"tool_results[0].call_id": "there is no result of a call c"})
	refused(`{"turn": 1, "tool_results": [{"call_id": "c", "content": "x"}, {"call_id": "c", "content": "y"}]}`, map[string]string{"tool_results[1]": "is changed twice"})
	refused(fmt.Sprintf(`{"turn": 1, "tool_results": [{"call_id": "c", "content": %q}]}`, strings.Repeat("x", 128<<10+1)), map[string]string{"tool_results[0].content": "has 131073 bytes, at most 131072 are allowed"})
	refused(`{"turn": 1, "messages": [{"id": "msg_1_1", "parts": []}]}`, map[string]string{"messages[0].parts": "parts is missing"})
	refused(`{"turn": 9, "agent_version": -1}`, map[string]string{"turn": "name a turn from 0 to 3", "agent_version": "give a number from 1"})
	// The problem names the turn of the call.
	if code, _, p := s.call("POST", path, `{"turn": 2, "tool_results": [{"call_id": "c", "turn": 2, "content": "x"}]}`); code != 202 {
		t.Errorf("the call of a turn: %d %v", code, p)
	}
}

// Changed instructions are an unpublished definition: they require an author, and are refused in a tenant with
// review.
func TestForkInstructionsAreReviewed(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	id := s.run("acme").ID
	fork := func(instructions string, roles ...access.Role) error {
		req := api.ForkRequest{Turn: new(int)}
		if instructions != "" {
			req.Instructions = &instructions
		}
		_, err := s.client("acme", roles...).Fork(t.Context(), id, req)
		return err
	}
	forbidden := func(what string, err error, want string) {
		t.Helper()
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 403 || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	forbidden("by a submitter", fork("Obey.", access.Submitter), "the role author")
	obey := "Obey."
	forked, err := s.client("acme", access.Submitter, access.Author).Fork(t.Context(), id, api.ForkRequest{Turn: new(int), Instructions: &obey})
	if err != nil {
		t.Fatalf("by an author: %v", err)
	}
	for e, err := range s.client("acme", access.Viewer).Events(t.Context(), forked.ID, 0) {
		if err != nil || e.By == nil || !strings.HasPrefix(e.By.Principal, "key:") {
			t.Errorf("its first entry: %+v, %v", e.By, err)
		}
		break
	}
	if _, err := s.client("*", access.Admin).PutTenant(t.Context(), "acme", api.TenantSettings{Review: true}); err != nil {
		t.Fatal(err)
	}
	forbidden("under review", fork("Obey.", access.Submitter, access.Author), "ask an author or admin who has not saved it to publish it, and fork with that agent_version")
	if err := fork("", access.Submitter); err != nil {
		t.Errorf("without other instructions: %v", err)
	}
}
