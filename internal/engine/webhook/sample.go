package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Sample sends a made-up event, so that the author of a receiver can test it. The secret is the value of
// one of the endpoint's. The headers and the body have the form of any delivery; the
// metadata has test: true.
func Sample(ctx context.Context, client *http.Client, endpoint state.Webhook, secret string) error {
	if err := endpoint.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Times{}.withDefaults().Request)
	defer cancel()
	output, now := "This is a test event.", state.At(time.Now())
	made := ulid.Make().String()
	run := state.RunID(state.RunPrefix + made)
	body, err := json.Marshal(Body{state.EntryFinished, now, Data{
		RunID: run, Tenant: state.DefaultTenant, Agent: "test", AgentVersion: 1, Metadata: map[string]string{"test": "true"}, Sequence: 1,
		Status: state.Completed, Reason: state.EndCompleted, Output: &output,
	}})
	if err != nil {
		return err
	}
	e := event{id: "evt_" + made + "_1", run: run, kind: state.EntryFinished, at: now, body: body, endpoint: endpoint}
	_, err = deliver(ctx, client, state.DefaultTenant, e, []string{secret})
	return err
}
