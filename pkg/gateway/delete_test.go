package gateway_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A run that has ended can be deleted, one in flight cannot, and what is gone is not there.
func TestDeleteRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	done, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: []byte(`"hi"`)}, "")
	if err == nil {
		_, err = s.client.Wait(t.Context(), done.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	going, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "slow", Input: []byte(`"hi"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, p := s.call("DELETE", "/v1/runs/"+going.ID, ""); code != 409 || p["code"] != "run_in_flight" || !strings.Contains(p["detail"].(string), "cancellation") { //nolint:forcetypeassert // a problem has one
		t.Errorf("a run in flight = %d %v", code, p)
	}
	if code, _, p := s.call("DELETE", "/v1/runs/"+done.ID, ""); code != 204 {
		t.Errorf("a run that has ended = %d %v", code, p)
	}
	for _, path := range []string{"", "/messages", "/turns", "/events"} {
		if code, _, p := s.call("GET", "/v1/runs/"+done.ID+path, ""); code != 404 || p["code"] != "run_not_found" {
			t.Errorf("%s of a deleted run = %d %v", path, code, p)
		}
	}
	if code, _, p := s.call("DELETE", "/v1/runs/"+done.ID, ""); code != 404 {
		t.Errorf("again = %d %v", code, p)
	}
}
