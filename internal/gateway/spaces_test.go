package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// spellings returns ids that users may choose and that resemble the one that Turnpike derives from word and
// run.
func spellings(word, run string) []string {
	id := word + ":" + run
	return []string{id, "turnpike " + id, "user " + id, strings.ToUpper(word) + ":" + run, word + "/" + run, word, run}
}

// A user's signal ids cannot collide with the result of a child: the result still reaches its parent.
func TestSignalIDsOfChildren(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, func(c *worker.Config) {
		c.SweepInterval = 10 * time.Millisecond
		c.RedeliveryDelay = 50 * time.Millisecond
	})
	s.put("kid", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: k1}]}, {text: "kid is done"}]}, tools: [{name: add, approval: always}]}`)
	s.put("parent", `{model: {provider: scripted, responses: [{tool_calls: [{name: delegate, id: c1, arguments: {task: "go"}}]}, {text: end}, {text: end}]}, tools: [{name: delegate, kind: agent, agent: kid, description: x}]}`)
	st, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "parent", Input: []byte(`"hi"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	kid := ""
	eventually(t, "the child waits", func() bool {
		p, err := s.store.Load(t.Context(), state.RunID(st.ID))
		if err != nil || p.Status != state.Waiting || len(p.Open) == 0 {
			return false
		}
		kid = string(p.Open[0].Child)
		k, err := s.store.Load(t.Context(), p.Open[0].Child)
		return err == nil && k.Status == state.Waiting
	})
	for i, id := range spellings("child", kid) {
		body, key := `{"signal_id": "`+id+`", "message": "how is it going?"}`, ""
		if i%2 == 1 {
			body, key = `{"message": "how is it going?"}`, id
		}
		if code, _, p := s.call("POST", "/v1/runs/"+st.ID+"/signals", body, "Idempotency-Key", key); code >= 300 {
			t.Fatalf("message under the id %q: %d %v", id, code, p)
		}
	}
	if code, _, p := s.call("POST", "/v1/runs/"+kid+"/signals", `{"approvals": [{"call_id": "k1", "decision": "approve"}]}`); code >= 300 {
		t.Fatalf("%d %v", code, p)
	}
	eventually(t, "the parent has the result of its child", func() bool {
		log, err := s.store.Log(t.Context(), state.RunID(st.ID), 0, 0)
		for _, e := range log {
			if e.CallID == "c1" && e.Message != nil && strings.Contains(e.Message.Parts[0].Content, "kid is done") {
				return true
			}
		}
		return err != nil
	})
}

// A user's signal ids cannot collide with the starts of a batch's runs.
func TestSignalIDsOfStarts(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, func(c *worker.Config) {
		c.SweepInterval = 10 * time.Millisecond
		c.RedeliveryDelay = 50 * time.Millisecond
	})
	s.put("brief", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: k1}]}, {text: done}, {text: more}]}, tools: [{name: add, approval: always}]}`)
	code, _, p := s.call("POST", "/v1/runs:batch", `{"max_parallel": 1, "runs": [{"agent": "brief", "input": "a"}, {"agent": "brief", "input": "b"}, {"agent": "brief", "input": "c"}]}`)
	if code != 202 {
		t.Fatal(code, p)
	}
	ids := p["run_ids"].([]any) //nolint:forcetypeassert // the API returns strings
	for _, id := range spellings("start", ids[1].(string)) {
		if code, _, p := s.call("POST", "/v1/runs/"+ids[1].(string)+"/signals", `{"message": "one more thing"}`, "Idempotency-Key", id); code >= 300 {
			t.Fatalf("message under the id %q: %d %v", id, code, p)
		}
	}
	for _, id := range ids {
		eventually(t, "the run has ended", func() bool {
			st, err := s.store.Load(t.Context(), state.RunID(id.(string)))
			if err == nil && st.Status == state.Waiting && st.Waiting.Reason == state.WaitingApproval {
				s.call("POST", "/v1/runs/"+string(st.ID)+"/signals", `{"approvals": [{"call_id": "k1", "decision": "approve"}]}`)
			}
			return err == nil && st.Status.Terminal()
		})
	}
}

// A caller's key cannot collide with the internal key of a fork, or of a message without a key.
func TestKeysOfForksAndMessages(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	st, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: []byte(`"hi"`)}, "user k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Wait(t.Context(), st.ID); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "fork/" + st.ID + "/k", "fork " + st.ID + " k", "message 1", "message/1", "user user k", "user  k"} {
		if code, _, p := s.call("POST", "/v1/runs", `{"agent": "hello", "input": "`+key+`"}`, "Idempotency-Key", key); code != 202 {
			t.Errorf("submission under the key %q: %d %v", key, code, p)
		}
	}
	if code, _, p := s.call("POST", "/v1/runs/"+st.ID+"/fork", `{"turn": 0}`, "Idempotency-Key", "k"); code != 202 {
		t.Errorf("fork under the key k: %d %v", code, p)
	}
}
