package gateway_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
)

// Whoever may send messages cannot make a run as large as they like: each turn has all of it
// in memory. It can be read and cancelled still.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	const most = 40
	s := newDeployment(t)
	ctx := t.Context()
	run, err := s.client.Submit(ctx, api.SubmitRequest{Agent: "hello", Input: client.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.events(run.ID, 0, nil)
	sent := 0
	for {
		_, err = s.client.Signal(ctx, run.ID, api.SignalRequest{Message: client.Text(strings.Repeat("z", 1_000_000))})
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodeInboxFull {
			s.events(run.ID, 0, nil) // the turn empties it
			continue
		}
		if err != nil || sent > most {
			break
		}
		sent++
	}
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeHistoryFull || p.Status != 413 {
		t.Fatalf("after %d messages of a megabyte: %v, want %s", sent, err, api.CodeHistoryFull)
	}
	if code, _, p := s.call("POST", "/v1/runs/"+run.ID+"/fork", `{"turn":0}`); code != 413 || p["code"] != api.CodeHistoryFull {
		t.Errorf("a fork of it: %d %v, want 413", code, p["code"])
	}
	if messages, err := s.client.Messages(ctx, run.ID); err != nil || len(messages) < 20 {
		t.Errorf("%d messages can be read, %v", len(messages), err)
	}
}
