package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The end of every run is delivered although all workers are killed while one delivers and the receiver fails
// for half of them at first. A repeated delivery has the same id and the same body.
func TestWebhooksSurviveKills(t *testing.T) {
	t.Parallel()
	const runs, key = 60, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	hook, err := standardwebhooks.NewWebhook(key)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	deliver, answer := make(chan struct{}), make(chan struct{})
	tried, bodies := map[string]bool{}, map[string]string{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the worker was killed
		}
		if err := hook.Verify(body, r.Header); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("webhook-id")
		if len(tried) == runs/4 && !tried[id] {
			deliver <- struct{}{}
			<-answer
		}
		if len(tried)%2 == 0 && !tried[id] {
			tried[id] = true
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		tried[id] = true
		if before, again := bodies[id]; again && before != string(body) {
			t.Errorf("event %s was delivered as\n%s\nand as\n%s", id, before, body)
		}
		bodies[id] = string(body)
	}))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, 3, "TURNPIKE_HTTP_ALLOW=127.0.0.0/8", "TURNPIKE_SECRET_EVENTS="+key)
	if _, err := s.client.PutAgent(t.Context(), "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for range runs {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{
			Agent: "a", Input: api.Text("x"), Webhook: &state.Webhook{URL: receiver.URL, Secret: state.SecretReferences{"secret://EVENTS"}},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids["evt_"+strings.TrimPrefix(run.ID, state.RunPrefix)+"_"] = true
	}
	<-deliver // one worker waits for the answer
	for _, w := range s.workers {
		w.kill()
		w.start()
	}
	answer <- struct{}{}
	eventually(t, "all events were delivered", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(bodies) < runs {
			return fmt.Errorf("%d of %d", len(bodies), runs)
		}
		return nil
	})
	for id := range bodies {
		if run := id[:strings.LastIndexByte(id, '_')+1]; !ids[run] {
			t.Errorf("event %s is of no run, or of one that had another", id)
		} else {
			delete(ids, run)
		}
	}
}
