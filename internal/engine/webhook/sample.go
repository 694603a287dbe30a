package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Sample sends an invented event from this process, so that the author of a receiver can test it. It does not check
// the policy of a tenant. secrets are the values of the secrets that endpoint names, in the same order. The error is
// that of endpoint.Check or of the delivery; a status other than 2xx is an error.
func Sample(ctx context.Context, client *http.Client, endpoint state.Webhook, secrets []string) error {
	if err := endpoint.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Times{}.withDefaults().Request)
	defer cancel()
	e, err := sample(state.DefaultTenant, ulid.Make().String(), state.At(time.Now()), endpoint)
	if err != nil {
		return err
	}
	_, err = deliver(ctx, client, state.DefaultTenant, e, secrets)
	return err
}

// sample returns a made-up event. Its headers and its body have the form of any other event; the metadata has
// test: true. made is the unique part of the ids of the event and its run.
func sample(tenant, made string, at state.Time, endpoint state.Webhook) (event, error) {
	output := "This is a test event."
	run := state.RunID(state.RunPrefix + made)
	body, err := json.Marshal(Body{state.EntryFinished, at, Data{
		RunID: run, Tenant: tenant, Agent: "test", AgentVersion: 1, Metadata: map[string]string{"test": "true"}, Sequence: 1,
		Status: state.Completed, Reason: state.EndCompleted, Output: &output,
	}})
	return event{id: eventID(run, 1), run: run, kind: state.EntryFinished, at: at, body: body, endpoint: endpoint}, err
}
