package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// unanswered is a store that loses the first answer to a signal.
type unanswered struct {
	state.Store
	lost atomic.Bool
}

func (u *unanswered) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	wake, err := u.Store.Signal(ctx, id, sig, delay)
	if err == nil && u.lost.CompareAndSwap(false, true) {
		return state.Wake{}, errors.New("connection reset by peer")
	}
	return wake, err
}

// A signal with an Idempotency-Key can be repeated after a 503: it counts once and gets the same response. A
// different body under the key is refused.
func TestSignalUnderAKey(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &unanswered{Store: open(t)}
			g, err := gateway.New(store, membus.New(), gateway.Config{})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(g.Handler())
			t.Cleanup(server.Close)
			c := api.New(server.URL)
			if _, err := c.PutAgent(t.Context(), "talk", []byte(`{model: {provider: scripted, responses: [{text: first}]}}`)); err != nil {
				t.Fatal(err)
			}
			post := func(path, body, key string) (int, string) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if key != "" {
					req.Header.Set("Idempotency-Key", key)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, string(b)
			}
			run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "talk", Input: []byte(`"x"`)}, "")
			if err != nil {
				t.Fatal(err)
			}
			path := "/v1/runs/" + run.ID + "/signals"
			for i, step := range []struct {
				body, key string
				status    int
			}{
				{`{"message":"hello"}`, "k", 503}, {`{"message":"hello"}`, "k", 202}, {`{ "message" : "hello" }`, "k", 202},
				{`{"signal_id":"k","message":"hello"}`, "k", 202}, {`{"message":"good-bye"}`, "k", 409}, {`{"answer":"hello"}`, "k", 409},
				{`{"message":"hello"}`, "other", 202}, {`{"signal_id":"other","message":"something else"}`, "", 202},
			} {
				if status, body := post(path, step.body, step.key); status != step.status || step.status == 409 && !strings.Contains(body, "idempotency_conflict") {
					t.Errorf("request %d: %d %s, want %d", i+1, status, body, step.status)
				}
			}
			claim, err := store.Claim(t.Context(), state.ClaimRequest{Run: state.RunID(run.ID), Version: run.Version, Token: "t", Worker: "w", Lease: time.Minute, RedeliveryDelay: time.Minute})
			if err != nil || len(claim.Signals) != 2 || claim.Signals[0].ID != "k" || claim.Signals[1].ID != "other" {
				t.Errorf("the run has %+v, %v; want the message once under each key", claim.Signals, err)
			}
		})
	}
}
