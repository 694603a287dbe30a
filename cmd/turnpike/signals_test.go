package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A decision is about the calls that the user has seen: it names the hash of each, and an approval also the arguments.
func TestDecisionsNameWhatTheUserSaw(t *testing.T) {
	t.Parallel()
	const id = "run_01ARZ3NDEKTSV4RRFFQ69G5FA0"
	var sent api.SignalRequest
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			sent = api.SignalRequest{}
			if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id": %q, "status": "waiting", "waiting": {"reason": "waiting_approval", "calls": [
			{"id": "c1", "tool": "pay", "needs": "approval", "hash": "h1", "arguments": {"n": 1}},
			{"id": "c2", "tool": "pay", "needs": "approval", "hash": "h2", "arguments": {"n": 2}},
			{"id": "c3", "tool": "pick", "needs": "result", "hash": "h3", "arguments": {"n": 3}}]}}`, id)
	}))
	t.Cleanup(s.Close)
	approve := func(call, hash, arguments string) api.Approval {
		return api.Approval{CallID: call, Hash: hash, Decision: "approve", Arguments: json.RawMessage(arguments)}
	}
	deny := func(call, hash, reason string) api.Approval {
		return api.Approval{CallID: call, Hash: hash, Decision: "deny", Reason: reason}
	}
	for _, test := range []struct {
		args []string
		want []api.Approval
	}{
		{[]string{"approve", id}, []api.Approval{approve("c1", "h1", `{"n":1}`), approve("c2", "h2", `{"n":2}`)}},
		{[]string{"approve", id, "c2"}, []api.Approval{approve("c2", "h2", `{"n":2}`)}},
		{[]string{"approve", id, "c2", "--arguments", `{"n":4}`}, []api.Approval{approve("c2", "h2", `{"n":4}`)}},
		{[]string{"deny", id, "--reason", "no"}, []api.Approval{deny("c1", "h1", "no"), deny("c2", "h2", "no")}},
		{[]string{"deny", id, "c1"}, []api.Approval{deny("c1", "h1", "")}},
	} {
		if _, err := says(t, api.New(s.URL), test.args...); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(test.want, sent.Approvals); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.args, diff)
		}
	}
	sent = api.SignalRequest{}
	if _, err := says(t, api.New(s.URL), "deny", id, "c3"); err == nil || len(sent.Approvals) > 0 {
		t.Errorf("the denial of a call that waits for a result: %v, sent %+v", err, sent)
	}
}
